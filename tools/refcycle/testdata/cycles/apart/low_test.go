package apart

import "testing"

// Only this test file closes a cycle.
func TestLow(*testing.T) { _ = High }

func used() {}
