package text_test

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// TestScannerDepth: what nests deeper would take a large stack.
func TestScannerDepth(t *testing.T) {
	for depth, want := range map[int]bool{text.MaxDepth: true, text.MaxDepth + 1: false} {
		s := text.Scan([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		for range depth {
			s.Begin('[')
			s.More(']')
		}
		for range depth - 1 {
			s.More(']')
		}
		if s.End() != want {
			t.Errorf("%d lists in lists: read is %v", depth, !want)
		}
	}
}
