// Command lines prints how many lines of Go code each package has, and how many of its tests, as a table.
// It counts the files that git knows in a directory. Production is what users run: folders that only
// develop, test, measure or use lbd are listed apart.
//
//	lines [-C dir]
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	dir := flag.String("C", ".", "directory of a git repository")
	flag.Parse()
	if err := run(*dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

// apart are the folders whose code is not production.
var apart = []string{"bench", "clients", "examples", "test", "tools"}

type count struct{ code, tests int }

func (c *count) add(o count) {
	c.code += o.code
	c.tests += o.tests
}

func run(dir string, out io.Writer) error {
	list := exec.CommandContext(context.Background(), "git", "ls-files", "-z", "*.go")
	list.Dir = dir
	files, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	packages := map[string]count{}
	for file := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		// A folder apart is one row.
		p, top := path.Dir(file), strings.SplitN(file, "/", 2)[0]
		if slices.Contains(apart, top) {
			p = top
		}
		c := packages[p]
		if lines := bytes.Count(content, []byte("\n")); strings.HasSuffix(file, "_test.go") {
			c.tests += lines
		} else {
			c.code += lines
		}
		packages[p] = c
	}
	return write(out, packages)
}

// write writes the packages with the most code first, then the sum, then what is apart.
func write(out io.Writer, packages map[string]count) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, c count) { fmt.Fprintf(w, "%d\t%d\t  %s\n", c.code, c.tests, name) }
	fmt.Fprint(w, "code\ttests\t\n")
	var production count
	names := slices.SortedFunc(maps.Keys(packages), func(a, b string) int {
		return cmp.Or(packages[b].code-packages[a].code, strings.Compare(a, b))
	})
	for _, name := range names {
		if !slices.Contains(apart, name) {
			production.add(packages[name])
			row(name, packages[name])
		}
	}
	row("production", production)
	for _, name := range names {
		if slices.Contains(apart, name) {
			row(name+" (not production)", packages[name])
		}
	}
	return w.Flush()
}
