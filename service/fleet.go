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

// LeaseOwner returns the replica that has granted a lease, which is not this one; false if none is known.
func (s *Service) LeaseOwner(ctx context.Context, id picks.LeaseID) (roster.Owner, bool) {
	if s.options.Fleet == nil {
		return roster.Owner{}, false
	}
	return s.options.Fleet.Find(ctx, func(replica string) bool { return picks.TagOf(replica) == id.Replica() })
}

// Fleet returns the state of the fleet in a scope.
func (s *Service) Fleet(ctx context.Context, in *ledger.Scope) roster.State {
	if s.options.Fleet == nil {
		return (*roster.Roster)(nil).StateIn(in)
	}
	return s.options.Fleet.Roster(ctx).StateIn(in)
}
