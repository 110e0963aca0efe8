// Command refcycle prints, for each package, the largest cycle of references between its files, and
// fails if one has more files than -max, or more than half of the files of its package. A package of at
// most -small files may be one cycle: it is read as a whole.
//
// File A refers to file B of the same package if A names something that B declares: a constant,
// variable, function or type of the package, a method, or a field of a struct. Test files, and files
// that declare nothing, are not counted. A cycle is a strongly connected component of this graph: a
// set of files each of which leads to each other one, so that none of them can be understood, or moved
// to a package of its own, without the rest.
//
//	refcycle [-C dir] [-max 8] [-small 4] [-except PATH=SIZE,...] [-v] PATTERN...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
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
	small := flags.Int("small", 4, "size in files up to which a package may have a cycle of more than half of its files")
	except := exceptions{}
	flags.Var(except, "except", "cycles of more than half of a package: PATH=SIZE,..., by the end of the package's path")
	verbose := flags.Bool("v", false, "list the files of each cycle that is too large")
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
		fmt.Fprintf(out, "%4d of %3d files  %s\n", len(cycle), len(g), p.PkgPath)
		size, excepted := except.take(p.PkgPath)
		half := len(g) > *small && len(cycle) > len(g)/2
		switch {
		case len(cycle) > *limit:
			problems = append(problems, fmt.Errorf("%s: %d files form one cycle of references, more than %d", p.PkgPath, len(cycle), *limit))
		case excepted && (!half || len(cycle) < size):
			problems = append(problems, fmt.Errorf("%s: its exception of %d files is too large for a cycle of %d", p.PkgPath, size, len(cycle)))
			continue
		case half && len(cycle) > size:
			problems = append(problems, fmt.Errorf("%s: %d of %d files form one cycle of references, more than half", p.PkgPath, len(cycle), len(g)))
		default:
			continue
		}
		if *verbose {
			fmt.Fprintf(out, "     %s\n", strings.Join(cycle, " "))
		}
	}
	for path := range except {
		problems = append(problems, fmt.Errorf("%s: an exception of no package", path))
	}
	return errors.Join(problems...)
}

// exceptions holds the permitted size of a cycle by the end of a package's path.
type exceptions map[string]int

func (e exceptions) String() string { return "" }

// Set reads a list as in the flag.
func (e exceptions) Set(list string) error {
	for entry := range strings.SplitSeq(list, ",") {
		path, size, _ := strings.Cut(entry, "=")
		n, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("%q: want PATH=SIZE", entry)
		}
		e[path] = n
	}
	return nil
}

// take returns the exception of a package, and removes it.
func (e exceptions) take(path string) (size int, ok bool) {
	for end, n := range e {
		if strings.HasSuffix(path, "/"+end) {
			delete(e, end)
			return n, true
		}
	}
	return 0, false
}

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
