package clusterimpl_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure

	never  = uint64(math.MaxUint64) // a draw that no chance below a million drops at
	always = uint64(0)
)

var (
	service = resource.ServiceKey{Cluster: "orders", EDSServiceName: "orders-eds"}
	zone    = resource.Locality{Region: "r", Zone: "z"}
)

// newTree is a cluster_impl above a round_robin of the endpoints a and b.
func newTree(t *testing.T, counters *policy.Counters, change ...func(*policy.ClusterImplConfig)) *lbtest.Tree {
	t.Helper()
	tree := lbtest.NewTree(t, clusterimpl.Builder(), roundrobin.Builder())
	if counters != nil {
		tree.Counters = counters
	}
	tree.Draw = lbtest.Draws(never)
	tree.Config(config(change...))
	return tree
}

var endpoints = []*resource.Endpoint{
	{Addresses: []string{"a"}, Locality: zone}, {Addresses: []string{"b"}, Locality: zone},
}

func config(change ...func(*policy.ClusterImplConfig)) policy.Child {
	child := policy.Child{Policy: roundrobin.Name}
	child.Endpoints = append(child.Endpoints, endpoints...)
	cfg := &policy.ClusterImplConfig{Service: service, MaxRequests: 2, Child: child}
	for _, f := range change {
		f(cfg)
	}
	return policy.Child{Config: cfg}
}

func limit(n uint32) func(*policy.ClusterImplConfig) {
	return func(c *policy.ClusterImplConfig) { c.MaxRequests = n }
}

func drops(ds ...resource.Drop) func(*policy.ClusterImplConfig) {
	return func(c *policy.ClusterImplConfig) { c.Drops = ds }
}

func up(tree *lbtest.Tree) *lbtest.Tree {
	tree.Batch(func() {
		for _, sc := range tree.SubConns {
			if !sc.Closed {
				sc.Says(ready, nil)
			}
		}
	})
	return tree
}

// refusal returns the refusal that err is.
func refusal(t *testing.T, err error) *policy.Refusal {
	t.Helper()
	var r *policy.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("err is %v, want a refusal", err)
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("status code %v, want UNAVAILABLE", status.Code(err))
	}
	return r
}

// TestDrops: categories in order, independent chances. A draw of d of 2^64 is a
// place of d × 1,000,000 / 2^64 in the million.
func TestDrops(t *testing.T) {
	at := func(perMillion uint64) uint64 { return perMillion*(math.MaxUint64/1_000_000) + 1<<40 }
	tests := []struct {
		name  string
		drops []resource.Drop
		draws []uint64
		want  string // the category that drops
		asked int    // how many categories drew
	}{
		{"no categories", nil, []uint64{always}, "", 0},
		{"none drops", []resource.Drop{{Category: "a", PerMillion: 500_000}, {Category: "b", PerMillion: 500_000}}, []uint64{at(500_000), at(500_000)}, "", 2},
		{"the first drops, the second is not asked", []resource.Drop{{Category: "a", PerMillion: 500_000}, {Category: "b", PerMillion: 500_000}}, []uint64{at(499_999), at(0)}, "a", 1},
		{"the second has a chance of its own", []resource.Drop{{Category: "a", PerMillion: 500_000}, {Category: "b", PerMillion: 500_000}}, []uint64{at(500_000), at(499_999)}, "b", 2},
		{"a chance of 0 never drops", []resource.Drop{{Category: "a"}}, []uint64{always}, "", 1},
		{"a chance of a million always drops", []resource.Drop{{Category: "a", PerMillion: 1_000_000}}, []uint64{never}, "a", 1},
		{"one in a million drops", []resource.Drop{{Category: "a", PerMillion: 1}}, []uint64{at(0)}, "a", 1},
		{"and the next does not", []resource.Drop{{Category: "a", PerMillion: 1}}, []uint64{at(1)}, "", 1},
		{"all but one in a million", []resource.Drop{{Category: "a", PerMillion: 999_999}}, []uint64{at(999_999)}, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(t, nil)
			tree.Config(config(drops(tt.drops...)))
			tree.Draw = lbtest.Draws(append([]uint64{0}, tt.draws...)...) // the first is round_robin's start
			up(tree)
			call := &policy.Call{Hold: true, Trace: new(policy.Trace)}
			_, err := tree.Pick(call)
			if tt.want == "" && err != nil || tt.want != "" && err == nil {
				t.Fatalf("err %v, want a drop of %q", err, tt.want)
			}
			counters := tree.Counters.Get(service)
			if err != nil {
				if r := refusal(t, err); r.Kind != policy.KindDropped || r.Category != tt.want || r.Error() != "RPC is dropped" {
					t.Errorf("refusal %+v", r)
				}
				if counters.Drops()[tt.want] != 1 || counters.Breaker.InFlight() != 0 {
					t.Errorf("drops %v, in flight %d", counters.Drops(), counters.Breaker.InFlight())
				}
			}
			asked := 0
			for _, s := range call.Trace.Steps {
				if d, ok := s.(policy.DropStep); ok {
					asked++
					if d.Dropped != (d.Draw < d.PerMillion) || d.Dropped != (d.Category == tt.want) {
						t.Errorf("step %+v", d)
					}
				}
			}
			if asked != tt.asked {
				t.Errorf("%d categories drew, want %d", asked, tt.asked)
			}
		})
	}
}

