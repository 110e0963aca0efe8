package work

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"go.etcd.io/bbolt"
	"google.golang.org/grpc/balancer"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/peer"
)

func leanPick(_ context.Context, o Options) (func() Do, func(), error) {
	l := peer.NewLean(o.Localities * o.Each)
	return func() Do {
		return func() error {
			_, _ = l.Pick() // one in a million is dropped
			return nil
		}
	}, func() {}, nil
}

func leanLease(_ context.Context, o Options) (func() Do, func(), error) {
	l := peer.NewLean(o.Localities * o.Each)
	return func() Do {
		return func() error {
			if _, id, err := l.Lease(leaseTTL); err == nil { // else it was dropped, as one in a million is
				return l.End(id)
			}
			return nil
		}
	}, func() {}, nil
}

func grpcPick(ctx context.Context, o Options) (func() Do, func(), error) {
	g, err := peer.StartGRPC(ctx, peer.WithDrop(peer.Assignment(o.Localities, o.Each)))
	if err != nil {
		return nil, nil, err
	}
	return func() Do {
		info := balancer.PickInfo{FullMethodName: "/bench.Orders/List", Ctx: ctx}
		return func() error { return g.Pick(info) }
	}, g.Close, nil
}

func unmarshal(_ context.Context, o Options) (func() Do, func(), error) {
	return decode(o, proto.Marshal, proto.Unmarshal)
}

func unmarshalJSON(_ context.Context, o Options) (func() Do, func(), error) {
	return decode(o, protojson.Marshal, protojson.Unmarshal)
}

func decode(o Options, marshal func(proto.Message) ([]byte, error), unmarshal func([]byte, proto.Message) error) (func() Do, func(), error) {
	versions, err := twoVersions(o, marshal)
	var n atomic.Int64
	return func() Do {
		return func() error {
			return unmarshal(versions[n.Add(1)%2], new(endpointv3.ClusterLoadAssignment))
		}
	}, func() {}, err
}

// bboltPush puts values of 10 KB with bbolt's Batch, each under a key for its goroutine.
func bboltPush(_ context.Context, o Options) (func() Do, func(), error) {
	db, err := bbolt.Open(filepath.Join(o.Dir, "bbolt.db"), 0o600, nil)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = db.Close() } // the directory is removed
	bucket := []byte("resources")
	if err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	}); err != nil {
		stop()
		return nil, nil, err
	}
	var goroutines atomic.Int64
	return func() Do {
		key := fmt.Appendf(nil, "cluster-%d", goroutines.Add(1))
		value := bytes.Repeat([]byte("x"), pushSize)
		n := 0
		return func() error {
			n++
			value[0], value[1], value[2] = byte(n), byte(n>>8), byte(n>>16)
			return db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) })
		}
	}, stop, nil
}
