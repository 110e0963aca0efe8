package main

import (
	"context"
	"slices"

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
	return slices.Concat([]row{
		changeRow("update", text+", protobuf, no store", "lbd-update", subjectUnmarshal, "unmarshal", bound{atMost, 1}),
		changeRow("update-store", text+", protobuf, store", "lbd-update-store", subjectUnmarshal, "unmarshal", bound{atMost, 1.5}),
		changeRow("update-json", text+", JSON, no store", "lbd-update-json", subjectUnmarshalJSON, "unmarshal-json", bound{atMost, 0.25}),
	}, duringRows(), []row{durableRow()})
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
