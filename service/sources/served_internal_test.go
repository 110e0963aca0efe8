package sources

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// An index is served when the trees of all targets that its commits changed have their configs.
func TestIndexIsServedWhenTreesHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		defer s.close()
		trees := map[string]chan struct{}{}
		for _, name := range []string{"x", "a", "b", "late"} {
			trees[name] = make(chan struct{})
		}
		s.published(6, []string{"x"}) // while the store is loaded
		s.start(5, func(ctx context.Context, names []string) error {
			for _, name := range names {
				select {
				case <-trees[name]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		synctest.Wait()
		s.published(7, []string{"b", "a"})
		s.published(8, nil)
		reached := make(chan uint64, 10)
		for _, index := range []uint64{8, 9, 6, 5} {
			go func() {
				if s.await(t.Context(), index) {
					reached <- index
				}
			}()
			synctest.Wait()
		}
		expect := func(index uint64, newly ...uint64) {
			t.Helper()
			synctest.Wait()
			if got := s.index.Load(); got != index {
				t.Errorf("index %d, want %d", got, index)
			}
			var got []uint64
			for len(reached) > 0 {
				got = append(got, <-reached)
			}
			if !slices.Equal(got, newly) {
				t.Errorf("reached %v, want %v", got, newly)
			}
		}
		expect(5, 5)
		close(trees["x"])
		expect(6, 6)
		close(trees["b"])
		expect(6)
		close(trees["a"])
		expect(8, 8)
		s.published(4, nil) // the index never becomes smaller
		expect(8)
		// A tree that takes long keeps no commit back for long, and those of others not at all.
		s.published(9, []string{"late"})
		expect(8)
		time.Sleep(treeTimeout)
		expect(9, 9)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.waiting) != 0 {
			t.Errorf("%d waiters", len(s.waiting))
		}
	})
}

// A push whose own trees are ready sets the index, unless trees of others are not.
func TestIndexIsCheckedByPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		defer s.close()
		s.start(0, func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		s.published(1, []string{"a"})
		synctest.Wait()
		s.published(2, []string{"b"})
		missing := "a"
		settled := func(names iter.Seq[string]) bool {
			for name := range names {
				if name == missing {
					return false
				}
			}
			return true
		}
		for _, name := range []string{"a", "b"} { // one is waited for, the other not yet
			missing = name
			if s.check(settled); s.index.Load() != 0 {
				t.Errorf("index %d without the tree of %s", s.index.Load(), name)
			}
		}
		missing = ""
		if s.check(settled); s.index.Load() != 2 {
			t.Errorf("index %d", s.index.Load())
		}
	})
}

// A target that waits keeps the index of a change back for a while, and after that the one of a later change.
func TestAHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		defer s.close()
		s.start(0, func(context.Context, []string) error { return nil })
		key := resource.Key{Type: Config, Name: "orders"}
		waiting := map[string][]resource.Key{"cluster:orders": {key}}
		for index := range uint64(4) {
			if keys := s.hold(waiting, new(store.Snapshot), []resource.Update{{Item: resource.Item{Key: key}}}); len(keys) != 1 {
				t.Errorf("%v are not in force", keys)
			}
			s.published(index+1, nil)
			time.Sleep(holdTimeout / 2)
			synctest.Wait()
			if got, want := s.now(), (index+1)/2*2; got != want { // two changes in each holdTimeout
				t.Errorf("index %d of %d, want %d", got, index+1, want)
			}
		}
	})
}

// A change that is in force is served, also while the target waits for a later one.
func TestHoldsOfATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		defer s.close()
		s.start(0, func(context.Context, []string) error { return nil })
		var waits []resource.Key
		for index, name := range []string{"a", "b", "c"} {
			key := resource.Key{Type: Config, Name: name}
			waits = append(waits, key)
			s.hold(map[string][]resource.Key{"xds:///shop": waits}, new(store.Snapshot), []resource.Update{{Item: resource.Item{Key: key}}})
			s.published(uint64(index+1), nil)
		}
		for index := range uint64(4) {
			s.updated(nil, map[string][]resource.Key{"xds:///shop": waits[index:]})
			synctest.Wait()
			if got := s.now(); got != index {
				t.Errorf("index %d with %d changes in force", got, index)
			}
		}
	})
}

// Waits end with their time, their caller, the drain and the end of the service, and leave nothing.
func TestWaitsForAnIndexEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining, drain := context.WithCancel(t.Context())
		p := &pushes{publisher: &publisher{Options: Options{Draining: draining}}, served: newServed()}
		p.served.start(3, func(context.Context, []string) error { return nil })
		began := time.Now()
		codeOf := func(err error) fault.Code {
			e, _ := errors.AsType[*fault.Error](err)
			if e == nil {
				return ""
			}
			return e.Code
		}
		if err := p.AwaitIndex(t.Context(), 3, 0); err != nil {
			t.Error(err)
		}
		err := p.AwaitIndex(t.Context(), 4, 0)
		if codeOf(err) != fault.IndexNotReached || err.Error() != "this replica serves index 3, not yet 4: set wait= to wait for it" {
			t.Error(err)
		}
		err = p.AwaitIndex(t.Context(), 1<<62, 5*time.Second)
		if codeOf(err) != fault.IndexNotReached || time.Since(began) != 5*time.Second || err.Error() != "this replica serves index 3, not yet 4611686018427387904: min_index was not reached within 5s" {
			t.Error(time.Since(began), err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.AwaitIndex(gone, 4, time.Hour); codeOf(err) != fault.CallerGone {
			t.Error(err)
		}
		ends := make(chan error, 1)
		go func() { ends <- p.AwaitIndex(t.Context(), 4, time.Hour) }()
		synctest.Wait()
		drain()
		if err := <-ends; codeOf(err) != fault.ShuttingDown {
			t.Error(err)
		}
		waits := make(chan bool, 1)
		go func() { waits <- p.served.await(t.Context(), 4) }()
		synctest.Wait()
		p.served.close()
		if <-waits || len(p.served.waiting) != 0 {
			t.Errorf("a wait outlasts the service: %d", len(p.served.waiting))
		}
	})
}
