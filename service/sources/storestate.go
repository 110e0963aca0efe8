package sources

import (
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
)

// StoreKind is where pushed resources are.
type StoreKind string

// The kinds of stores.
const (
	StoreInMemory StoreKind = "memory"
	StoreInFile   StoreKind = "file"
	StoreInEtcd   StoreKind = "etcd"
)

// StoreState describes the store of pushed resources.
type StoreState struct {
	Kind StoreKind `json:"kind" swaggertype:"string" enums:"memory,file,etcd"`
	// Fleet identifies what is stored in etcd; absent without etcd, or until it is known.
	Fleet string `json:"fleet,omitempty"`
	// Served is the index that picks use.
	Served uint64 `json:"served"`
	// Index is that of the last commit that this daemon has.
	Index uint64 `json:"index"`
	// Last is that of the last commit that the store is known to have.
	Last uint64 `json:"last"`
	// Loaded is false while it is not known what is stored.
	Loaded bool `json:"loaded"`
	// BehindSeconds is the time since the daemon last knew that it has all that etcd has, at most
	// some seconds while etcd responds; absent without etcd, and while it is not known.
	BehindSeconds *float64 `json:"behind_seconds,omitempty"`
	// Unreadable is the number of records in etcd that cannot be read.
	Unreadable int `json:"unreadable"`
	// UnknownKinds are the numbers of records by kind, of the kinds that this lbd does not know: a newer lbd has put
	// them. They are kept, have no effect on this daemon, and are not part of its snapshots. Absent if there are none.
	UnknownKinds map[string]int `json:"unknown_kinds,omitempty"`
	// Error is why nothing can be stored; absent if it can.
	Error string `json:"error,omitempty"`
	// FailingSince is when Error began, by the clock of this daemon.
	FailingSince *time.Time `json:"failing_since,omitempty"`
}

// Store returns the state of the store.
func (s *Sources) Store() (StoreState, error) {
	st, err := s.open()
	if err != nil {
		return StoreState{}, err
	}
	served := s.pushes.served.now() // first: it is not greater than Index
	now := st.Snapshot()
	index := now.Index()
	out := StoreState{Kind: StoreInFile, Served: served, Index: index, Last: index, Loaded: st.Loaded(), Error: fault.Text(st.Err()), UnknownKinds: map[string]int{}}
	for kind, n := range UnknownKinds(now.All()) {
		out.UnknownKinds[string(kind)] = n
	}
	if s.describeStore != nil {
		s.describeStore(&out)
	}
	s.storeHealth.mu.Lock()
	defer s.storeHealth.mu.Unlock()
	out.FailingSince = observe.Optional(s.lost.since)
	return out, nil
}
