package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// weighted is a rotation of endpoints e0, e1, … with weights.
type weighted []float64

var endpoints = func() (out [60]*resource.Endpoint) {
	for i := range out {
		out[i] = &resource.Endpoint{Addresses: []string{fmt.Sprintf("e%d", i)}}
	}
	return out
}()

func (w weighted) Len() int                          { return len(w) }
func (w weighted) Weight(i int) float64              { return w[i] }
func (w weighted) Endpoint(i int) *resource.Endpoint { return endpoints[i] }

func (w weighted) At(draw uint64) int {
	var sum float64
	for _, x := range w {
		sum += x
	}
	left := policy.UnitOf(draw) * sum
	for i, x := range w {
		if left -= x; left < 0 {
			return i
		}
	}
	return len(w) - 1
}

// TestRedraw: the endpoints that remain share the picks by weight, whether few or
// most are excluded.
func TestRedraw(t *testing.T) {
	even := make(weighted, 60)
	for i := range even {
		even[i] = 1
	}
	allBut := func(n int, kept ...int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("e%d", i))
		}
		for _, k := range kept {
			out[k] = "nothing"
		}
		return out
	}
	tests := []struct {
		name     string
		rotation weighted
		exclude  []string
		want     map[int]float64 // the share of each endpoint that is reached
	}{
		{"one of four", weighted{1, 1, 1, 1}, []string{"e1"}, map[int]float64{0: 1. / 3, 2: 1. / 3, 3: 1. / 3}},
		{"by weight", weighted{5, 4, 1, 2}, []string{"e1"}, map[int]float64{0: .625, 2: .125, 3: .25}},
		{"the heavy one", weighted{1e9, 3, 1}, []string{"e0"}, map[int]float64{1: .75, 2: .25}},
		{"all but one", weighted{1, 1, 1}, allBut(3, 2), map[int]float64{2: 1}},
		{"59 of 60", even, allBut(60, 30), map[int]float64{30: 1}},
		{"58 of 60", even, allBut(60, 0, 59), map[int]float64{0: .5, 59: .5}},
		{"all", weighted{1, 1, 1}, allBut(3), map[int]float64{-1: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(1, 2)).Uint64
			call := &policy.Call{Exclude: tt.exclude}
			const n = 2000
			got := make(map[int]int)
			for range n {
				got[call.Redraw(tt.rotation, draw)]++
			}
			for i, share := range tt.want {
				if d := float64(got[i])/n - share; d < -.03 || d > .03 {
					t.Errorf("share of %d is %.3f, want %.3f", i, float64(got[i])/n, share)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("reached %v, want %v", got, tt.want)
			}
		})
	}
}

// TestRedrawIsBounded: the number of draws does not depend on chance.
func TestRedrawIsBounded(t *testing.T) {
	for _, value := range []uint64{0, 1 << 62, 1<<64 - 1} {
		draws := 0
		next := lbtest.Draws(value)
		call := &policy.Call{Exclude: []string{"e0", "e1", "e3"}}
		if i := call.Redraw(weighted{1, 1, 1, 1}, func() uint64 { draws++; return next() }); i != 2 || draws > 9 {
			t.Errorf("draw %#x: endpoint %d after %d draws, want 2 after at most 9", value, i, draws)
		}
		if n := call.CountExcluded(weighted{1, 1, 1, 1}); n != 3 {
			t.Errorf("%d are excluded, want 3", n)
		}
	}
}
