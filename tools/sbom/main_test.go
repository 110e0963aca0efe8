package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// The test's own binary is described: it has the library that writes the description.
func TestRun(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, again bytes.Buffer
	if err := run(binary, "v1.2.3", "", &out); err != nil {
		t.Fatal(err)
	}
	if err := run(binary, "v1.2.3", "", &again); err != nil || out.String() != again.String() {
		t.Errorf("one binary has two descriptions (%v)", err)
	}
	var b cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(&out, cyclonedx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	if c := b.Metadata.Component; c.Name != "github.com/lbd-dev/lbd/tools" || c.Version != "v1.2.3" {
		t.Errorf("described is %s %s", c.Name, c.Version)
	}
	found := map[string]bool{}
	for _, c := range *b.Components {
		found[c.Name] = strings.HasPrefix(c.PackageURL, "pkg:golang/"+c.Name+"@") && c.Version != ""
	}
	if !found["std"] || !found["github.com/CycloneDX/cyclonedx-go"] {
		t.Errorf("components %v", found)
	}
	if err := run("main.go", "", "", &out); err == nil {
		t.Error("a file that is no binary is described")
	}
}

func TestNPM(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "package-lock.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"packages": {
		"": {"name": "dashboard"},
		"node_modules/preact": {"version": "10.0.0", "license": "MIT", "integrity": "sha512-AQID"},
		"node_modules/typescript": {"version": "5.0.0", "dev": true},
		"node_modules/a/node_modules/@b/c": {"version": "1.0.0"}}}`)
	packages, err := npm(lock)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 2 ||
		packages[0].PackageURL != "pkg:npm/%40b/c@1.0.0" || packages[1].PackageURL != "pkg:npm/preact@10.0.0" {
		t.Fatalf("packages %+v", packages)
	}
	if p := packages[1]; (*p.Hashes)[0].Value != "010203" || (*p.Licenses)[0].License.ID != "MIT" {
		t.Errorf("preact is %+v", p)
	}
	for _, text := range []string{"{}", "no JSON", `{"packages": {"node_modules/typescript": {"dev": true}}}`} {
		write(text)
		if _, err := npm(lock); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if _, err := npm(lock + "x"); err == nil {
		t.Error("no file is accepted")
	}
}

// The dashboard's own packages.
func TestDashboard(t *testing.T) {
	packages, err := npm("../../web/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if p.Hashes == nil || p.Licenses == nil {
			t.Errorf("%s has no checksum, or no license", p.Name)
		}
	}
}
