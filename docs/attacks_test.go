package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// The table of attacks names tests that exist: Go tests by their names, tests of web pages
// by the beginning of their titles.
func TestAttacksHaveTests(t *testing.T) {
	var tests strings.Builder
	for _, file := range files(t, "", ".go", ".ts") {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".test.ts") {
			tests.WriteString(read(t, file))
		}
	}
	_, table, _ := strings.Cut(read(t, "docs/security.md"), "\n## Attacks\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows, named := 0, regexp.MustCompile("`(Test\\w+|make [a-z-]+)`|\"([^\"]+)\"")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || cells[2] == "test |" || cells[2] == "--- |" {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, f := range found {
			switch name, title := f[1], f[2]; {
			case strings.HasPrefix(name, "make "): // another test checks targets of the Makefile
			case name != "" && !strings.Contains(tests.String(), "\nfunc "+name+"("):
				t.Errorf("%s does not exist", name)
			case title != "" && !strings.Contains(tests.String(), "test(\""+title) && !strings.Contains(tests.String(), "test(`"+title):
				t.Errorf("%q does not exist", title)
			}
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows", rows)
	}
}
