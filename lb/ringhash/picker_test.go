package ringhash_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestTrace: the steps of a pick. The ring is b a c d; b has failed, a is
// READY, c is IDLE and d connects.
func TestTrace(t *testing.T) {
	tests := []struct {
		name    string
		hash    string // falls on; without hash a draw does
		drawn   bool
		exclude string
		want    string
	}{
		{"at once", "a", false, "", "hash on 1 of 4, walked 0: a READY, seat 0 of 4"},
		{"past a failed one", "b", false, "", "hash on 0 of 4, walked 1: a READY, seat 0 of 4"},
		{"drawn", "b", true, "", "draw on 0 of 4, walked 1: a READY, seat 0 of 4"},
		{"drawn, past all that are not READY", "c", true, "", "draw on 2 of 4, walked 3: a READY, seat 0 of 4"},
		{"waits for one that is IDLE", "c", false, "", "hash on 2 of 4, walked 0: c IDLE, seat 2 of 4; queue"},
		{"waits for one that connects", "d", false, "", "hash on 3 of 4, walked 0: d CONNECTING, seat 3 of 4; queue"},
		{"drawn, waits for the first", "b", true, "a", "draw on 0 of 4, walked 2: c IDLE, seat 2 of 4, without 1; queue"},
		{"excluded", "a", false, "a c", "hash on 1 of 4, walked 2: d CONNECTING, seat 3 of 4, without 2; queue"},
		{"nothing left", "a", false, "a b c d", "hash on 1 of 4, walked 4: none, seat -1 of 4, without 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, config("a", "b", "c", "d"), says("d", connecting), says("b", failure), says("a", ready))
			hash := fallsOn(tt.hash)
			s.Next = lbtest.Draws(hash)
			call := &policy.Call{Hash: hash, HasHash: !tt.drawn, Exclude: strings.Fields(tt.exclude), Trace: new(policy.Trace)}
			_, _ = s.Pick(call)
			if got := describe(t, call, hash); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	s := newStage(t, config("a", "b"), together(failure, "a", "b"))
	call := &policy.Call{Hash: fallsOn("a"), HasHash: true, Trace: new(policy.Trace)}
	_, _ = s.Pick(call)
	if got, want := describe(t, call, call.Hash), "hash on 1 of 2, walked 0: a TRANSIENT_FAILURE, seat 0 of 2; failure a refused"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// describe describes the steps.
func describe(t *testing.T, call *policy.Call, hash uint64) string {
	t.Helper()
	e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0])
	walk := lbtest.As[*ringhash.RingWalk](t, e.Detail)
	if e.Policy != ringhash.Name || walk.Hash != fmt.Sprintf("%016x", hash) {
		t.Errorf("trace %+v", e)
	}
	kind, what := "hash", "none"
	if walk.Drawn {
		kind = "draw"
	}
	if e.Endpoint != nil {
		what = fmt.Sprintf("%s %s", e.Endpoint.Addresses[0], walk.State)
	}
	var out strings.Builder
	out.WriteString(fmt.Sprintf("%s on %d of %d, walked %d: %s, seat %d of %d", kind, walk.Entry, walk.Size, walk.Walked, what, e.Index, e.Rotation))
	if e.Excluded > 0 {
		out.WriteString(fmt.Sprintf(", without %d", e.Excluded))
	}
	for _, step := range call.Trace.Steps[1:] {
		switch step := step.(type) {
		case policy.QueueStep:
			out.WriteString("; queue")
		case policy.FailureStep:
			out.WriteString("; failure " + step.Err.Error())
		default:
			out.WriteString(fmt.Sprintf("; %#v", step))
		}
	}
	return out.String()
}

// TestWeighs: an endpoint has as many hashes as its locality's and its own weight
// ask for.
func TestWeighs(t *testing.T) {
	s := newStage(t)
	child, shares := lbtest.Weighted()
	child.Config = ringhash.Config{MinSize: 4096, MaxSize: 4096}
	s.Config(child)
	together(ready, "light0", "light1", "heavy0", "heavy1")(s)
	const picks = 200_000
	counts := make(map[string]float64)
	r := rand.New(rand.NewPCG(1, 2))
	for range picks {
		call := &policy.Call{Hash: r.Uint64(), HasHash: true}
		if _, err := s.Pick(call); err != nil {
			t.Fatal(err)
		}
		counts[call.Endpoint.Addresses[0]]++
	}
	for name, want := range shares {
		if got := counts[name] / picks; got < want*0.9 || got > want*1.1 {
			t.Errorf("%s has %v of the hashes, want about %v", name, got, want)
		}
	}
}

// TestConcurrentAsking: picks of many goroutines ask for one connection once.
func TestConcurrentAsking(t *testing.T) {
	s := newStage(t, config("a", "b", "c"), says("b", ready))
	p := s.Picker()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				call := &policy.Call{Context: t.Context(), Hash: fallsOn("a"), HasHash: true}
				_, _ = p.Pick(balancer.PickInfo{Ctx: call})
			}
		})
	}
	wg.Wait()
	s.Batch(func() {}) // what they posted has happened
	connected("a")(s)
}

