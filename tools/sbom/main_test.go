package main

import (
	"bytes"
	"os"
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
	if err := run(binary, "v1.2.3", &out); err != nil {
		t.Fatal(err)
	}
	if err := run(binary, "v1.2.3", &again); err != nil || out.String() != again.String() {
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
	if err := run("main.go", "", &out); err == nil {
		t.Error("a file that is no binary is described")
	}
}
