// Package storetest is the test suite that each implementation of [store.Store] passes.
package storetest

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/store"
)

// Options are what a test opens a store with.
type Options struct {
	// Now dates entries; nil is the system's clock.
	Now func() time.Time
	// OnCommit is the store's; nil for none.
	OnCommit func(store.Commit)
}

// Open opens the store of one place. The test closes it.
type Open func(t *testing.T, o Options) store.Store

// Fresh returns a function that opens a store at a place of its own, which is empty.
type Fresh func(t *testing.T) Open

// Run tests a store, and if it is durable also that it can be closed and opened again.
func Run(t *testing.T, fresh Fresh, durable bool) {
	tests := map[string]func(*testing.T, Open){
		"Updates":                  updates,
		"Indices":                  indexes,
		"Discard":                  discard,
		"OnCommit":                 commits,
		"Values":                   values,
		"Times":                    times,
		"Refused":                  refused,
		"Concurrent":               concurrent,
		"Large":                    large,
		"Names":                    names,
		"ErrorsAndPanics":          errorsAndPanics,
		"ClosedAndCancelled":       closedAndCancelled,
		"SnapshotsStayAsTheyWere":  snapshotsStay,
		"ResultsAreOfTheLastState": lastState,
	}
	if durable {
		tests["Reopened"] = reopened
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}
