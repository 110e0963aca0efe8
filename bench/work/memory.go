package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// MemoryRequest asks what n things cost in memory.
type MemoryRequest struct {
	// Kind is endpoint, cluster or lease.
	Kind string `json:"kind"`
	N    int    `json:"n"`
	// Mode is the connect mode of endpoints.
	Mode string `json:"mode"`
}

// first is how many things are not counted.
func (r MemoryRequest) first() int {
	if r.Kind == "lease" {
		return 1
	}
	return r.N
}

// memoryTimeout bounds a measurement.
const memoryTimeout = 5 * time.Minute

// Memory returns the bytes of heap and stacks that each of n things adds, after garbage
// collection. The first lease is not counted, because it also starts what they share; nor
// are the first n endpoints or clusters, because they fill what is remembered of the last
// events of the process.
func Memory(r MemoryRequest) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), memoryTimeout)
	defer cancel()
	modes := map[string]resource.ConnectMode{
		"": resource.ConnectNone, "none": resource.ConnectNone, "tcp": resource.ConnectTCP, "tcp_hold": resource.ConnectTCPHold,
	}
	mode, known := modes[r.Mode]
	if !known || r.N < 1 {
		return 0, fmt.Errorf("connect mode %q, n %d: not none, tcp or tcp_hold, or not positive", r.Mode, r.N)
	}
	dialer := lb.NewDialer(nil, overload.Budget{}, nil, nil)
	defer dialer.Close()
	o := service.Options{Connectors: dialer.Connectors(mode), Sources: sources.Settings{ConnectMode: mode}, MaxLeases: r.N + 1, TimelineBytes: -1}
	s, stop, err := startService(ctx, "", o)
	if err != nil {
		return 0, err
	}
	defer stop()
	add, closePorts, err := adder(ctx, s, r)
	if err != nil {
		return 0, err
	}
	defer closePorts()
	first := r.first()
	if err := add(0, first); err != nil {
		return 0, err
	}
	before := inUse()
	if err := add(first, first+r.N); err != nil {
		return 0, err
	}
	return (inUse() - before) / float64(r.N), nil
}

// adder returns the function that adds the things from one number up to another.
func adder(ctx context.Context, s *service.Service, r MemoryRequest) (add func(from, to int) error, stop func(), err error) {
	stop = func() {}
	switch r.Kind {
	case "endpoint":
		ports, err := openPorts(r.first() + r.N)
		if err != nil {
			return nil, nil, err
		}
		return func(_, to int) error { return addEndpoints(ctx, s, ports.numbers[:to]) }, ports.close, nil
	case "cluster":
		return func(from, to int) error {
			a := peer.Assignment(1, 2)
			for i := from; i < to; i++ {
				a.ClusterName = fmt.Sprintf("cluster-%06d", i)
				if err := push(ctx, s, sources.Endpoints, a.GetClusterName(), a); err != nil {
					return err
				}
			}
			return nil
		}, stop, nil
	case "lease":
		err := errors.Join(
			push(ctx, s, sources.Config, peer.Cluster, peer.ClusterResource()),
			push(ctx, s, sources.Endpoints, peer.Cluster, peer.Assignment(10, 10)))
		var out picks.Picks
		return func(from, to int) error {
			for range to - from {
				if err := s.Picks.Pick(ctx, &picks.Request{Cluster: peer.Cluster, TTL: leaseTTL}, &out); err != nil {
					return err
				}
			}
			return nil
		}, stop, err
	}
	return nil, nil, fmt.Errorf("kind %q is not endpoint, cluster or lease", r.Kind)
}

// addEndpoints pushes a cluster with endpoints at ports, and waits until all are READY.
func addEndpoints(ctx context.Context, s *service.Service, ports []int) error {
	a := peer.Assignment(1, 1)
	l := a.GetEndpoints()[0]
	l.LbEndpoints = nil
	for _, port := range ports {
		l.LbEndpoints = append(l.LbEndpoints, peer.Endpoint("127.0.0.1", uint32(port)))
	}
	if err := push(ctx, s, sources.Endpoints, peer.Cluster, a); err != nil {
		return err
	}
	for {
		state, err := s.State.Cluster(ctx, peer.Cluster, "", true)
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range state.Priorities {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					if e.State == "READY" {
						ready++
					}
				}
			}
		}
		if ready == len(ports) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d endpoints are READY: %w", ready, len(ports), ctx.Err())
		}
	}
}

// inUse returns the bytes of heap and stacks after garbage collection. The second
// collection frees what the first one only removed from pools.
func inUse() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
