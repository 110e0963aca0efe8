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

// Kind is what a store can do. Kinds are added.
type Kind int

const (
	// Durable stores can be closed and opened again.
	Durable Kind = 1 << iota
	// Shared stores can be opened several times at once.
	Shared
)

// Run tests a store.
func Run(t *testing.T, fresh Fresh, kind Kind) {
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
	if kind&Durable != 0 {
		tests["Reopened"] = reopened
	}
	if kind&Shared != 0 {
		tests["SharedCommits"] = sharedCommits
		tests["SharedIncrements"] = sharedIncrements
		tests["SharedLarge"] = sharedLarge
		tests["SharedReads"] = sharedReads
		tests["SharedTypes"] = sharedTypes
		tests["SharedDiscard"] = sharedDiscard
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}
