package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// The table of attacks names tests that exist: Go tests by their names, tests of web pages
// by the beginning of their titles.
func TestAttacksHaveTests(t *testing.T) { haveTests(t, "docs/threat-model.md", "Attacks", 3, 20) }

// The table of guarantees of a fleet names tests that exist.
func TestGuaranteesHaveTests(t *testing.T) { haveTests(t, "docs/fleet.md", "Guarantees", 2, 10) }

// haveTests checks that the last of the columns of a section's table names tests that exist, in at
// least some rows.
func haveTests(t *testing.T, page, section string, columns, least int) {
	t.Helper()
	var tests strings.Builder
	for _, file := range files(t, "", ".go", ".ts") {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".test.ts") {
			tests.WriteString(read(t, file))
		}
	}
	_, table, _ := strings.Cut(read(t, page), "\n## "+section+"\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows, named := 0, regexp.MustCompile("`(Test\\w+|make [a-z-]+)`|\"([^\"]+)\"")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != columns || cells[columns-1] == "test |" || cells[columns-1] == "--- |" {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(cells[columns-1], -1)
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
	if rows < least {
		t.Errorf("only %d rows", rows)
	}
}