// TestDropsOnlyWhenReady: before, and after a failure, the child answers.
func TestDropsOnlyWhenReady(t *testing.T) {
	tree := newTree(t, nil, drops(resource.Drop{Category: "all", PerMillion: 1_000_000}))
	if _, err := tree.Pick(nil); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("CONNECTING: %v, want to queue", err)
	}
	up(tree)
	if _, err := tree.Pick(nil); err == nil || err.Error() != "RPC is dropped" {
		t.Errorf("READY: %v, want a drop", err)
	}
	errDown := errors.New("down")
	tree.Batch(func() {
		tree.SubConns[0].Says(failure, errDown)
		tree.SubConns[1].Says(failure, errDown)
	})
	if _, err := tree.Pick(nil); !errors.Is(err, errDown) {
		t.Errorf("TRANSIENT_FAILURE: %v, want %v", err, errDown)
	}
}

// TestBreaker: who holds counts; who does not only reads.
func TestBreaker(t *testing.T) {
	var (
		tree *lbtest.Tree
		held []policy.Held
	)
	hold := func() error {
		call := &policy.Call{Hold: true}
		_, err := tree.Pick(call)
		if err == nil {
			held = append(held, call.Held())
		}
		return err
	}
	look := func() error {
		call := &policy.Call{}
		_, err := tree.Pick(call)
		if err == nil {
			call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo) // gives back nothing: nothing is held
		}
		return err
	}
	exclude := func() error {
		call := &policy.Call{Hold: true, Exclude: []string{"a", "b"}}
		_, err := tree.Pick(call)
		if r := refusal(t, err); r.Kind != policy.KindAllExcluded {
			t.Errorf("refusal %+v", r)
		}
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo) // nothing is held
		return nil
	}
	finish := func() error {
		held[0].Finish(policy.OutcomeSuccess, policy.NoInfo)
		held = held[1:]
		return nil
	}
	var allowed uint32
	configure := func(n uint32) func() error {
		return func() error {
			allowed = n
			tree.Config(config(limit(n)))
			return nil
		}
	}
	lose := func() error {
		tree.Batch(func() { // the picker does not know yet
			for _, sc := range tree.SubConns {
				sc.SetConnected("")
			}
		})
		return nil
	}
	type steps []func() error
	tests := []struct {
		name     string
		limit    uint32
		steps    steps
		full     bool // whether the last step is refused
		queued   bool // whether it is queued
		inFlight int64
		rejected uint64
	}{
		{"up to the limit", 2, steps{hold, hold}, false, false, 2, 0},
		{"no further", 2, steps{hold, hold, hold}, true, false, 2, 1},
		{"a place is given back", 2, steps{hold, hold, hold, finish, hold}, false, false, 2, 1},
		{"a pick that the child fails takes no place", 1, steps{exclude, exclude, hold}, false, false, 1, 0},
		{"looking takes no place", 2, steps{look, look, look, hold, hold}, false, false, 2, 0},
		{"looking sees that it is full", 2, steps{hold, hold, look}, true, false, 2, 1},
		{"a limit of 0 refuses every pick", 0, steps{hold}, true, false, 0, 1},
		{"nor look", 0, steps{look}, true, false, 0, 1},
		{"a lower limit counts at once", 2, steps{hold, hold, finish, configure(1), hold}, true, false, 1, 1},
		{"a higher one too", 1, steps{hold, configure(2), hold}, false, false, 2, 0},
		{"a connection that was lost since: queued, and given back", 2, steps{lose, hold}, false, true, 0, 0},
		{"looking at it: queued", 2, steps{lose, look}, false, true, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			held, allowed = nil, tt.limit
			tree = up(newTree(t, nil, limit(tt.limit)))
			var err error
			for _, step := range tt.steps {
				err = step()
			}
			switch {
			case tt.full:
				r := refusal(t, err)
				if want := fmt.Sprintf("max requests %d exceeded on service orders", allowed); r.Kind != policy.KindCircuitBroken || r.Error() != want {
					t.Errorf("refusal %v %q, want %q", r.Kind, r, want)
				}
			case tt.queued:
				if !errors.Is(err, balancer.ErrNoSubConnAvailable) {
					t.Errorf("err %v, want to queue", err)
				}
			case err != nil:
				t.Errorf("err %v", err)
			}
			b := &tree.Counters.Get(service).Breaker
			if b.InFlight() != tt.inFlight || b.Rejected() != tt.rejected {
				t.Errorf("in flight %d, rejected %d; want %d, %d", b.InFlight(), b.Rejected(), tt.inFlight, tt.rejected)
			}
			for _, h := range held {
				h.Finish(policy.OutcomeSuccess, policy.NoInfo)
			}
			if b.InFlight() != 0 {
				t.Errorf("in flight %d after all has been given back", b.InFlight())
			}
		})
	}
}

