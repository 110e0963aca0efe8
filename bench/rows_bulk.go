package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
)

const (
	// bulkCallers is how many callers push snapshots, and how many read them.
	bulkCallers = 2
	// bulkEndpoints is how many endpoints each cluster of a snapshot has.
	bulkEndpoints = 100
)

const (
	pushesPerSecond = "pushes per s"
	readsPerSecond  = "reads per s"
)

// picksDuringBulkRow compares picks while large snapshots are pushed and read with picks
// while lbd does nothing else.
func picksDuringBulkRow() row {
	return row{
		name: "picks-bulk",
		work: "picks at half load, 64 connections, tcp, while 2 callers push snapshots of 500 clusters with 100 endpoints as JSON, and 2 read them",
		start: func(ctx context.Context, b *bench) (*running, error) {
			r := &running{}
			g, err := b.generator(r)
			if err != nil {
				return r, err
			}
			d, err := b.startOrders(ctx, r, "tcp", b.localities, b.each)
			if err != nil {
				return r, err
			}
			spec := b.spec(httpSubject{subjectLBD, d.server, get(pickPath)}, 64)
			half, err := halfLoad(g, spec)
			if err != nil {
				return r, err
			}
			spec.Rate = half
			clusters := 500
			if b.brief {
				clusters = 5
			}
			bodies, err := twoSnapshots(clusters)
			if err != nil {
				return r, err
			}
			for _, body := range bodies { // both, so that no tree is new
				if err := d.postSnapshot(ctx, body); err != nil {
					return r, err
				}
			}
			r.add(subjectQuiet, func(context.Context) (figures, error) { return latencies(g.run(spec)) })
			r.add(subjectLBD, func(ctx context.Context) (figures, error) { return besideBulk(ctx, d, g, spec, bodies) })
			return r, nil
		},
		comparisons: []comparison{
			{p99, subjectLBD, subjectQuiet, bound{}},
			{p50, subjectLBD, subjectQuiet, bound{}},
			{pushesPerSecond, subjectLBD, "", bound{}},
			{readsPerSecond, subjectLBD, "", bound{}},
		},
	}
}

// twoSnapshots returns the same clusters twice, as JSON. One endpoint of each differs.
func twoSnapshots(clusters int) (bodies [2][]byte, err error) {
	for i := range bodies {
		response := &discoveryv3.DiscoveryResponse{}
		for n := range clusters {
			a := peer.Assignment(1, bulkEndpoints)
			a.ClusterName = fmt.Sprintf("bulk-%d", n)
			a.GetEndpoints()[0].GetLbEndpoints()[0] = peer.Endpoint(fmt.Sprintf("10.255.255.%d", i), 9999)
			one, err := anypb.New(a)
			if err != nil {
				return bodies, err
			}
			response.Resources = append(response.Resources, one)
		}
		if bodies[i], err = protojson.Marshal(response); err != nil {
			return bodies, err
		}
	}
	return bodies, nil
}

func (d *daemon) postSnapshot(ctx context.Context, body []byte) error {
	_, err := d.callAs(ctx, "application/json", http.MethodPost, "/v1/snapshot", body)
	return err
}

// besideBulk measures picks while snapshots are pushed and read, one after the other by each caller.
func besideBulk(ctx context.Context, d *daemon, g generator, spec load.Spec, bodies [2][]byte) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pushes, reads atomic.Int64
	ended := make(chan error)
	caller := func(count *atomic.Int64, call func(i int) error) {
		for i := 0; ; i++ {
			switch err := call(i); {
			case ctx.Err() != nil:
				ended <- nil
				return
			case err != nil:
				ended <- err
				return
			}
			count.Add(1)
		}
	}
	begin := time.Now()
	for c := range bulkCallers {
		go caller(&pushes, func(i int) error { return d.postSnapshot(ctx, bodies[(c+i)%2]) })
		go caller(&reads, func(int) error {
			_, err := d.call(ctx, http.MethodGet, "/v1/snapshot", nil)
			return err
		})
	}
	result, err := g.run(spec)
	elapsed := time.Since(begin).Seconds()
	pushed, read := float64(pushes.Load())/elapsed, float64(reads.Load())/elapsed
	cancel()
	for range 2 * bulkCallers {
		err = errors.Join(err, <-ended)
	}
	f, err := latencies(result, err)
	if err == nil {
		f[pushesPerSecond], f[readsPerSecond] = pushed, read
	}
	return f, err
}
