package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: each module in lbd has its license there, and a text that many have is there once.
func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run("../..", "./cmd/lbd", "", &out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"Go's standard library: LICENSE\n", "Copyright 2009 The Go Authors.",
		"\ngoogle.golang.org/grpc v", "\ngithub.com/go-chi/chi/v5 v", "Copyright (c) 2015-present Peter Kieltyka",
		": NOTICE.txt\n", "\ngithub.com/prometheus/client_golang v",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is missing", text)
		}
	}
	if strings.Contains(out.String(), "github.com/lbd-dev/") {
		t.Error("lbd itself is among the software of others")
	}
	const permission = `"Software"), to deal in the Software without restriction`
	if first, _, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(first, "lbd contains") || !strings.Contains(out.String(), permission) {
		t.Error(first)
	}
}

// writer writes files in a directory.
func writer(t *testing.T, top string) func(path, text string) {
	return func(path, text string) {
		t.Helper()
		path = filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (n notices) String() string {
	var all []string
	for _, one := range n {
		all = append(all, one.text+" ("+strings.Join(one.of, ", ")+")")
	}
	return strings.Join(all, "; ")
}

// TestAdd: the texts of a package are those of its directory and of the directories above, in the module.
func TestAdd(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write := writer(t, top)
	write("LICENSE", "above the module")
	write("a/license.md", "of a\r\n")
	write("a/license.go", "package a")
	write("a/licensed", "not one")
	write("a/b/c/COPYING", "of c")
	write("a/b/d/LICENSE", "of another package")
	write("e/LICENCE-MIT", "of a\n")
	write("f/NOTICE", "no license")
	write("f/g/LICENSE", "of g only")

	var n notices
	for _, m := range []*module{
		{name: "a", dir: filepath.Join(top, "a"), packages: []string{filepath.Join(top, "a/b/c"), filepath.Join(top, "a")}},
		{name: "e", dir: filepath.Join(top, "e"), packages: []string{filepath.Join(top, "e")}},
	} {
		if err := n.add(m); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := n.String(), "of c (a: b/c/COPYING); of a (a: license.md, e: LICENCE-MIT)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f := filepath.Join(top, "f")
	err := n.add(&module{name: "f", dir: f, packages: []string{filepath.Join(f, "g"), f}})
	if err == nil || !strings.Contains(err.Error(), "f has no license for "+f) {
		t.Errorf("without a license: %v", err)
	}
}

// TestAddScripts: the notices of the scripts that are in a module are added, and those must be the same.
func TestAddScripts(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write := writer(t, top)
	compressed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	for _, name := range []string{"one", "two"} {
		write("npm/"+name+".js", "script "+name)
		write("npm/"+name+".js.LICENSE.txt", "notices of "+name)
	}
	write("npm/three.js", "it has no notices")
	write("npm/package.json", `{"name": "ui", "version": "1.2.3"}`)
	write("npm/LICENSE", "of ui")
	npm, static := filepath.Join(top, "npm"), filepath.Join(top, "go/static")
	modules := []*module{{name: "m", dir: filepath.Join(top, "go"), packages: []string{static}}}

	if err := new(notices).addScripts(npm, modules); err == nil || !strings.Contains(err.Error(), "no module contains a script of npm's ui 1.2.3") {
		t.Errorf("no script: %v", err)
	}
	write("go/static/one.js.gz", compressed("script one"))
	var n notices
	if err := n.addScripts(npm, modules); err != nil {
		t.Fatal(err)
	}
	if got, want := n.String(), "of ui (npm's ui 1.2.3: LICENSE); notices of one (npm's ui 1.2.3: one.js.LICENSE.txt)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	write("go/static/two.js.gz", compressed("another version"))
	if err := n.addScripts(npm, modules); err == nil || !strings.Contains(err.Error(), "two.js of m is not that of ") {
		t.Errorf("another version: %v", err)
	}
}
