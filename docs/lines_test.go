package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the length of a line of prose, in characters.
const maxColumns = 120

var url = regexp.MustCompile(`https?://\S+`)

// longLines returns the numbers of the lines of a page that are longer than
// maxColumns. Not counted are rows of tables, output of commands (fences of
// console and text), and lines that are long because of a URL.
func longLines(text string) []int {
	var found []int
	fence := ""
	for i, l := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(l)
		if language, ok := strings.CutPrefix(trimmed, "```"); ok {
			if fence != "" {
				language = ""
			} else if language == "" {
				language = "plain"
			}
			fence = language
			continue
		}
		command := strings.HasPrefix(trimmed, "$ ") || strings.HasPrefix(trimmed, "> ")
		output := fence == "text" || fence == "console" && !command
		row := fence == "" && strings.HasPrefix(trimmed, "|")
		if !output && !row && utf8.RuneCountInString(url.ReplaceAllString(l, "")) > maxColumns {
			found = append(found, i+1)
		}
	}
	return found
}

func TestLinesAreShort(t *testing.T) {
	for _, file := range files(t, "", ".md") {
		for _, n := range longLines(read(t, file)) {
			t.Errorf("%s:%d is longer than %d columns", file, n, maxColumns)
		}
	}
}

func TestLongLinesAreSeen(t *testing.T) {
	long := strings.Repeat("x", maxColumns+1)
	text := fmt.Sprintf("%s\n| %[1]s |\n```console\n$ %[1]s\n%[1]s\n```\n```sh\n%[1]s\n```\n[a](https://example.org/%[1]s)\n%s\n",
		long, strings.Repeat("é", maxColumns))
	if got := longLines(text); !slices.Equal(got, []int{1, 4, 8}) {
		t.Errorf("long lines are %v", got)
	}
}

// TestPagesAreShort: a page has at most 2,500 words, unless it is a reference in which a reader
// looks up one entry.
func TestPagesAreShort(t *testing.T) {
	references := []string{"docs/benchmarks.md", "docs/ctl.md", "docs/fields.md", "docs/parity.md", "docs/runbook.md"}
	for _, file := range files(t, "docs", ".md") {
		if n := len(strings.Fields(read(t, file))); n > 2500 && !slices.Contains(references, file) {
			t.Errorf("%s has %d words", file, n)
		}
	}
}
