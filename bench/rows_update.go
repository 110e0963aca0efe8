package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/work"
)

const (
	subjectUnmarshal     = "proto.Unmarshal"
	subjectUnmarshalJSON = "protojson.Unmarshal"
	subjectBolt          = "bbolt"
	subjectQuiet         = "quiet"
)

// updateRows are changes of resources.
func updateRows() []row {
	const text = "1 of 10,000 endpoints changed, pushed until picks see it"
	return []row{
		changeRow("update", text+", protobuf, no store", "lbd-update", subjectUnmarshal, "unmarshal", bound{atMost, 1}),
		changeRow("update-store", text+", protobuf, store", "lbd-update-store", subjectUnmarshal, "unmarshal", bound{atMost, 1.5}),
		changeRow("update-json", text+", JSON, no store", "lbd-update-json", subjectUnmarshalJSON, "unmarshal-json", bound{}),
		picksDuringUpdatesRow(),
		picksDuringBulkRow(),
		durableRow(),
	}
}

func changeRow(name, text, kind, peerName, peerKind string, target bound) row {
	return row{
		name: name, work: text,
		start: func(_ context.Context, b *bench) (*running, error) {
			r := &running{}
			for _, s := range []struct{ name, kind string }{{subjectLBD, kind}, {peerName, peerKind}} {
				measure, err := b.startWork(r, s.kind, work.Options{Localities: b.localities, Each: b.each}, 1)
				if err != nil {
					return r, err
				}
				r.add(s.name, measure)
			}
			return r, nil
		},
		comparisons: []comparison{{cpuNanoseconds, subjectLBD, peerName, target}},
	}
}

// durableRow pushes 10 KB by 32 goroutines.
func durableRow() row {
	return row{
		name: "push-durable", work: "durable 10 KB pushes by 32 clients in the process; puts with bbolt's Batch on the same disk",
		start: func(_ context.Context, b *bench) (*running, error) {
			r := &running{}
			for _, s := range []struct{ name, kind string }{{subjectLBD, "lbd-push"}, {subjectBolt, "bbolt"}} {
				measure, err := b.startWork(r, s.kind, work.Options{}, 32)
				if err != nil {
					return r, err
				}
				r.add(s.name, measure)
			}
			return r, nil
		},
		comparisons: []comparison{
			{perSecond, subjectLBD, subjectBolt, bound{atLeast, 0.6}},
			{cpuNanoseconds, subjectLBD, subjectBolt, bound{}},
		},
	}
}

// updateRate is how often picksDuringUpdatesRow changes an endpoint.
const updateRate = 20

const updatesPerSecond = "updates per s"

// picksDuringUpdatesRow compares picks while a large cluster changes with picks while it
// does not.
func picksDuringUpdatesRow() row {
	return row{
		name: "picks-updating", work: "picks at half load, 64 connections, tcp, while 1 of 10,000 endpoints changes 20 times a second",
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
			bodies, err := twoAssignments(b.localities, b.each)
			if err != nil {
				return r, err
			}
			r.add(subjectQuiet, func(context.Context) (figures, error) { return latencies(g.run(spec)) })
			r.add(subjectLBD, func(ctx context.Context) (figures, error) { return updating(ctx, d, g, spec, bodies) })
			return r, nil
		},
		comparisons: []comparison{
			{p99, subjectLBD, subjectQuiet, bound{atMost, 2}},
			{p50, subjectLBD, subjectQuiet, bound{}},
			// Of a measurement of 2 s, one update may end too late.
			{updatesPerSecond, subjectLBD, "", bound{atLeast, updateRate * 0.95}},
		},
	}
}

func twoAssignments(localities, each int) (bodies [2][]byte, err error) {
	a := peer.Assignment(localities, each)
	for i := range bodies {
		a.GetEndpoints()[0].GetLbEndpoints()[0] = peer.Endpoint(fmt.Sprintf("10.255.255.%d", i), 9999)
		if bodies[i], err = proto.Marshal(a); err != nil {
			return bodies, err
		}
	}
	return bodies, nil
}

// updating measures picks while updates are pushed, one after the other at most.
func updating(ctx context.Context, d *daemon, g generator, spec load.Spec, bodies [2][]byte) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var updates atomic.Int64
	pushed := make(chan error, 1)
	begin := time.Now()
	go func() {
		due := begin
		for i := 0; ; i++ {
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				pushed <- nil
				return
			}
			due = due.Add(time.Second / updateRate)
			switch err := d.put(ctx, "endpoints", bodies[i%2]); {
			case ctx.Err() != nil:
				pushed <- nil
				return
			case err != nil:
				pushed <- err
				return
			}
			updates.Add(1)
		}
	}()
	result, err := g.run(spec)
	rate := float64(updates.Load()) / time.Since(begin).Seconds()
	cancel()
	if pushError := <-pushed; pushError != nil {
		return nil, pushError
	}
	f, err := latencies(result, err)
	if err == nil {
		f[updatesPerSecond] = rate
	}
	return f, err
}
