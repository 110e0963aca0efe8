package sources

import (
	"context"
	"net"
	"slices"

	"github.com/lbd-dev/lbd/service/observe"
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
}

// New returns sources without resources. The store must call [Sources.Commit] and
// [Sources.StoreLost].
func New(o Options) *Sources {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
	p := newPublisher(o)
	s := &Sources{onDemand: newOnDemand(p), resourceFiles: &resourceFiles{publisher: p}}
	s.servers = &servers{publisher: p, demand: s.onDemand}
	s.pushes = newPushes(p, s.resourceFiles)
	s.overlayChanges = newOverlayChanges(s.pushes)
	s.endpointChanges = endpointChanges{s.pushes}
	s.registrations = newRegistrations(s.pushes, s.endpointChanges)
	p.index = s.pushes.Index
	p.subscribe, p.confirm = s.servers.subscribeNeeded, s.onDemand.confirm
	o.Registry.MustRegister(observe.Collector(s.resourceFiles.collect), observe.Collector(s.servers.collect), observe.Collector(s.pushes.collectHistory),
		observe.Collector(s.overlayChanges.collect), observe.Collector(s.collectCovered), observe.Collector(s.registrations.collect))
	return s
}

// Start loads the resources of st, and returns once every tree has its config.
func (s *Sources) Start(ctx context.Context, st store.Store) error {
	err := s.pushes.start(ctx, st)
	s.warnOfTargets(st.Snapshot().Get)
	return err
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

// SourceConditions returns what is wrong with the sources now.
func (s *Sources) SourceConditions() []observe.Condition {
	return slices.Concat(s.servers.conditions(), s.resourceFiles.conditions(), s.storeHealth.conditions())
}
