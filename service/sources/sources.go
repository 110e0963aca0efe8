package sources

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Sources are all that resources come from: pushes and snapshots, resource files,
// management servers, DNS, and clusters that picks name.
type Sources struct {
	*pushes
	*resourceFiles
	*servers
	*onDemand
	*overlayChanges
	endpointChanges
	registrations *registrations

	// Those of Connections, fixed when the store is open.
	describeStore   func(*StoreState)
	storeConditions func() []observe.Condition
}

// Inbound are the functions that the parts below call.
type Inbound struct {
	// Commit and StoreLost are OnCommit and OnLost of the store, which may call them before Start.
	Commit    func(store.Commit)
	StoreLost func(error)
	// ServerUpdate and ServerEvent are OnUpdate and Events of the xDS client, which waits for them.
	ServerUpdate func([]resource.Update)
	ServerEvent  func(client.Event)
}

// Connections are what Start connects the sources to. All but Store may be nil.
type Connections struct {
	// Store has what is pushed. DescribeStore adds to a StoreState what only the kind of store knows, and
	// StoreConditions returns its problems, besides those that StoreLost reports.
	Store           store.Store
	DescribeStore   func(*StoreState)
	StoreConditions func() []observe.Condition
	// Servers is the xDS client, with the last good versions and the load reports; all three or none.
	Servers  ManagementServer
	LastGood LastGood
	Reports  LoadReports
	// Files keeps the versions of resource files. WatchFiles begins to call a function with the scans of
	// their directory: with the first one before it returns.
	Files      FileArchive
	WatchFiles func(scanned func(*files.Scan)) error
}

// New returns sources without resources, and what is called from below.
func New(o Options) (*Sources, Inbound) {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
	p := newPublisher(o)
	s := &Sources{onDemand: newOnDemand(p), resourceFiles: &resourceFiles{publisher: p}}
	s.servers = &servers{publisher: p, demand: s.onDemand}
	s.pushes = newPushes(p, s.resourceFiles)
	s.overlayChanges = &overlayChanges{pushes: s.pushes}
	s.pushes.expiry.Expire = s.overlayChanges.expire
	s.endpointChanges = endpointChanges{s.pushes}
	s.registrations = newRegistrations(s.pushes, s.endpointChanges)
	p.index = s.pushes.Index
	p.subscribe, p.updated, p.confirm = s.servers.subscribeNeeded, s.pushes.served.updated, s.onDemand.confirm
	o.Registry.MustRegister(observe.Collector(s.resourceFiles.collect), observe.Collector(s.servers.collect), observe.Collector(s.pushes.collectHistory),
		observe.Collector(s.overlayChanges.collect), observe.Collector(s.collectCovered), observe.Collector(s.registrations.collect))
	return s, Inbound{Commit: s.pushes.committed, StoreLost: s.pushes.storeLost, ServerUpdate: s.servers.update, ServerEvent: s.servers.event}
}

// Start subscribes to management servers, reads the files, loads what the store has, and returns once
// every tree has its config. It is called once.
func (s *Sources) Start(ctx context.Context, c Connections) error {
	s.describeStore, s.storeConditions = c.DescribeStore, c.StoreConditions
	if c.DescribeStore != nil {
		s.unreadable = func() int { // pushes know no StoreState
			var state StoreState
			c.DescribeStore(&state)
			return state.Unreadable
		}
	}
	if c.Servers != nil {
		s.servers.follow(c.Servers, c.LastGood, c.Reports)
	}
	if c.Files != nil {
		s.resourceFiles.follow(c.Files, c.Store, s.pushes.unpublished)
		if err := c.WatchFiles(s.resourceFiles.scanned); err != nil {
			return err
		}
	}
	err := s.pushes.start(ctx, c.Store)
	s.warnOfTargets(c.Store.Snapshot().Get)
	if err != nil {
		return fmt.Errorf("build the trees of pushed resources: %w", err)
	}
	return nil
}

// Close stops the look-ups of addresses, releases no more clusters, and ends all waits for an
// index.
func (s *Sources) Close() {
	s.onDemand.close()
	s.registrations.close()
	s.pushes.served.close()
	s.pushes.expiry.Close()
	s.onDemand.dns.Close()
}

// Conditions returns what is wrong with the sources now.
func (s *Sources) Conditions() []observe.Condition {
	out := slices.Concat(s.servers.conditions(), s.resourceFiles.conditions(), s.storeHealth.conditions())
	if _, err := s.open(); err == nil && s.storeConditions != nil {
		out = append(out, s.storeConditions()...)
	}
	return out
}
