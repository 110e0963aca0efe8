package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const walkthrough = "docs/concepts/walkthrough.md"

// declared returns the names that a Go file declares: functions, methods, types,
// constants and variables.
func declared(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	noError(t, err)
	names := make(map[string]bool)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return names
}

// TestWalkthroughIsTheCode: each step is a package of its own, and links to files of
// that package, which declare the names shown.
func TestWalkthroughIsTheCode(t *testing.T) {
	step := regexp.MustCompile(`(?ms)^\d+\. \*\*([a-z/]+)\*\*,? (.*?)(?:^\n|\z)`)
	code := regexp.MustCompile("\\[`(\\w+)`\\]\\(([^)]+)\\)")
	text := regexp.MustCompile(`(?m)^(\d+\. )`).ReplaceAllString(read(t, walkthrough)+"\n", "\n$1")
	seen := make(map[string]bool)
	links := 0
	for _, s := range step.FindAllStringSubmatch(text, -1) {
		name := s[1]
		if seen[name] {
			t.Errorf("%s has two steps", name)
		}
		seen[name] = true
		for _, l := range code.FindAllStringSubmatch(s[2], -1) {
			links++
			file := filepath.Join(filepath.Dir(walkthrough), l[2])
			if filepath.Dir(file) != name {
				t.Errorf("%s: %s is in %s", name, l[1], filepath.Dir(file))
			} else if !declared(t, file)[l[1]] {
				t.Errorf("%s does not declare %s", file, l[1])
			}
		}
	}
	if all := len(code.FindAllString(read(t, walkthrough), -1)); links != all || len(seen) != strings.Count(read(t, walkthrough), ". **") {
		t.Errorf("%d of %d names are in the %d steps", links, all, len(seen))
	}
}
