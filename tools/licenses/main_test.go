package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: each module in lbd has its license there, and a text that many have is there once.
func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run("../..", "./cmd/lbd", &out); err != nil {
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

// TestAdd: the texts of a package are those of its directory and of the directories above, in the module.
func TestAdd(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("LICENSE", "above the module")
	write("a/license.md", "of a\r\n")
	write("a/license.go", "package a")
	write("a/licensed", "not one")
	write("a/b/c/COPYING", "of c")
	write("a/b/d/LICENSE", "of another package")
	write("e/LICENCE-MIT", "of a\n")
	write("f/NOTICE", "no license")

	var n notices
	for _, m := range []*module{
		{name: "a", dir: filepath.Join(top, "a"), packages: []string{filepath.Join(top, "a/b/c"), filepath.Join(top, "a")}},
		{name: "e", dir: filepath.Join(top, "e"), packages: []string{filepath.Join(top, "e")}},
	} {
		if err := n.add(m); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, one := range n {
		got = append(got, one.text+" ("+strings.Join(one.of, ", ")+")")
	}
	if got, want := strings.Join(got, "; "), "of c (a: b/c/COPYING); of a (a: license.md, e: LICENCE-MIT)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	err := n.add(&module{name: "f", dir: filepath.Join(top, "f"), packages: []string{filepath.Join(top, "f")}})
	if err == nil || !strings.Contains(err.Error(), "f has no license") {
		t.Errorf("without a license: %v", err)
	}
}
