package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
)

const (
	// updateRate is how often picks-updating changes an endpoint in a second.
	updateRate = 20
	// bulkCallers is how many callers push snapshots, and how many read them.
	bulkCallers = 2
	// bulkEndpoints is how many endpoints each cluster of a snapshot has.
	bulkEndpoints = 100
)

const (
	updatesPerSecond = "updates per s"
	pushesPerSecond  = "pushes per s"
	readsPerSecond   = "reads per s"
)

// otherWork is what callers send while picks are measured.
type otherWork struct {
	callers []caller
	figures []string // of each caller: what its requests count for
}

func (o *otherWork) add(figure string, c caller) {
	o.callers, o.figures = append(o.callers, c), append(o.figures, figure)
}

// duringRow completes a row that compares picks while lbd does other work with picks while it does
// nothing else. part is that of the load which lbd can carry.
func duringRow(r row, part float64, other func(b *bench) (otherWork, error)) row {
	r.start = func(ctx context.Context, b *bench) (*running, error) {
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
		spec.Rate = 2 * half * part
		work, err := other(b)
		if err != nil {
			return r, err
		}
		for _, c := range work.callers { // so that nothing is new
			for _, body := range c.Bodies {
				if _, err := d.callAs(ctx, c.MediaType, c.Method, c.Path, body); err != nil {
					return r, err
				}
			}
		}
		all, err := b.callers(r, d.server, work.callers)
		if err != nil {
			return r, err
		}
		r.add(subjectQuiet, func(context.Context) (figures, error) { return latencies(g.run(spec)) })
		r.add(subjectLBD, func(context.Context) (figures, error) { return during(g, spec, all, work.figures) })
		return r, nil
	}
	return r
}

// during measures picks while callers send requests, which are counted.
func during(g generator, spec load.Spec, all callers, names []string) (figures, error) {
	var answered []int
	ended := make(chan error)
	go func() {
		var err error
		answered, err = all.run(spec.Warmup + spec.Duration)
		ended <- err
	}()
	result, err := g.run(spec)
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	f, err := latencies(result, nil)
	for i, n := range answered {
		f[names[i]] += float64(n) / (spec.Warmup + spec.Duration).Seconds()
	}
	return f, err
}

// duringRows are picks while lbd does other work.
func duringRows() []row {
	return []row{
		duringRow(row{
			name: "picks-updating", work: "picks at half load, 64 connections, tcp, while 1 of 10,000 endpoints changes 20 times a second",
			comparisons: []comparison{
				{p99, subjectLBD, subjectQuiet, bound{atMost, 2}},
				{p50, subjectLBD, subjectQuiet, bound{}},
				// Of a measurement of 2 s, one update may end too late.
				{updatesPerSecond, subjectLBD, "", bound{atLeast, updateRate * 0.95}},
			},
		}, 0.5, updates),
		bulkRow("picks-bulk", "half", 0.5),
		bulkRow("picks-bulk-4", "a quarter of the", 0.25),
	}
}

// bulkRow compares picks while snapshots are pushed and read.
func bulkRow(name, text string, part float64) row {
	return duringRow(row{
		name: name,
		work: "picks at " + text + " load, 64 connections, tcp, while 2 callers push snapshots of 500 clusters with 100 endpoints as JSON, and 2 read them",
		comparisons: []comparison{
			{p99, subjectLBD, subjectQuiet, bound{}},
			{p50, subjectLBD, subjectQuiet, bound{}},
			{pushesPerSecond, subjectLBD, "", bound{}},
			{readsPerSecond, subjectLBD, "", bound{}},
		},
	}, part, snapshots)
}

// updates change one endpoint of a large cluster.
func updates(b *bench) (o otherWork, err error) {
	a := peer.Assignment(b.localities, b.each)
	bodies := make([][]byte, 2)
	for i := range bodies {
		a.GetEndpoints()[0].GetLbEndpoints()[0] = changed(i)
		if bodies[i], err = proto.Marshal(a); err != nil {
			return o, err
		}
	}
	o.add(updatesPerSecond, caller{
		Method: http.MethodPut, Path: "/v1/clusters/" + peer.Cluster + "/endpoints", MediaType: "application/x-protobuf",
		Bodies: bodies, Every: time.Second / updateRate,
	})
	return o, nil
}

// changed is the endpoint that differs between two versions of a cluster.
func changed(version int) *endpointv3.LbEndpoint {
	return peer.Endpoint(fmt.Sprintf("10.255.255.%d", version), 9999)
}

// snapshots push and read snapshots, without a pause.
func snapshots(b *bench) (o otherWork, err error) {
	clusters := 500
	if b.brief {
		clusters = 5
	}
	bodies := make([][]byte, 2)
	for i := range bodies {
		if bodies[i], err = snapshot(clusters, i); err != nil {
			return o, err
		}
	}
	for i := range bulkCallers {
		o.add(pushesPerSecond, caller{
			Method: http.MethodPost, Path: "/v1/snapshot", MediaType: "application/json", Bodies: [][]byte{bodies[i%2], bodies[(i+1)%2]},
		})
		o.add(readsPerSecond, caller{Method: http.MethodGet, Path: "/v1/snapshot"})
	}
	return o, nil
}

// snapshot returns clusters as JSON. One endpoint of each differs between versions.
func snapshot(clusters, version int) ([]byte, error) {
	response := &discoveryv3.DiscoveryResponse{}
	for n := range clusters {
		a := peer.Assignment(1, bulkEndpoints)
		a.ClusterName = fmt.Sprintf("bulk-%d", n)
		a.GetEndpoints()[0].GetLbEndpoints()[0] = changed(version)
		one, err := anypb.New(a)
		if err != nil {
			return nil, err
		}
		response.Resources = append(response.Resources, one)
	}
	return protojson.Marshal(response)
}
