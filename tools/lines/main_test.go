package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	dir := t.TempDir()
	for file, lines := range map[string]int{
		"main.go": 3, "lb/a.go": 10, "lb/b.go": 5, "lb/a_test.go": 7, "lb/x/x.go": 20,
		"tools/t/t.go": 100, "tools/u/u_test.go": 50, "lb/ignored.txt": 9,
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Repeat("\n", lines)), 0o600))
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		must(t, exec.Command("git", append([]string{"-C", dir}, args...)...).Run())
	}
	must(t, os.WriteFile(filepath.Join(dir, "lb/untracked.go"), []byte("\n"), 0o600))
	var out strings.Builder
	must(t, run(dir, &out))
	want := `
  code  tests
    20      0  lb/x
    15      7  lb
     3      0  .
    38      7  production
   100     50  tools (not production)
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
