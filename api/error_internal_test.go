package api

import (
	"strings"
	"testing"
)

// A code that is added without a description fails here.
func TestEveryCodeIsDescribed(t *testing.T) {
	for code, a := range answers {
		for _, words := range []string{a.means, a.fix} {
			if len(words) < 20 || !strings.HasSuffix(words, ".") {
				t.Errorf("GET /problems/%s says %q", code, words)
			}
		}
	}
}
