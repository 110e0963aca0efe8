package foreign

import (
	"cmp"
	"slices"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endpoints are those of the config, in its order.
type endpoints struct {
	list      []*resource.Endpoint
	byAddress map[string]int // places in list
}

func endpointsOf(all []resolver.Endpoint) endpoints {
	e := endpoints{list: make([]*resource.Endpoint, 0, len(all)), byAddress: make(map[string]int, len(all))}
	for _, re := range all {
		if len(re.Addresses) == 0 {
			continue
		}
		value := policy.EndpointOf(re)
		for _, a := range value.Addresses {
			if _, ok := e.byAddress[a]; !ok {
				e.byAddress[a] = len(e.list)
			}
		}
		e.list = append(e.list, value)
	}
	return e
}

// connections are the SubConns of one endpoint, which may have one for each address:
// the best, and the best with an error.
type connections struct{ best, failed *subConn }

// connections returns those of each endpoint of the config, in its order, and then
// SubConns to other addresses in the order of their creation.
func (f *foreign) connections() []connections {
	of := make([]connections, len(f.endpoints.list))
	var others []connections
	for sc := range f.subConns {
		if sc.place < 0 {
			others = append(others, connections{sc, sc})
			continue
		}
		c := &of[sc.place]
		c.best = better(c.best, sc)
		if sc.lastErr != nil {
			c.failed = better(c.failed, sc)
		}
	}
	slices.SortFunc(others, func(a, b connections) int { return cmp.Compare(a.best.number, b.best.number) })
	return slices.Concat(of, others)
}

// better returns the SubConn in the better state, or the older one. was may be nil.
func better(was, sc *subConn) *subConn {
	if was == nil {
		return sc
	}
	if r := cmp.Compare(rank(sc.state), rank(was.state)); r < 0 || r == 0 && sc.number < was.number {
		return sc
	}
	return was
}

// rank is lower for a better state, in gRPC's order.
func rank(s connectivity.State) int {
	return slices.Index([]connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure}, s)
}

// state is that of the best; IDLE without a SubConn.
func (c connections) state() connectivity.State {
	if c.best == nil {
		return connectivity.Idle
	}
	return c.best.state
}

func (f *foreign) Describe() policy.Node {
	n := policy.Node{Policy: f.builder.Name(), State: f.reported, Err: f.err, Endpoints: []policy.EndpointNode{}}
	for i, c := range f.connections() {
		e := policy.EndpointNode{State: c.state()}
		if i < len(f.endpoints.list) {
			e.Endpoint = f.endpoints.list[i]
		} else {
			e.Endpoint = c.best.endpoint.Load()
		}
		if e.State == connectivity.Ready {
			e.Address, _ = c.best.connected()
		} else if c.failed != nil {
			e.LastErr = c.failed.lastErr
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	return n
}

func (f *foreign) Summarize() policy.Summary {
	s := policy.Summary{State: f.reported, Priority: -1}
	for _, c := range f.connections() {
		s.Census.Count(c.state(), 1)
	}
	return s
}
