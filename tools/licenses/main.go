// Command licenses prints the licenses and notices of the Go modules that a command contains on Linux, and
// of Go's standard library. It fails if one of them has none.
//
//	licenses [-C DIRECTORY] [-npm DIRECTORY] PACKAGE
//
// A module may contain scripts of an npm package without their notices. -npm is the directory of such a
// package: its scripts that have notices must be in a module, compressed by gzip.
//
// The build of the dashboard does the same for its npm packages.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("C", ".", "directory of the module of PACKAGE")
	npm := flag.String("npm", "", "directory of an npm package whose scripts are in a Go module")
	flag.Parse()
	if err := run(*dir, flag.Arg(0), *npm, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// run prints the licenses of a package. npm is empty for none.
func run(dir, pkg, npm string, out io.Writer) error {
	modules, err := modules(dir, pkg)
	if err != nil {
		return err
	}
	var found notices
	for _, m := range modules {
		if err := found.add(m); err != nil {
			return err
		}
	}
	if npm != "" {
		if err := found.addScripts(npm, modules); err != nil {
			return err
		}
	}
	return found.write(out)
}

// module is one that has packages in the command.
type module struct {
	name     string // with its version
	dir      string
	packages []string // directories
}

// goPackage is what go list says about a package.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// modules returns the standard library, and then the other modules in a command, sorted. The main module is
// not among them: it has a license of its own.
func modules(dir, pkg string) ([]*module, error) {
	packages, err := goList(dir, pkg)
	if err != nil {
		return nil, err
	}
	goroot, err := goCommand(dir, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules := []*module{{name: "Go's standard library", dir: strings.TrimSpace(string(goroot))}}
	for _, p := range packages {
		switch {
		case p.Standard:
			modules[0].packages = append(modules[0].packages, p.Dir)
		case p.Module == nil || p.Module.Main:
		default:
			i := slices.IndexFunc(modules, func(m *module) bool { return m.dir == p.Module.Dir })
			if i < 0 {
				i = len(modules)
				modules = append(modules, &module{name: p.Module.Path + " " + p.Module.Version, dir: p.Module.Dir})
			}
			modules[i].packages = append(modules[i].packages, p.Dir)
		}
	}
	slices.SortFunc(modules[1:], func(a, b *module) int { return strings.Compare(a.name, b.name) })
	return modules, nil
}

func goList(dir, pkg string) ([]goPackage, error) {
	list, err := goCommand(dir, "list", "-deps", "-json=Dir,Standard,Module", pkg)
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p goPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		}
		packages = append(packages, p)
	}
}

func goCommand(dir string, args ...string) ([]byte, error) {
	command := exec.Command("go", args...) //nolint:gosec,noctx // the arguments are those of this file and of the user
	command.Dir, command.Stderr = dir, os.Stderr
	command.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	return command.Output()
}

// notice is a text that must be part of each copy of some modules.
type notice struct {
	text string
	of   []string // modules and files
}

// notices are in the order in which they were found.
type notices []notice

// add adds the texts in the directories of the packages of a module, and in those above, up to that of
// the module. Each package must have a license in one of them.
func (n *notices) add(m *module) error {
	licensed := map[string]bool{} // of the directories seen
	var visit func(dir string) (bool, error)
	visit = func(dir string) (bool, error) {
		if !within(m.dir, dir) {
			return false, nil
		}
		if known, ok := licensed[dir]; ok {
			return known, nil
		}
		here, err := n.addDir(m, dir)
		if err != nil {
			return false, err
		}
		above, err := visit(filepath.Dir(dir))
		licensed[dir] = here || above
		return here || above, err
	}
	for _, dir := range m.packages {
		switch ok, err := visit(dir); {
		case err != nil:
			return fmt.Errorf("%s: %w", m.name, err)
		case !ok:
			return fmt.Errorf("%s has no license for %s", m.name, dir)
		}
	}
	return nil
}

// addDir adds the texts in a directory, and reports whether there is a license.
func (n *notices) addDir(m *module, dir string) (licensed bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		kind := files.FindStringSubmatch(e.Name())
		if kind == nil || !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		n.addText(string(text), m.name+": "+filepath.ToSlash(strings.TrimPrefix(path, m.dir+string(filepath.Separator))))
		licensed = licensed || kind[1] != ""
	}
	return licensed, nil
}

// addScripts adds the texts of an npm package, and those of its scripts that a module contains. At least one
// script with notices must be in a module, and each that is must be identical.
func (n *notices) addScripts(dir string, modules []*module) error {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return err
	}
	var npm struct{ Name, Version string }
	if err := json.Unmarshal(text, &npm); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	m := &module{name: "npm's " + npm.Name + " " + npm.Version, dir: dir, packages: []string{dir}}
	if err := n.add(m); err != nil {
		return err
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "*.js"))
	if err != nil {
		return err
	}
	found := false
	for _, script := range scripts {
		notices, err := os.ReadFile(script + ".LICENSE.txt")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		contained, err := isContained(script, modules)
		if err != nil {
			return err
		}
		if contained {
			n.addText(string(notices), m.name+": "+filepath.Base(script)+".LICENSE.txt")
		}
		found = found || contained
	}
	if !found {
		return fmt.Errorf("no module contains a script of %s", m.name)
	}
	return nil
}

// isContained reports whether modules contain a script, compressed. It returns an error if they contain
// another version of it.
func isContained(script string, modules []*module) (bool, error) {
	want, err := os.ReadFile(script)
	if err != nil {
		return false, err
	}
	found := false
	for _, m := range modules {
		for _, dir := range m.packages {
			f, err := os.Open(filepath.Join(dir, filepath.Base(script)+".gz"))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return false, err
			}
			got, err := decompress(f)
			if err != nil {
				return false, fmt.Errorf("%s: %w", f.Name(), err)
			}
			if !bytes.Equal(got, want) {
				return false, fmt.Errorf("%s of %s is not that of %s: another version of the npm package is needed",
					filepath.Base(script), m.name, script)
			}
			found = true
		}
	}
	return found, nil
}

func decompress(f io.ReadCloser) ([]byte, error) {
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// files are the names of licenses and of other texts.
var files = regexp.MustCompile(`(?i)^(?:(licen[cs]e|copying)|copyright|notice|patents)(?:[.-].*)?$`)

func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
}

func (n *notices) addText(text, of string) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	i := slices.IndexFunc(*n, func(other notice) bool { return other.text == text })
	if i < 0 {
		i = len(*n)
		*n = append(*n, notice{text: text})
	}
	(*n)[i].of = append((*n)[i].of, of)
}

func (n *notices) write(out io.Writer) error {
	line := strings.Repeat("=", 100)
	var b strings.Builder
	b.WriteString("lbd contains software of others. These are its licenses and notices, each below the modules and the\n" +
		"files in them that have this text. Those of the dashboard are in its assets/licenses-*.txt.\n")
	for _, one := range *n {
		b.WriteString("\n" + line + "\n" + strings.Join(one.of, "\n") + "\n" + line + "\n\n" + one.text + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
