//go:build !race

package work_test

import "testing"

// TestAlloc asserts what a row's work allocates. The race detector allocates by itself.
func TestAlloc(t *testing.T) {
	for name, most := range map[string]float64{
		"lbd-pick": 0, "lean-pick": 0, "lean-lease": 0, "lbd-lease": 0,
	} {
		t.Run(name, func(t *testing.T) {
			do := start(t, name).NewDo()
			if got := testing.AllocsPerRun(2000, func() {
				if err := do(); err != nil {
					t.Fatal(err)
				}
			}); got > most {
				t.Errorf("%v allocations, at most %v are expected", got, most)
			}
		})
	}
}