// thousand is a picker of 1,000 endpoints, one in ten of which has failed.
func thousand(tb testing.TB) balancer.Picker {
	tb.Helper()
	var names, failed []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("e", i))
		if i%10 == 0 {
			failed = append(failed, names[i])
		}
	}
	s := newStage(tb)
	s.Next = rand.Uint64
	sized(4096, names...)(s)
	together(ready, names...)(s)
	together(failure, failed...)(s)
	return s.Picker()
}

func BenchmarkPick(b *testing.B) {
	p := thousand(b)
	call := &policy.Call{Context: b.Context(), HasHash: true}
	b.ReportAllocs()
	for b.Loop() {
		call.Hash += 0x9e3779b97f4a7c15
		_, _ = p.Pick(balancer.PickInfo{Ctx: call})
	}
}

// BenchmarkRing is a config whose ring is another, until its picker.
func BenchmarkRing(b *testing.B) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("e", i))
	}
	s := newStage(b, sized(1024, names...))
	steps := []step{sized(4095, names...), sized(4096, names...)}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		steps[i%2](s)
		i++
	}
}

// TestShares: an endpoint's share is the part of all hashes that lead to it.
func TestShares(t *testing.T) {
	four := []string{"a", "b", "c", "d"}
	for name, steps := range map[string][]step{
		"all READY":        {sized(64, four...), together(ready, four...)},
		"one on the ring":  {config("a"), says("a", ready)},
		"one entry each":   {config(four...), together(ready, four...)},
		"one failed":       {sized(64, four...), together(failure, "b"), together(ready, "a", "c", "d")},
		"ends of the ring": {config(four...), together(failure, "b", "d"), together(ready, "a", "c")},
		"one not asked":    {sized(64, four...), together(ready, "a", "c", "d")},
		"all failed":       {sized(64, four...), together(failure, four...)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, steps...)
			n, picker := s.Describe(), s.Picker()
			const picks = 1 << 12
			counts := make(map[*resource.Endpoint]float64)
			for i := range uint64(picks) {
				call := &policy.Call{Context: t.Context(), Hash: i * (math.MaxUint64 / picks), HasHash: true, Trace: new(policy.Trace)}
				_, _ = picker.Pick(balancer.PickInfo{Ctx: call})
				if e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0]); lbtest.As[*ringhash.RingWalk](t, e.Detail).State != failure.String() {
					counts[e.Endpoint]++
				}
			}
			for _, e := range n.Endpoints {
				if want := counts[e.Endpoint] / picks; math.Abs(e.Share-want) > 0.02 {
					t.Errorf("%s has the share %v; it has %v of the hashes", e.Endpoint.Addresses[0], e.Share, want)
				}
			}
			if !n.Shares {
				t.Error("no word of shares")
			}
		})
	}
}
