package observe

import (
	"context"

	"google.golang.org/grpc/connectivity"
)

// Unreachable is an endpoint to which the daemon has no connection, because the last attempt failed.
type Unreachable struct{ Cluster, Address string }

// Unreachable returns endpoints to which the daemon has no connection, at most limit, and how many others
// there are. An endpoint that several targets have may be listed and counted more than once. It asks only
// the trees of clusters that have such endpoints, and no more after ctx ends.
func (s *State) Unreachable(ctx context.Context, limit int) (list []Unreachable, more int) {
	for _, t := range s.ledger.Hosted().Sorted() {
		if t.Channel.Warming() {
			continue // it connects to none
		}
		for _, m := range t.View().Sorted() {
			failed := 0
			for _, p := range t.Channel.ClusterSummary(m.Name).Priorities {
				failed += p.TransientFailure
			}
			if failed == 0 {
				continue
			}
			if len(list) >= limit || ctx.Err() != nil {
				more += failed
				continue
			}
			within, cancel := context.WithTimeout(ctx, endpointsTimeout)
			root, err := t.Channel.DescribeCluster(within, m.Name)
			cancel()
			if err != nil {
				more += failed
				continue
			}
			for _, p := range s.describe(m, root, true).Priorities {
				for _, l := range p.Localities {
					for i := range l.Endpoints {
						switch {
						case l.Endpoints[i].State != connectivity.TransientFailure.String():
						case len(list) < limit:
							list = append(list, Unreachable{m.Name, l.Endpoints[i].Address})
						default:
							more++
						}
					}
				}
			}
		}
	}
	return list, more
}

// Succeeded returns how many picks of all clusters had an endpoint.
func (s *State) Succeeded() (n uint64) {
	for _, t := range s.ledger.Hosted().Sorted() {
		for _, m := range t.View().Sorted() {
			n += m.Succeeded()
		}
	}
	return n
}
