package parity_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// difference is a row of the table "Differences" in docs/parity.md. grpc and lbd return
// what that side does, grpcDoes and lbdDoes what is expected.
type difference struct {
	row               string // the row's first cell
	grpc, lbd         func(t *testing.T) string
	grpcDoes, lbdDoes string
}

// differences lists every row, in the order of the document.
var differences = slices.Concat(targetDifferences, pickFirstDifferences, securityDifferences, registryDifferences, []difference{dialsDifference}, policyDifferences, outlierDifferences, aggregateDifferences)

// TestDifferences fails if a listed difference no longer exists: delete its row then.
// TestParity and TestTargets find differences that are not listed.
func TestDifferences(t *testing.T) {
	for _, d := range differences {
		t.Run(d.row, func(t *testing.T) {
			if d.grpcDoes == d.lbdDoes {
				t.Fatalf("both sides are expected to do the same: %s", d.lbdDoes)
			}
			side := func(name string, see func(*testing.T) string, want string) {
				t.Run(name, func(t *testing.T) {
					if got := see(t); got != want {
						t.Errorf("does %q, want %q", got, want)
					}
				})
			}
			side("grpc-go", d.grpc, d.grpcDoes)
			side("lbd", d.lbd, d.lbdDoes)
		})
	}
}

// TestDifferencesAreListed compares the rows of docs/parity.md with the tests.
func TestDifferencesAreListed(t *testing.T) {
	_, section, _ := strings.Cut(read(t, filepath.Join(root, "docs/parity.md")), "\n## Differences\n")
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

// byPolicy is a difference in what a policy of each side does.
func byPolicy[G, L policySide](row, grpcDoes, lbdDoes string, grpc func(*testing.T) G, lbd func(*testing.T) L, see func(*testing.T, policySide) string) difference {
	return difference{
		row: row, grpcDoes: grpcDoes, lbdDoes: lbdDoes,
		grpc: inBubble(func(t *testing.T) string { return see(t, grpc(t)) }),
		lbd:  inBubble(func(t *testing.T) string { return see(t, lbd(t)) }),
	}
}

// inBubble runs see in a synctest bubble.
func inBubble(see func(t *testing.T) string) func(t *testing.T) string {
	return func(t *testing.T) (saw string) {
		synctest.Test(t, func(t *testing.T) { saw = see(t) })
		return saw
	}
}

// grpcSource returns a file of grpc-go's source, with single spaces. It is for differences
// that only a rare draw would show.
func grpcSource(t *testing.T, path string) string {
	t.Helper()
	return strings.Join(strings.Fields(read(t, filepath.Join(grpcDir(t), path))), " ")
}
