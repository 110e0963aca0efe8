package overload

import (
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	for _, tt := range []struct {
		name        string
		usable, all int
		fixed       bool
		want        int
	}{
		{"one CPU", 1, 1, false, 4},
		{"two CPUs", 2, 2, false, 4},
		{"many CPUs", 32, 32, false, 34},
		{"a quota of the container", 2, 32, false, 2},
		{"GOMAXPROCS is set", 2, 2, true, 2},
		{"GOMAXPROCS is set to more", 8, 2, true, 8},
	} {
		if got := processors(tt.usable, tt.all, tt.fixed); got != tt.want {
			t.Errorf("%s: %d processors, want %d", tt.name, got, tt.want)
		}
	}
}

// TestAddProcessors: what depends on the number of CPUs does not change with the processors.
func TestAddProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	turns := NewTurns(0).Len()
	t.Setenv("GOMAXPROCS", "")
	if AddProcessors(); runtime.GOMAXPROCS(0) != processors(before, runtime.NumCPU(), false) {
		t.Errorf("%d processors for %d CPUs", runtime.GOMAXPROCS(0), before)
	}
	if CPUs() != before || NewTurns(0).Len() != turns {
		t.Errorf("%d CPUs, %d turns; want %d and %d", CPUs(), NewTurns(0).Len(), before, turns)
	}
	runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "1")
	if AddProcessors(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("%d processors, although GOMAXPROCS is set", runtime.GOMAXPROCS(0))
	}
}
