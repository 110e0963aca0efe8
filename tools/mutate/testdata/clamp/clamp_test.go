package clamp

import "testing"

func TestClamp(t *testing.T) {
	if Clamp(5, 3) != 3 || Clamp(1, 3) != 1 {
		t.Error("not clamped")
	}
}
