// Command openapi generates the contract of lbd's HTTP API, openapi.yaml, from
// the comments of the handlers in api/. The same sources give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "the repository's root")
	out := flag.String("o", "openapi.yaml", "the file to write")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	doc, err := read(dir)
	if err != nil {
		return err
	}
	if err := nameOperations(doc, filepath.Join(dir, sources[0])); err != nil {
		return err
	}
	if err := complete(doc); err != nil {
		return err
	}
	text, err := write(doc)
	if err != nil {
		return err
	}
	return os.WriteFile(out, text, 0o644) //nolint:gosec // the contract is public
}
