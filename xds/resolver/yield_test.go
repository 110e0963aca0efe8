package resolver_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestApplyYields: while many resources change, other goroutines run, both while the resources are
// applied and while the targets are made.
func TestApplyYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const clusters = 1024
	var updates []resource.Update
	for i := range clusters {
		updates = append(updates, assignment(fmt.Sprint("c", i), "x:1"))
	}
	r := resolver.New(resolver.Options{})
	var end atomic.Bool
	var other sync.WaitGroup
	turns := 0
	other.Go(func() {
		for ; !end.Load(); turns++ {
			runtime.Gosched()
		}
	})
	changes := r.Apply(resource.SourcePush, updates)
	end.Store(true)
	other.Wait()
	if len(changes) != clusters {
		t.Fatalf("%d changes", len(changes))
	}
	// Preemption, after 10 ms, is far rarer.
	if want := 2*clusters/32 - 8; turns < want {
		t.Errorf("another goroutine had %d turns, want at least %d", turns, want)
	}
}
