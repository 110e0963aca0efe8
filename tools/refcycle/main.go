// Command refcycle prints, for each package, the largest cycle of references between its files, and
// fails if one has more files than -max.
//
// File A refers to file B of the same package if A names something that B declares: a constant,
// variable, function or type of the package, a method, or a field of a struct. Test files, and files
// that declare nothing, are not counted. A cycle is a strongly connected component of this graph: a
// set of files each of which leads to each other one, so that none of them can be understood, or moved
// to a package of its own, without the rest.
//
//	refcycle [-C dir] [-max 8] [-v] PATTERN...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
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
		if len(cycle) <= *limit {
			continue
		}
		problems = append(problems, fmt.Errorf("%s: %d files form one cycle of references, more than %d", p.PkgPath, len(cycle), *limit))
		if *verbose {
			fmt.Fprintf(out, "     %s\n", strings.Join(cycle, " "))
		}
	}
	return errors.Join(problems...)
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
