// Command mutate changes code at random, one small change at a time, and runs the tests of the changed
// package: a mutant that they do not fail for survives, and shows code that no test holds. It writes
// nothing to the tree: the go command gets the changed file as an overlay.
//
//	mutate [-C dir] [-n 30] [-seed N] [-timeout 1m] PATTERN...
//
// A mutant runs with the package's own tests and -short first. If it survives, the whole tests of the
// package follow, and then those of the packages of the same patterns that import it. The table says which
// of them killed it. A mutant that does not compile is replaced by another one, and one whose tests exceed
// the time limit is killed.
//
// A survivor is either equivalent to the code, or shows a missing test. Read its diff.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "C", ".", "directory in which the patterns are resolved")
	flag.IntVar(&o.n, "n", 30, "number of mutants")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the draw; 0 is a random one")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "time limit of one run of tests")
	flag.Parse()
	// A mutant may allocate without end: its process inherits the limit.
	memory := syscall.Rlimit{Cur: 16 << 30, Max: 16 << 30}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &memory); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: memory is not limited:", err)
	}
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	dir     string
	n       int
	seed    uint64
	timeout time.Duration
}

func run(o options, patterns []string, out io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	packages, err := list(o.dir, patterns)
	if err != nil {
		return err
	}
	var mutants []mutant
	for _, p := range packages {
		for _, file := range p.GoFiles {
			found, err := mutate(filepath.Join(p.Dir, file))
			if err != nil {
				return err
			}
			for _, m := range found {
				m.pkg = p
				mutants = append(mutants, m)
			}
		}
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	fmt.Fprintf(out, "seed %d: %d of %d possible mutants\n", o.seed, min(o.n, len(mutants)), len(mutants))
	rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	if err := baseline(o, mutants[:min(o.n, len(mutants))]); err != nil {
		return err
	}
	killed, survived := 0, 0
	for _, m := range mutants {
		if killed+survived == o.n {
			break
		}
		begin := time.Now()
		by, err := test(o, packages, m)
		if err != nil {
			return err
		}
		took := time.Since(begin).Round(100 * time.Millisecond)
		switch by {
		case notCompiled:
			continue
		case nobody:
			survived++
			fmt.Fprintf(out, "SURVIVED  %s (%v)\n", m.describe(o.dir), took)
		default:
			killed++
			fmt.Fprintf(out, "killed    %s (%v, %s)\n", m.describe(o.dir), took, by)
		}
	}
	fmt.Fprintf(out, "%d killed, %d survived\n", killed, survived)
	return nil
}

// baseline fails if tests fail without a change: they would kill every mutant.
func baseline(o options, drawn []mutant) error {
	var paths []string
	for _, m := range drawn {
		paths = append(paths, m.pkg.ImportPath)
	}
	slices.Sort(paths)
	if output, err := goTest(o, "", append([]string{"-short"}, slices.Compact(paths)...)...); err != nil {
		return fmt.Errorf("tests fail without a mutant: %w\n%s", err, output)
	}
	return nil
}

// describe returns where a mutant is, and its lines as a diff.
func (m mutant) describe(dir string) string {
	name, err := filepath.Rel(dir, m.file)
	if err != nil {
		name = m.file
	}
	before, after := m.lines()
	return fmt.Sprintf("%s:%d: %s\n\t- %s\n\t+ %s", name, m.line, m.what, before, cmp.Or(after, "(nothing)"))
}

// lines returns the code of the lines that differ, before and after, without indentation.
func (m mutant) lines() (before, after string) {
	first := strings.LastIndexByte(string(m.source[:m.from]), '\n') + 1
	last := m.to + strings.IndexByte(string(m.source[m.to:])+"\n", '\n')
	join := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return strings.TrimSpace(strings.Join(lines, " "))
	}
	return join(string(m.source[first:last])),
		join(string(m.source[first:m.from]) + m.text + string(m.source[m.to:last]))
}