// TestBreakerCountsWhateverTheState: a child that is not READY may still answer,
// and what it answers counts.
func TestBreakerCountsWhateverTheState(t *testing.T) {
	actors := &lbtest.Troupe{PolicyName: "actor"}
	tree := lbtest.NewTree(t, clusterimpl.Builder(), actors)
	tree.Config(config(limit(1), func(c *policy.ClusterImplConfig) { c.Child = actors.Child("x") }))
	a := actors.Actor("x")
	tree.Batch(func() { a.Conn.UpdateState(balancer.State{ConnectivityState: connecting, Picker: a.Picker(ready)}) })
	if _, err := tree.Pick(&policy.Call{Hold: true}); err != nil {
		t.Fatal(err)
	}
	_, err := tree.Pick(&policy.Call{Hold: true})
	if r := refusal(t, err); r.Kind != policy.KindCircuitBroken {
		t.Errorf("refusal %+v", r)
	}
}

// TestTwoTreesShareOneBreaker: two channels of one process count together.
func TestTwoTreesShareOneBreaker(t *testing.T) {
	counters := policy.NewCounters()
	one, two := up(newTree(t, counters)), up(newTree(t, counters))
	first := &policy.Call{Hold: true}
	for _, pick := range []struct {
		tree *lbtest.Tree
		call *policy.Call
	}{{one, first}, {two, &policy.Call{Hold: true}}} {
		if _, err := pick.tree.Pick(pick.call); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.Pick(&policy.Call{Hold: true}); err == nil {
		t.Error("a third pick passed a limit of 2 in all")
	}
	one.Close() // a held pick outlives its tree
	if got := counters.Get(service).Breaker.InFlight(); got != 2 {
		t.Errorf("in flight %d, want 2", got)
	}
	first.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	if _, err := two.Pick(&policy.Call{Hold: true}); err != nil {
		t.Errorf("a place was given back: %v", err)
	}
}

// TestHundredsAtOnce: 200 hold at once, the limit is 50.
func TestHundredsAtOnce(t *testing.T) {
	tree := newTree(t, nil, limit(50))
	up(tree)
	picker := tree.Picker()
	var mu sync.Mutex
	var held []policy.Held
	refused := 0
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			call := &policy.Call{Context: t.Context(), Hold: true}
			_, err := picker.Pick(balancer.PickInfo{Ctx: call})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused++
				return
			}
			held = append(held, call.Held())
		})
	}
	wg.Wait()
	if len(held) != 50 || refused != 150 {
		t.Errorf("%d passed, %d refused; want 50, 150", len(held), refused)
	}
	for _, h := range held {
		wg.Go(func() { h.Finish(policy.OutcomeSuccess, policy.NoInfo) })
	}
	wg.Wait()
	c := tree.Counters.Get(service)
	if c.Breaker.InFlight() != 0 || c.Breaker.Rejected() != 150 {
		t.Errorf("in flight %d, rejected %d", c.Breaker.InFlight(), c.Breaker.Rejected())
	}
	if got := c.Loads()[zone]; got != (resource.LoadCounts{Issued: 50, Succeeded: 50}) {
		t.Errorf("load %+v", got)
	}
}

