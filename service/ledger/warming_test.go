package ledger

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// changesOf returns the configs of clusters by number, with one endpoint each.
func changesOf(n int, zone string) []resolver.TargetConfig {
	changes := make([]resolver.TargetConfig, n)
	for i := range changes {
		name := fmt.Sprintf("c%05d", i)
		target := resolver.Target(name)
		changes[i] = resolver.TargetConfig{Target: target, Config: &resource.Config{
			Target: target, Roots: []string{name},
			Clusters: few.Of(map[string]*resource.ClusterConfig{name: {
				Cluster: resource.DefaultCluster(name),
				Assignment: &resource.Assignment{Name: name, Localities: []*resource.LocalityEndpoints{
					{Weight: 1, Endpoints: []*resource.Endpoint{{Addresses: []string{zone + ":80"}, Weight: 1}}},
				}},
			}}),
		}}
	}
	return changes
}

func warming(l *Ledger) (n int) {
	for t := range l.Hosted().All() {
		if t.Channel.Warming() {
			n++
		}
	}
	return n
}

// pickedAddress is that of a pick that does not wait, or its error.
func pickedAddress(t *testing.T, l *Ledger, cluster string) string {
	t.Helper()
	call := &policy.Call{Context: t.Context(), Cluster: cluster}
	if err := l.Hosted().Own(cluster).Channel.Pick(call, 0); err != nil {
		return err.Error()
	}
	return call.Address
}

// TestApplyYields: while many trees change, other goroutines run.
func TestApplyYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := newTestLedger(t)
	defer l.Close()
	const n = 64 * yieldChanges
	changes := changesOf(n, "10.0.0.1")
	l.Apply(changes).Close()
	var end atomic.Bool
	var other sync.WaitGroup
	turns := 0
	other.Go(func() {
		for ; !end.Load(); turns++ {
			runtime.Gosched()
		}
	})
	l.Apply(changes).Close()
	end.Store(true)
	other.Wait()
	// Preemption, after 10 ms, is far rarer.
	if turns < n/yieldChanges/2 {
		t.Errorf("another goroutine had %d turns during %d changes", turns, n)
	}
}

func TestWarming(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		l := newTestLedger(t)
		defer l.Close()
		begin := time.Now()
		l.Apply(changesOf(n, "a")).Close()
		names := []string{resolver.Target("c00999")}
		if err := l.Settle(t.Context(), names); err != nil || time.Since(begin) > 0 {
			t.Fatalf("settled after %v: %v", time.Since(begin), err)
		}
		synctest.Wait()
		if got := warming(l); got != n-warmingBatch {
			t.Fatalf("%d of %d are warming after the first batch", got, n)
		}
		// A pick builds its own tree only, of the newest config.
		l.Apply(changesOf(n, "b")).Close()
		if got := pickedAddress(t, l, "c00999"); got != "b:80" || warming(l) != n-warmingBatch-1 {
			t.Errorf("picked %s; %d are warming", got, warming(l))
		}
		// So does a change of a few targets.
		l.Apply(changesOf(n, "c")[n-3 : n-2]).Close()
		if err := l.Settle(t.Context(), []string{resolver.Target("c00997")}); err != nil || warming(l) != n-warmingBatch-2 {
			t.Errorf("%v; %d are warming", err, warming(l))
		}
		gone := l.Apply([]resolver.TargetConfig{{Target: resolver.Target("c00998")}})
		gone.Close()
		time.Sleep(n / warmingBatch / 2 * warmingPause)
		if got := warming(l); got < n/4 || got > n*3/4 {
			t.Errorf("%d are warming after half of the time", got)
		}
		time.Sleep(n / warmingBatch * warmingPause)
		if got := warming(l); got != 0 {
			t.Errorf("%d are warming in the end", got)
		}
		if got := pickedAddress(t, l, "c00000") + pickedAddress(t, l, "c00500") + pickedAddress(t, l, "c00997"); got != "b:80b:80c:80" {
			t.Error(got)
		}
		// Another large change is built in the background again: until time passes, only one batch of
		// what is new. That is the target that was removed, too.
		const added = 3*warmingBatch + 2
		l.Apply(append(changesOf(n+added-2, "d"), resolver.TargetConfig{Target: "xds:///x", Config: &resource.Config{Target: "xds:///x", Pending: true}})).Close()
		if err := l.Settle(t.Context(), []string{resolver.Target("c00000"), "xds:///x"}); err != nil || pickedAddress(t, l, "c00000") != "d:80" {
			t.Error(err)
		}
		if got := warming(l); got < added-warmingBatch-1 || got > added {
			t.Errorf("%d of %d are warming", got, added)
		}
		time.Sleep(2 * added / warmingBatch * warmingPause)
		if got := warming(l); got != 0 {
			t.Errorf("%d are warming", got)
		}
	})
}

