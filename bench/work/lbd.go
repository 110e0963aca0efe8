package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// startService starts lbd without HTTP, with a history of changes, on a store in dir, or in memory if dir is empty.
func startService(ctx context.Context, dir string, o service.Options) (*service.Service, func(), error) {
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Connectors == nil {
		o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil}
		o.Sources.ConnectMode = resource.ConnectNone
	}
	o.Sources.Changelog = changelog.Limits{Changes: 1000, Bytes: 32 << 20} // the defaults
	s := service.New(o)
	st, err := file.Open(dir, file.Options{OnCommit: s.Inbound.Commit, OnLost: s.Inbound.StoreLost})
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	stop := func() {
		s.Close()
		_ = st.Close() // the directory is removed
	}
	if err := s.Start(ctx, sources.Connections{Store: st}); err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

func push(ctx context.Context, s *service.Service, kind sources.Kind, cluster string, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = s.Sources.Push(ctx, &sources.PushRequest{Kind: kind, Cluster: cluster, Body: body, Format: sources.Protobuf})
	return err
}

// startSquare starts lbd with a cluster that has drops and a circuit breaker.
func startSquare(ctx context.Context, o Options) (*service.Service, func(), error) {
	s, stop, err := startService(ctx, "", service.Options{})
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(
		push(ctx, s, sources.Config, peer.Cluster, peer.ClusterResource()),
		push(ctx, s, sources.Endpoints, peer.Cluster, peer.WithDrop(peer.Assignment(o.Localities, o.Each))))
	if err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// dropped reports whether a pick was dropped, as one in a million is.
func dropped(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == fault.Dropped
}

func lbdPick(ctx context.Context, o Options) (func() Do, func(), error) {
	s, stop, err := startSquare(ctx, o)
	return func() Do {
		r := picks.Request{Cluster: peer.Cluster}
		var out picks.Picks
		return func() error {
			if err := s.Picks.Pick(ctx, &r, &out); err != nil && !dropped(err) {
				return err
			}
			return nil
		}
	}, stop, err
}

// leaseTTL is longer than a measurement.
const leaseTTL = 5 * time.Minute

func lbdLease(ctx context.Context, o Options) (func() Do, func(), error) {
	s, stop, err := startSquare(ctx, o)
	return func() Do {
		r := picks.Request{Cluster: peer.Cluster, TTL: leaseTTL}
		var out picks.Picks
		return func() error {
			if err := s.Picks.Pick(ctx, &r, &out); err != nil {
				if dropped(err) {
					return nil
				}
				return err
			}
			_, err := s.Picks.EndLease(out.Picks[0].Lease.ID, picks.Success, nil)
			return err
		}
	}, stop, err
}

// update pushes an assignment in two versions, in turn: one endpoint differs. The push
// returns when picks use it.
func update(ctx context.Context, o Options, format sources.Format, marshal func(proto.Message) ([]byte, error)) (func() Do, func(), error) {
	versions, err := twoVersions(o, marshal)
	if err != nil {
		return nil, nil, err
	}
	s, stop, err := startService(ctx, o.Dir, service.Options{})
	var n atomic.Int64
	return func() Do {
		return func() error {
			_, err := s.Sources.Push(ctx, &sources.PushRequest{
				Kind: sources.Endpoints, Cluster: peer.Cluster, Body: versions[n.Add(1)%2], Format: format,
			})
			return err
		}
	}, stop, err
}

// twoVersions returns an assignment in two versions that differ in one endpoint.
func twoVersions(o Options, marshal func(proto.Message) ([]byte, error)) (versions [2][]byte, err error) {
	a := peer.Assignment(o.Localities, o.Each)
	if versions[0], err = marshal(a); err != nil {
		return versions, err
	}
	endpoints := a.GetEndpoints()[o.Localities/2].GetLbEndpoints()
	endpoints[o.Each/2] = peer.Endpoint("10.255.255.1", 9999)
	versions[1], err = marshal(a)
	return versions, err
}

func lbdUpdate(ctx context.Context, o Options) (func() Do, func(), error) {
	o.Dir = ""
	return update(ctx, o, sources.Protobuf, proto.Marshal)
}

func lbdUpdateStore(ctx context.Context, o Options) (func() Do, func(), error) {
	return update(ctx, o, sources.Protobuf, proto.Marshal)
}

func lbdUpdateJSON(ctx context.Context, o Options) (func() Do, func(), error) {
	o.Dir = ""
	return update(ctx, o, sources.JSON, protojson.Marshal)
}

// pushSize is about the size of a durable push.
const pushSize = 10_000

// pushEndpoints is how many endpoints have that size.
func pushEndpoints() int { return pushSize / proto.Size(peer.Assignment(1, 100)) * 100 }

// lbdPush pushes assignments of 10 KB durably, each goroutine two versions of a cluster of
// its own.
func lbdPush(ctx context.Context, o Options) (func() Do, func(), error) {
	s, stop, err := startService(ctx, o.Dir, service.Options{})
	var goroutines atomic.Int64
	return func() Do {
		r := sources.PushRequest{Kind: sources.Endpoints, Cluster: fmt.Sprintf("cluster-%d", goroutines.Add(1)), Format: sources.Protobuf}
		versions, err := pushVersions(r.Cluster)
		n := 0
		return func() error {
			if err != nil {
				return err
			}
			n++
			r.Body = versions[n%2]
			_, err := s.Sources.Push(ctx, &r)
			return err
		}
	}, stop, err
}

func pushVersions(cluster string) (versions [2][]byte, err error) {
	a := peer.Assignment(1, pushEndpoints())
	a.ClusterName = cluster
	for i := range versions {
		a.GetEndpoints()[0].GetLbEndpoints()[0] = peer.Endpoint(fmt.Sprintf("10.254.0.%d", i), 9999)
		if versions[i], err = proto.Marshal(a); err != nil {
			return versions, err
		}
	}
	return versions, nil
}
