package user

import (
	"testing"

	"example.org/clamp"
)

func TestDouble(t *testing.T) {
	if clamp.Double(3) != 6 {
		t.Error("not doubled")
	}
}
