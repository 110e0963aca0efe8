package parity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// difference is a row of the table "Differences" in docs/parity.md. see brings the
// difference about on one side and returns what that side does, in a few words.
type difference struct {
	row       string // the row's first cell
	grpc, lbd func(t *testing.T) string

	// What each side is expected to do.
	grpcDoes, lbdDoes string
}

// differences lists every row, in the order of the document.
var differences = slices.Concat(targetDifferences, pickFirstDifferences, securityDifferences, registryDifferences, []difference{dialsDifference}, policyDifferences, outlierDifferences, aggregateDifferences)

// TestDifferences fails where a listed difference is no longer there: the row is
// then to be deleted. Differences that are not listed are found by TestParity and
// TestTargets.
func TestDifferences(t *testing.T) {
	for _, d := range differences {
		t.Run(d.row, func(t *testing.T) {
			if d.grpcDoes == d.lbdDoes {
				t.Fatalf("both sides are expected to do the same: %s", d.lbdDoes)
			}
			t.Run("grpc-go", func(t *testing.T) { does(t, d.grpc, d.grpcDoes) })
			t.Run("lbd", func(t *testing.T) { does(t, d.lbd, d.lbdDoes) })
		})
	}
}

func does(t *testing.T, see func(*testing.T) string, want string) {
	t.Helper()
	if got := see(t); got != want {
		t.Errorf("does %q, want %q", got, want)
	}
}

// TestDifferencesAreListed compares the rows of docs/parity.md with the tests.
func TestDifferencesAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/parity.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Differences\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tested := make(map[string]bool)
	for _, d := range differences {
		tested[d.row] = true
	}
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(line, " | ")
		row := strings.TrimPrefix(cells[0], "| ")
		if len(cells) != 4 || row == "what" || row == "---" {
			continue
		}
		if !tested[row] {
			t.Errorf("%q has no test", row)
		}
		delete(tested, row)
	}
	for row := range tested {
		t.Errorf("%q has a test, and no row", row)
	}
}

// inBubble lets see run in a synctest bubble.
func inBubble(see func(t *testing.T) string) func(t *testing.T) string {
	return func(t *testing.T) (saw string) {
		synctest.Test(t, func(t *testing.T) { saw = see(t) })
		return saw
	}
}

// grpcSource returns a file of grpc-go's source. It is for differences that only a
// rare draw would show.
func grpcSource(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), path))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\s+`).ReplaceAllString(string(text), " ")
}
