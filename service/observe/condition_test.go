package observe

import (
	"strings"
	"testing"
)

// A text is cut between characters.
func TestShortened(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("x", maxConditionText), strings.Repeat("x", maxConditionText)},
		{strings.Repeat("x", maxConditionText+1), strings.Repeat("x", maxConditionText) + "…"},
		{strings.Repeat("x", maxConditionText-1) + "éé", strings.Repeat("x", maxConditionText-1) + "…"},
	} {
		if got := shortened(c.text); got != c.want {
			t.Errorf("%d bytes: %q", len(c.text), got)
		}
	}
}
