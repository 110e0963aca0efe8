package service

import (
	"context"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Overlays are the overlays of clusters, with what their drains still wait for.
type Overlays struct {
	sources  *sources.Sources
	picks    *picks.Picker
	targets  *ledger.Ledger
	draining context.Context
}

// States returns the overlays of a cluster, or of all for an empty name, that a scope has: by
// cluster, and the oldest first.
func (s *Overlays) States(cluster string, in *ledger.Scope) ([]overlays.Overlay, error) {
	list, err := s.sources.Overlays(cluster)
	if err != nil {
		return nil, err
	}
	out := []overlays.Overlay{}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Cluster == list[0].Cluster {
			n++
		}
		if in.Cluster(list[0].Cluster) {
			out = append(out, s.describe(list[:n])...)
		}
		list = list[n:]
	}
	return out, nil
}

// State returns the state of an overlay. It fails with UnknownOverlay if there is none.
func (s *Overlays) State(cluster, id string) (*overlays.Overlay, error) {
	list, err := s.sources.Overlays(cluster)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(list, func(o *resource.Overlay) bool { return o.ID == id }); i >= 0 {
		return &s.describe(list)[i], nil
	}
	return nil, s.sources.UnknownOverlay(cluster, id)
}

// describe returns the states of the overlays of one cluster.
func (s *Overlays) describe(list []*resource.Overlay) []overlays.Overlay {
	cc := s.sources.Config(list[0].Cluster)
	out := overlays.Describe(list, cc)
	var held map[string]int64
	for i, o := range list {
		out[i].ETag = s.sources.OverlayTag(o)
		if !overlays.Drains(o) {
			continue
		}
		if held == nil {
			held = s.picks.LeasesByAddress(o.Cluster)
		}
		out[i].InFlight = new(held[o.Endpoint])
		for _, e := range overlays.Endpoints(o, cc) {
			for _, address := range e.Addresses {
				if address != o.Endpoint {
					*out[i].InFlight += held[address]
				}
			}
		}
	}
	return out
}

// drainPoll is the time between two looks at the leases of an endpoint that is drained.
const drainPoll = 100 * time.Millisecond

// AwaitDrained returns when this daemon holds no leases of the endpoints of a drain, the overlay has
// ended, wait has passed, or the service drains. Of other overlays, it returns at once.
func (s *Overlays) AwaitDrained(ctx context.Context, cluster, id string, wait time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	for {
		begun := time.Now()
		is, err := s.State(cluster, id)
		if err != nil || is.InFlight == nil || *is.InFlight == 0 {
			return err
		}
		select { // a look takes at most a tenth of a processor
		case <-time.After(max(drainPoll, 9*time.Since(begun))):
		case <-waiting.Done():
			return nil
		}
	}
}