// TestWarmingDelays: a tree that is stuck does not keep others from being built, nor the
// ledger from being closed.
func TestWarmingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLedger(t)
		stuck := make(chan struct{})
		l.options.Channel.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: stuckAt{"a:80", stuck}}
		changes := changesOf(MaxBuiltAtOnce+1, "b")
		changes[1] = changesOf(2, "a")[1]
		l.Apply(changes).Close()
		time.Sleep(3 * time.Second)
		if got := warming(l); got != 1 {
			t.Errorf("%d are warming", got)
		}
		l.Apply(changesOf(2*len(changes), "b")[len(changes):]).Close()
		synctest.Wait()
		if got := warming(l); got != 1+len(changes)-warmingBatch {
			t.Errorf("%d are warming", got)
		}
		close(stuck)
		begin := time.Now()
		if l.Close(); time.Since(begin) > 0 {
			t.Errorf("closed after %v", time.Since(begin))
		}
	})
}

// TestWarmingIsBulkWork: trees are built in the background when they have a turn. A pick needs none.
func TestWarmingIsBulkWork(t *testing.T) {
	const n = 2 * MaxBuiltAtOnce
	synctest.Test(t, func(t *testing.T) {
		l := newTestLedger(t)
		l.warmer.turns = overload.NewTurns(1)
		defer l.Close()
		busy, err := l.warmer.turns.Begin(t.Context(), overload.ResponseWork, "")
		noError(t, err)
		l.Apply(changesOf(n, "a")).Close()
		time.Sleep(time.Minute)
		if got := pickedAddress(t, l, "c00000"); got != "a:80" || warming(l) != n-1 {
			t.Errorf("picked %s; %d are warming", got, warming(l))
		}
		busy.End()
		time.Sleep(time.Minute)
		if s := l.warmer.turns.Stats(overload.TreeWork); warming(l) != 0 || s.Running != 0 || s.Begun != n/warmingBatch {
			t.Errorf("%d are warming; turns %+v", warming(l), s)
		}
		// A ledger that is closed waits for no turn.
		busy, err = l.warmer.turns.Begin(t.Context(), overload.ResponseWork, "")
		noError(t, err)
		defer busy.End()
		l.Apply(changesOf(2*n, "a")[n:]).Close()
		begin := time.Now()
		if l.Close(); time.Since(begin) > 0 {
			t.Errorf("closed after %v", time.Since(begin))
		}
	})
}

// stuckAt is a Connector that holds the owner of a tree at one address.
type stuckAt struct {
	address string
	until   chan struct{}
}

func (s stuckAt) Start(addresses []string, report func(lb.Connection)) func() {
	if addresses[0] == s.address {
		<-s.until
	}
	report(lb.Connection{Address: addresses[0]})
	return func() {}
}

// TestWarmingConcurrently: picks, changes, removals and the end at once.
func TestWarmingConcurrently(t *testing.T) {
	const n = 2 * MaxBuiltAtOnce
	l := newTestLedger(t)
	l.Apply(changesOf(n, "a")).Close()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all.Go(func() {
		for i := range n {
			if target := l.Hosted().Own(fmt.Sprintf("c%05d", n-1-i)); target != nil {
				_ = target.Channel.Pick(&policy.Call{Context: ctx, Cluster: fmt.Sprintf("c%05d", n-1-i)}, 0)
			}
		}
	})
	all.Go(func() { l.Apply(changesOf(n, "b")).Close() })
	all.Go(func() {
		for i := range n / 2 {
			l.Apply([]resolver.TargetConfig{{Target: resolver.Target(fmt.Sprintf("c%05d", 2*i))}}).Close()
		}
	})
	all.Wait()
	l.Close()
}