// TestServiceMoves: another service name, other counters; what is held stays
// where it was taken.
func TestServiceMoves(t *testing.T) {
	tree := up(newTree(t, nil))
	other := resource.ServiceKey{Cluster: "orders", EDSServiceName: "other"}
	before := &policy.Call{Hold: true}
	if _, err := tree.Pick(before); err != nil {
		t.Fatal(err)
	}
	subConns := len(tree.SubConns)
	tree.Config(config(func(c *policy.ClusterImplConfig) { c.Service = other }))
	after := &policy.Call{Hold: true}
	if _, err := tree.Pick(after); err != nil {
		t.Fatal(err)
	}
	was, is := tree.Counters.Get(service), tree.Counters.Get(other)
	if was == nil || was.Breaker.InFlight() != 1 || is.Breaker.InFlight() != 1 {
		t.Fatalf("old counters %+v, new %+v", was, is)
	}
	if was.Loads()[zone].InProgress != 1 || is.Loads()[zone].InProgress != 1 {
		t.Errorf("loads %v and %v", was.Loads(), is.Loads())
	}
	if len(tree.SubConns) != subConns {
		t.Error("connections were made again")
	}
	before.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	if tree.Counters.Get(service) != nil {
		t.Error("the old counters have no references, but they are kept")
	}
	after.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	tree.Close()
	if tree.Counters.Get(other) != nil {
		t.Error("the tree is closed, but its counters are kept")
	}
}

// TestLocalityMoves: a connection stays where only its endpoint's locality
// changes, and its picks are counted for the new one.
func TestLocalityMoves(t *testing.T) {
	tree := up(newTree(t, nil))
	moved := resource.Locality{Region: "r", Zone: "y"}
	before := &policy.Call{Hold: true}
	if _, err := tree.Pick(before); err != nil {
		t.Fatal(err)
	}
	subConns := len(tree.SubConns)
	tree.Config(config(func(c *policy.ClusterImplConfig) {
		for i, e := range endpoints {
			e := *e
			e.Locality = moved
			c.Child.Endpoints[i] = &e
		}
	}))
	if len(tree.SubConns) != subConns {
		t.Fatal("connections were made again")
	}
	for range 4 {
		call := &policy.Call{}
		if _, err := tree.Pick(call); err != nil || call.Load != tree.Counters.Get(service).Locality(moved) {
			t.Errorf("not counted for %v: %v", moved, err)
		}
	}
	before.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	loads := tree.Counters.Get(service).Loads()
	if loads[zone] != (resource.LoadCounts{Issued: 1, Succeeded: 1}) || loads[moved] != (resource.LoadCounts{Issued: 4, Succeeded: 4}) {
		t.Errorf("loads %+v", loads)
	}
}

