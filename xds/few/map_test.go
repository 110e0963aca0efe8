package few_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/few"
)

// TestMap compares a Map with a Go map, below and above the length of the list.
func TestMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got few.Map[int, string]
		want := map[int]string{}
		highest := rapid.SampledFrom([]int{2, 7, 8, 20}).Draw(t, "highest")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, highest).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				got.Delete(k)
				delete(want, k)
			} else {
				v := rapid.StringN(0, 1, -1).Draw(t, "value")
				got.Set(k, v)
				want[k] = v
			}
			if got.Len() != len(want) || !maps.Equal(maps.Collect(got.All()), want) {
				t.Fatalf("got %v, %d entries; want %v", maps.Collect(got.All()), got.Len(), want)
			}
			for k := range highest + 1 {
				v, found := got.Find(k)
				if _, has := want[k]; got.Get(k) != want[k] || v != want[k] || found != has {
					t.Fatalf("%d is %q, %q, %v; want %q, %v", k, got.Get(k), v, found, want[k], has)
				}
			}
			same := few.Of(want)
			if !few.Equal(&got, &same) {
				t.Fatalf("%v differs from %v", maps.Collect(got.All()), want)
			}
			for k := range want {
				for name, change := range map[string]func(*few.Map[int, string]){
					"value": func(m *few.Map[int, string]) { m.Set(k, want[k]+"x") },
					"key":   func(m *few.Map[int, string]) { m.Delete(k); m.Set(-1, want[k]) },
					"less":  func(m *few.Map[int, string]) { m.Delete(k) },
				} {
					other := few.Of(want)
					if change(&other); few.Equal(&got, &other) || few.Equal(&other, &got) {
						t.Fatalf("another %s: %v equals %v", name, maps.Collect(other.All()), want)
					}
				}
				break
			}
		}
		for k := range got.All() {
			if _, ok := want[k]; !ok {
				t.Fatal(k)
			}
			break // an iteration may end early
		}
	})
}

func TestNilMap(t *testing.T) {
	var m *few.Map[string, int]
	if m.Get("a") != 0 || m.Len() != 0 || len(maps.Collect(m.All())) != 0 {
		t.Error("a nil Map has entries")
	}
}
