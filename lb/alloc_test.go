//go:build !race

package lb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocPick: a pick allocates nothing, whatever its answer. The race
// detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	square := func(drops []resource.Drop, limit uint32) *resource.Config {
		var ls []*resource.LocalityEndpoints
		for i := range 100 {
			ls = append(ls, locality(fmt.Sprint("z", i), 0, uint32(i+1), 100))
		}
		return config(drops, limit, ls...)
	}
	rare := []resource.Drop{{Category: "throttle", PerMillion: 1}, {Category: "shed", PerMillion: 1}}
	tests := []struct {
		name  string
		drops []resource.Drop
		limit uint32
		want  policy.Kind // 0 for a pick that is answered
	}{
		{"ok", rare, 1 << 20, 0},
		{"dropped", []resource.Drop{{Category: "all", PerMillion: 1_000_000}}, 1 << 20, policy.KindDropped},
		{"broken", rare, 0, policy.KindCircuitBroken},
	}
	for _, tt := range tests {
		c := newChannel(t, nil)
		offer(t, c, square(tt.drops, tt.limit))
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/hold=%t", tt.name, hold), func(t *testing.T) {
				call := newCall()
				call.Hold = hold
				got := testing.AllocsPerRun(2000, func() {
					err := c.Pick(call, time.Second)
					if err == nil {
						call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
					}
					r, refused := err.(*policy.Refusal) //nolint:errorlint // errors.As allocates
					switch {
					case refused && r.Kind == policy.KindDropped: // one in a million, where not all
					case tt.want == 0 && err != nil:
						t.Fatal(err)
					case tt.want != 0 && (!refused || r.Kind != tt.want):
						t.Fatalf("err %v, want a refusal of kind %d", err, tt.want)
					}
					call.Again()
				})
				if got != 0 {
					t.Errorf("%v allocations for each pick, want 0", got)
				}
			})
		}
	}
}

// TestAllocExclude: excluding endpoints, or all of a locality, allocates nothing.
func TestAllocExclude(t *testing.T) {
	ls := []*resource.LocalityEndpoints{locality("a", 0, 1, 2), locality("b", 0, 1, 2), locality("c", 0, 1, 2)}
	for name, exclude := range map[string][]string{
		"an endpoint": {"a-0:80"},
		"a locality":  {"a-0:80", "a-1:80"},
		"all but one": {"a-0:80", "a-1:80", "b-0:80", "b-1:80", "c-0:80"},
		"all":         {"a-0:80", "a-1:80", "b-0:80", "b-1:80", "c-0:80", "c-1:80"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t, nil)
			offer(t, c, config(nil, 1<<20, ls...))
			noError(t, c.Pick(newCall(), time.Minute))
			call := newCall()
			call.Exclude = exclude
			if got := testing.AllocsPerRun(2000, func() {
				_ = c.Pick(call, 0)
				call.Again()
			}); got != 0 {
				t.Errorf("%v allocations for each pick, want 0", got)
			}
		})
	}
}

// TestAllocPickFromALeaf: the policies of an aggregate above those of its leaf cost no
// allocation either.
func TestAllocPickFromALeaf(t *testing.T) {
	c := newChannel(t, nil)
	skipped := leaf("near", 1<<20, nil)
	skipped.Assignment = nil
	offer(t, c, aggregated(skipped, leaf("far", 1<<20, nil, locality("f", 0, 1, 100))))
	call := newCall()
	call.Hold = true
	got := testing.AllocsPerRun(2000, func() {
		noError(t, c.Pick(call, time.Second))
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
		call.Again()
	})
	if got != 0 {
		t.Errorf("%v allocations for each pick, want 0", got)
	}
}

// TestAllocRoutedPick: routes cost no allocation either, whatever comes of them.
func TestAllocRoutedPick(t *testing.T) {
	hashed := to("/", "a", "b")
	hashed.Match.Headers = []resource.HeaderMatch{{Name: "env", String: resource.StringMatch{Value: "prod"}}}
	hashed.Hash = []resource.HashPolicy{{Header: "user"}}
	for name, tt := range map[string]struct {
		config *resource.Config
		fails  bool
	}{
		"ok":          {routed(to("/b", "b"), hashed), false},
		"random hash": {routed(to("/b", "b"), to("/", "a")), false},
		"no route":    {routed(to("/b", "b")), true},
		"unsupported": {routed(to("/", "!redirect")), true},
		"unusable":    {broken("deleted"), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChannel(t, nil)
			offer(t, c, tt.config)
			call := newCall()
			call.Path = "/a"
			call.Headers = []resource.Header{{Name: "user", Value: "ann"}, {Name: "env", Value: "prod"}}
			got := testing.AllocsPerRun(2000, func() {
				if err := c.Pick(call, time.Second); (err != nil) != tt.fails {
					t.Fatal(err)
				}
				call.Again()
			})
			if got != 0 {
				t.Errorf("%v allocations for each pick, want 0", got)
			}
		})
	}
}
