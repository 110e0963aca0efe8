// Command refcycle prints, for each package, the largest cycle of references between its files, and
// fails if one has more files than -max.
//
// File A refers to file B of the same package if A names something that B declares: a constant,
// variable, function or type of the package, a method, or a field of a struct. Test files, and files
// that declare nothing, are not counted. A cycle is a strongly connected component of this graph: a
// set of files each of which leads to each other one, so that none of them can be understood, or moved
// to a package of its own, without the rest.
//
//	refcycle [-C dir] [-max 8] [-allow PACKAGE=FILES]... [-v] PATTERN...
//
// -allow names a package with a larger cycle, and its present size: the cycle may shrink, but not grow.
// When it has shrunk, the output says which number to write instead. PACKAGE is an import path, or the
// end of one that follows a slash.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "refcycle:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("refcycle", flag.ContinueOnError)
	dir := flags.String("C", ".", "directory in which the patterns are resolved")
	limit := flags.Int("max", 8, "largest cycle, in files, that a package may have")
	verbose := flags.Bool("v", false, "list the files of each cycle that is larger than -max")
	allow := allowances{}
	flags.Var(allow, "allow", "PACKAGE=FILES: present size of a cycle that is larger than -max (repeatable)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pkgs, err := load(*dir, flags.Args())
	if err != nil {
		return err
	}
	var problems []error
	for _, p := range pkgs {
		g := references(p)
		if len(g) == 0 {
			continue
		}
		cycle := g.largestCycle()
		allowed := allow.take(p.PkgPath)
		verdict, ok := assess(len(cycle), *limit, allowed)
		if !ok {
			problems = append(problems, fmt.Errorf("%s%s", p.PkgPath, verdict))
			verdict = ""
		}
		fmt.Fprintf(out, "%4d of %3d files  %s%s\n", len(cycle), len(g), p.PkgPath, verdict)
		if *verbose && len(cycle) > *limit {
			fmt.Fprintf(out, "     %s\n", strings.Join(cycle, " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allow)) {
		problems = append(problems, fmt.Errorf("-allow %s: no such package", name))
	}
	return errors.Join(problems...)
}

// assess returns a remark on a cycle of size files, and whether it may be that large.
// allowed is 0 for a package without -allow.
func assess(size, limit, allowed int) (verdict string, ok bool) {
	switch {
	case size <= limit && allowed > 0:
		return fmt.Sprintf(": the cycle has shrunk to %d files: remove its -allow", size), true
	case size <= limit:
		return "", true
	case allowed == 0:
		return fmt.Sprintf(": %d files form one cycle of references, more than %d", size, limit), false
	case size > allowed:
		return fmt.Sprintf(": the cycle of references has grown from %d files to %d", allowed, size), false
	case size < allowed:
		return fmt.Sprintf(": the cycle has shrunk from %d files: lower its -allow to %d", allowed, size), true
	}
	return fmt.Sprintf(" (-allow %d)", allowed), true
}

// load returns the packages that match the patterns, in the order of their import paths.
func load(dir string, patterns []string) ([]*packages.Package, error) {
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedSyntax
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, patterns...)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, p := range pkgs {
		for _, e := range p.Errors {
			problems = append(problems, e)
		}
	}
	slices.SortFunc(pkgs, func(a, b *packages.Package) int { return strings.Compare(a.PkgPath, b.PkgPath) })
	return pkgs, errors.Join(problems...)
}

// allowances holds sizes by package, as -allow gives them.
type allowances map[string]int

func (a allowances) String() string { return "" }

// Set implements flag.Value.
func (a allowances) Set(text string) error {
	name, number, _ := strings.Cut(text, "=")
	size, err := strconv.Atoi(number)
	if name == "" || err != nil || size < 1 {
		return errors.New("want PACKAGE=FILES")
	}
	a[name] = size
	return nil
}

// take returns the allowance of the package path, 0 if it has none, and removes it.
func (a allowances) take(path string) int {
	for name, size := range a {
		if path == name || strings.HasSuffix(path, "/"+name) {
			delete(a, name)
			return size
		}
	}
	return 0
}
