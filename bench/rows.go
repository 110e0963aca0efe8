package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lbd-dev/lbd/bench/work"
)

// The subjects.
const (
	subjectLBD     = "lbd"
	subjectLean    = "lean"
	subjectGRPC    = "grpc-go"
	subjectBare    = "net/http"
	subjectFast    = "fasthttp"
	subjectNginx   = "nginx"
	subjectHAProxy = "HAProxy"
	subjectEnvoy   = "Envoy"
)

// The figures.
const (
	cpuNanoseconds = "CPU ns"
	allocations    = "allocations"
	perCPUSecond   = "per CPU s"
	perSecond      = "per s"
	p50            = "p50 µs"
	p99            = "p99 µs"
	minimum        = "min µs"
	bytesEach      = "bytes each"
)

// rows lists all rows, in the order of the table.
func rows() []row {
	var all []row
	for _, group := range [][]row{pickRows(), getRows(), latencyRows(), hopRows(), updateRows(), memoryRows(), scaleRows()} {
		all = append(all, group...)
	}
	return all
}

// pickRows are picks within a process, on one goroutine and on two.
func pickRows() []row {
	return []row{
		workRow("pick", "a pick by cluster name in the process", 1, subjectWork{"lbd-pick", "lean-pick", "grpc-pick"}, 2, 1.0/7),
		workRow("pick-2", "the same on 2 goroutines", 2, subjectWork{"lbd-pick", "lean-pick", "grpc-pick"}, 2, 1.0/7),
		workRow("lease", "a pick with a lease, and the end of the lease, in the process", 1, subjectWork{"lbd-lease", "lean-lease", "grpc-pick"}, 4, 1.0/3),
		workRow("lease-2", "the same on 2 goroutines", 2, subjectWork{"lbd-lease", "lean-lease", "grpc-pick"}, 4, 1.0/3),
	}
}

// subjectWork is the work of the subjects.
type subjectWork struct{ lbd, lean, grpc string }

func workRow(name, text string, goroutines int, kinds subjectWork, ofLean, ofGRPC float64) row {
	return row{
		name: name, work: text,
		start: func(_ context.Context, b *bench) (*running, error) {
			r := &running{}
			for _, s := range []struct{ name, kind string }{{subjectLBD, kinds.lbd}, {subjectLean, kinds.lean}, {subjectGRPC, kinds.grpc}} {
				measure, err := b.startWork(r, s.kind, work.Options{Localities: b.localities, Each: b.each}, goroutines)
				if err != nil {
					return r, err
				}
				r.add(s.name, measure)
			}
			return r, nil
		},
		comparisons: []comparison{
			{cpuNanoseconds, subjectLBD, subjectLean, bound{atMost, ofLean}},
			{cpuNanoseconds, subjectLBD, subjectGRPC, bound{atMost, ofGRPC}},
			// The measurement itself allocates some objects in all.
			{allocations, subjectLBD, "", bound{atMost, 0.01}},
		},
	}
}

// startWork starts a worker, and returns what measures it.
func (b *bench) startWork(r *running, kind string, o work.Options, goroutines int) (func(context.Context) (figures, error), error) {
	w, err := b.worker(r, roleWork, kind)
	if err != nil {
		return nil, err
	}
	if o.Dir, err = os.MkdirTemp(b.dir, "work"); err != nil {
		return nil, err
	}
	if b.profiles != "" {
		o.Profile = filepath.Join(b.profiles, fmt.Sprintf("%s-%d.pprof", kind, goroutines))
	}
	var none work.Result
	if err := w.Do(workRequest{Start: &o}, &none); err != nil {
		return nil, err
	}
	measure := func(d time.Duration) (result work.Result, err error) {
		err = w.Do(workRequest{Measure: &work.Request{Duration: d, Goroutines: goroutines}}, &result)
		return result, err
	}
	if _, err := measure(b.warmup); err != nil {
		return nil, err
	}
	return func(context.Context) (figures, error) {
		result, err := measure(b.measure)
		if err != nil {
			return nil, err
		}
		count := float64(result.Count)
		return figures{
			cpuNanoseconds: float64(result.CPU) / count,
			allocations:    float64(result.Allocations) / count,
			perSecond:      count / result.Elapsed.Seconds(),
			perCPUSecond:   count / result.CPU.Seconds(),
		}, nil
	}, nil
}
