package service

import (
	"context"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
)

// Fleet is the replicas with which this daemon shares its store.
type Fleet interface {
	ledger.Fleet
	// ID identifies this replica.
	ID() string
	// Find returns a replica with an ID that matches; false if none is known.
	Find(ctx context.Context, match func(id string) bool) (roster.Owner, bool)
	// Roster returns what this replica knows of all. It may wait a few seconds for the store.
	Roster(ctx context.Context) *roster.Roster
	// Close publishes what this replica holds, as its leases go on without it, and leaves the fleet.
	Close()
}

// Replicas are the daemons that share the store of this one, which may be alone.
type Replicas struct {
	fleet Fleet  // nil if it is alone
	id    string // of this daemon; empty if it is alone
}

// Grants reports whether a lease may be one of this daemon: the tag of its ID is not that of another one.
func (r *Replicas) Grants(id picks.LeaseID) bool {
	return r.fleet == nil || id.Replica() == picks.TagOf(r.id)
}

// LeaseOwner returns the replica that has granted a lease, which is not this one; false if none is known.
func (r *Replicas) LeaseOwner(ctx context.Context, id picks.LeaseID) (roster.Owner, bool) {
	if r.fleet == nil {
		return roster.Owner{}, false
	}
	return r.fleet.Find(ctx, func(replica string) bool { return picks.TagOf(replica) == id.Replica() })
}

// State returns the state of the fleet in a scope.
func (r *Replicas) State(ctx context.Context, in *ledger.Scope) roster.State {
	if r.fleet == nil {
		return (*roster.Roster)(nil).StateIn(in)
	}
	return r.fleet.Roster(ctx).StateIn(in)
}
