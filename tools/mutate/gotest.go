package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// pkg is a package, as the go command lists it.
type pkg struct {
	ImportPath, Dir                             string
	GoFiles, TestGoFiles, XTestGoFiles, Imports []string
	TestImports, XTestImports                   []string
}

func list(dir string, patterns []string) ([]*pkg, error) {
	cmd := goCommand(dir, append([]string{"list", "-json"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// Besides the tests that killed a mutant.
const (
	notCompiled = "not compiled"
	nobody      = "nobody"
)

// test returns which tests kill a mutant.
func test(o options, packages []*pkg, m mutant) (by string, err error) {
	overlay, remove, err := write(m)
	if err != nil {
		return "", err
	}
	defer remove()
	if goCommand(o.dir, "build", "-overlay", overlay, m.pkg.ImportPath).Run() != nil {
		return notCompiled, nil
	}
	rounds := []struct {
		by   string
		args []string
	}{
		{"own tests", []string{"-short", m.pkg.ImportPath}},
		{"own long tests", []string{m.pkg.ImportPath}},
		{"tests of importers", importers(packages, m.pkg)},
	}
	for _, r := range rounds {
		if len(r.args) == 0 {
			continue
		}
		if _, err := goTest(o, overlay, r.args...); err != nil {
			return r.by, nil
		}
	}
	return nobody, nil
}

// write writes a mutant, and the overlay that puts it into the place of its file.
func write(m mutant) (overlay string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) } //nolint:errcheck // a temporary directory
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{m.file: changed}})
	if err == nil {
		err = errors.Join(os.WriteFile(changed, m.code(), 0o600), os.WriteFile(overlay, content, 0o600))
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return overlay, remove, nil
}

// goTest runs tests, without vet: it would find some mutants, and only tests are asked.
func goTest(o options, overlay string, args ...string) (output []byte, err error) {
	all := []string{"test", "-vet=off", "-failfast", "-timeout", o.timeout.String(), "-overlay", overlay}
	return goCommand(o.dir, append(all, args...)...).CombinedOutput()
}

func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "go", args...) //nolint:gosec // the arguments are those of the developer
	cmd.Dir = dir
	return cmd
}

// importers returns the paths of the packages whose code or tests import a package.
func importers(packages []*pkg, p *pkg) []string {
	var found []string
	for _, q := range packages {
		tests := len(q.TestGoFiles)+len(q.XTestGoFiles) > 0
		if q != p && tests && slices.Contains(slices.Concat(q.Imports, q.TestImports, q.XTestImports), p.ImportPath) {
			found = append(found, q.ImportPath)
		}
	}
	return found
}
