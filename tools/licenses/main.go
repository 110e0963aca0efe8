// Command licenses prints the licenses and notices of the Go modules that a command contains, and of Go's
// standard library. It fails if one of them has no license.
//
//	licenses [-C DIRECTORY] PACKAGE
//
// The build of the dashboard does the same for its npm packages.
package main

import (
	"bytes"
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
	flag.Parse()
	if err := run(*dir, flag.Arg(0), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(dir, pkg string, out io.Writer) error {
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
// the module. At least one must be a license.
func (n *notices) add(m *module) error {
	seen, licensed := map[string]bool{}, false
	for _, dir := range m.packages {
		for ; !seen[dir] && within(m.dir, dir); dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, err := os.ReadDir(dir)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			for _, e := range entries {
				kind := files.FindStringSubmatch(e.Name())
				if kind == nil || !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" {
					continue
				}
				path := filepath.Join(dir, e.Name())
				text, err := os.ReadFile(path)
				if err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				n.addText(string(text), m.name+": "+filepath.ToSlash(strings.TrimPrefix(path, m.dir+string(filepath.Separator))))
				licensed = licensed || kind[1] != ""
			}
		}
	}
	if !licensed {
		return fmt.Errorf("%s has no license in %s", m.name, m.dir)
	}
	return nil
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