// TestConnectModeChanges: every connection is made again, and the old ones serve
// until then.
func TestConnectModeChanges(t *testing.T) {
	tree := up(newTree(t, nil))
	tree.Config(config(func(c *policy.ClusterImplConfig) { c.Connect = resource.ConnectTCPHold }))
	if len(tree.SubConns) != 4 || tree.State() != ready {
		t.Fatalf("%d SubConns in all, %v; want 4, READY", len(tree.SubConns), tree.State())
	}
	for i, sc := range tree.SubConns {
		want := resource.ConnectDefault
		if i >= 2 {
			want = resource.ConnectTCPHold
		}
		if got := policy.LinkOf(sc.Addresses); got.Mode != want || got.Cluster != service.Cluster || sc.Closed {
			t.Errorf("SubConn %d: link %+v, closed %t", i, got, sc.Closed)
		}
	}
	pick := func() *lbtest.SubConn {
		res, err := tree.Pick(nil)
		if err != nil {
			t.Fatal(err)
		}
		return lbtest.Picked(t, res)
	}
	if policy.LinkOf(pick().Addresses).Mode != resource.ConnectDefault {
		t.Error("a new connection serves before it is READY")
	}
	tree.Batch(func() { tree.SubConns[2].Says(ready, nil) })
	if policy.LinkOf(pick().Addresses).Mode != resource.ConnectTCPHold {
		t.Error("an old connection serves on")
	}
	if !tree.SubConns[0].Closed || !tree.SubConns[1].Closed {
		t.Error("the old connections are not shut down")
	}
}

// TestSecurityChanges: so it is where the security does, by what it says.
func TestSecurityChanges(t *testing.T) {
	roots := func(names ...string) func(*policy.ClusterImplConfig) {
		return func(c *policy.ClusterImplConfig) {
			c.Security = &resource.Security{RootInstance: "roots"}
			for _, n := range names {
				c.Security.SANs = append(c.Security.SANs, resource.StringMatch{Value: n})
			}
		}
	}
	tree := up(newTree(t, nil, roots("a")))
	link := func(i int) *policy.Link { return policy.LinkOf(tree.SubConns[i].Addresses) }
	if s := link(0).Security; s == nil || s.RootInstance != "roots" || link(1).Security != s {
		t.Fatalf("links with security %+v, %+v", s, link(1).Security)
	}
	tree.Config(config(roots("a"), limit(7)))
	if len(tree.SubConns) != 2 {
		t.Fatalf("%d SubConns in all: one that says the same makes no new ones", len(tree.SubConns))
	}
	for i, change := range []func(*policy.ClusterImplConfig){roots("a", "b"), func(*policy.ClusterImplConfig) {}, roots()} {
		made := len(tree.SubConns)
		tree.Config(config(change))
		if len(tree.SubConns) != made+2 || tree.SubConns[made-1].Closed {
			t.Fatalf("change %d: %d SubConns in all, want %d, and the old ones serving", i, len(tree.SubConns), made+2)
		}
		if got, want := link(made).Security, securityOf(change); !got.Equal(want) {
			t.Errorf("change %d: security %+v, want %+v", i, got, want)
		}
		up(tree)
		if !tree.SubConns[made-1].Closed {
			t.Errorf("change %d: the old connections are not shut down", i)
		}
	}
}

// securityOf is the security that a change makes.
func securityOf(change func(*policy.ClusterImplConfig)) *resource.Security {
	var c policy.ClusterImplConfig
	change(&c)
	return c.Security
}
