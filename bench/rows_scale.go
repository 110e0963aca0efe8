package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/process"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// Figures of large numbers.
const (
	moreMegabytes = "more RSS MB"
	peakMegabytes = "peak RSS MB"
	lateSeconds   = "late s"
	overQuiet     = "p99 of picks / quiet"
	firstPick     = "first pick s"
	perSeries     = "/metrics, CPU µs each series"
)

const megabyte = 1 << 20

// scaleRows are large numbers of leases and of clusters.
func scaleRows() []row {
	return []row{
		{
			name: "expiry", work: "1,000,000 leases that expire in the same second", long: true,
			start: startExpiry,
			comparisons: []comparison{
				{moreMegabytes, subjectLBD, "", bound{atMost, 100}},
				{lateSeconds, subjectLBD, "", bound{atMost, 1}},
				{overQuiet, subjectLBD, "", bound{atMost, 2}},
			},
		},
		{
			name: "start", work: "start with 100,000 clusters from the store; /metrics with them", long: true,
			start: startStored,
			comparisons: []comparison{
				{firstPick, subjectLBD, "", bound{atMost, 3}},
				{peakMegabytes, subjectLBD, "", bound{atMost, 1024}},
				{perSeries, subjectLBD, "", bound{atMost, 3}},
			},
		},
	}
}

func startExpiry(_ context.Context, b *bench) (*running, error) {
	r := &running{}
	g, err := b.generator(r)
	if err != nil {
		return r, err
	}
	r.add(subjectLBD, func(ctx context.Context) (figures, error) {
		own := &running{}
		defer own.stop()
		d, err := b.startOrders(ctx, own, "unix", 10, 10, fmt.Sprintf("--max-leases=%d", b.leases+1000), "--api-bytes=8589934592")
		if err != nil {
			return nil, err
		}
		return b.expire(ctx, d, g)
	})
	return r, nil
}

// expire grants leases that expire together, and measures picks at that time.
func (b *bench) expire(ctx context.Context, d *daemon, g generator) (figures, error) {
	spec := b.spec(httpSubject{subjectLBD, d.server, get(pickPath)}, 16)
	half, err := halfLoad(g, spec)
	if err != nil {
		return nil, err
	}
	spec.Rate = half
	spec.Duration = 5 * time.Second
	deadline := time.Now().Add(60 * time.Second)
	if b.brief {
		spec.Duration = 200 * time.Millisecond
		deadline = time.Now().Add(time.Second)
	}
	quiet, err := g.run(spec)
	if err != nil {
		return nil, err
	}
	if err := grant(ctx, d, b.leases, deadline); err != nil {
		return nil, err
	}
	before, _, err := process.RSS(d.PID())
	if err != nil {
		return nil, err
	}
	if err := process.ResetPeak(d.PID()); err != nil {
		return nil, err
	}
	// Most of the picks are after the leases have expired.
	select {
	case <-time.After(time.Until(deadline) - spec.Duration/5):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type loadResult struct {
		load.Result
		err error
	}
	loaded := make(chan loadResult, 1)
	go func() {
		result, err := g.run(spec)
		loaded <- loadResult{result, err}
	}()
	late, err := awaitNoLeases(ctx, d, deadline)
	during := <-loaded
	if err != nil {
		return nil, err
	}
	if during.err != nil {
		return nil, during.err
	}
	_, peak, err := process.RSS(d.PID())
	return figures{
		moreMegabytes: float64(peak-before) / megabyte, lateSeconds: late.Seconds(), overQuiet: during.P99 / quiet.P99, p99: during.P99 / 1e3,
	}, err
}

// grant takes n leases that expire at a time.
func grant(ctx context.Context, d *daemon, n int, expires time.Time) error {
	for n > 0 {
		ttl := time.Until(expires).Truncate(time.Millisecond)
		if ttl <= 0 {
			return fmt.Errorf("%d leases could not be granted before the others expired", n)
		}
		batch := min(n, 1000)
		if _, err := d.call(ctx, http.MethodPost, fmt.Sprintf("%s&n=%d&ttl=%s", pickPath, batch, ttl), nil); err != nil {
			return err
		}
		n -= batch
	}
	return nil
}

// maxLate bounds the wait for leases to expire.
const maxLate = 2 * time.Minute

// awaitNoLeases waits until the cluster has no leases, and returns how long after the
// deadline that was.
func awaitNoLeases(ctx context.Context, d *daemon, deadline time.Time) (time.Duration, error) {
	for {
		body, err := d.call(ctx, http.MethodGet, "/v1/clusters/"+peer.Cluster+"?endpoints=false", nil)
		if err != nil {
			return 0, err
		}
		var state struct {
			Leases int `json:"leases"`
		}
		if err := json.Unmarshal(body, &state); err != nil {
			return 0, fmt.Errorf("read the state of the cluster: %w", err)
		}
		late := time.Since(deadline)
		if state.Leases == 0 {
			return max(late, 0), nil
		}
		if late > maxLate {
			return 0, fmt.Errorf("%d leases are held %s after they expired", state.Leases, maxLate)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func startStored(ctx context.Context, b *bench) (*running, error) {
	r := &running{}
	data, err := os.MkdirTemp(b.dir, "data")
	if err != nil {
		return r, err
	}
	if err := fill(ctx, data, b.clusters); err != nil {
		return r, err
	}
	r.add(subjectLBD, func(ctx context.Context) (figures, error) {
		own := &running{}
		defer own.stop()
		begin := time.Now()
		d, err := b.startDaemon(ctx, own, "unix", data)
		if err != nil {
			return nil, err
		}
		if _, err := d.call(ctx, http.MethodGet, "/pick?cluster="+storedName(b.clusters-1), nil); err != nil {
			return nil, err
		}
		first := time.Since(begin)
		before, err := process.CPU(d.PID())
		if err != nil {
			return nil, err
		}
		metrics, err := d.call(ctx, http.MethodGet, "/metrics", nil)
		if err != nil {
			return nil, err
		}
		after, err := process.CPU(d.PID())
		if err != nil {
			return nil, err
		}
		_, peak, err := process.RSS(d.PID())
		return figures{
			firstPick: first.Seconds(), peakMegabytes: float64(peak) / megabyte,
			perSeries: float64((after - before).Microseconds()) / float64(series(metrics)),
		}, err
	})
	return r, nil
}

// series counts the series of a scrape.
func series(metrics []byte) (n int) {
	for l := range bytes.Lines(metrics) {
		if len(l) > 1 && l[0] != '#' {
			n++
		}
	}
	return n
}

func storedName(i int) string { return fmt.Sprintf("cluster-%06d", i) }

// fill writes clusters of two endpoints to the store of a data directory.
func fill(ctx context.Context, dir string, n int) error {
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		return err
	}
	_, err = s.Update(ctx, func(tx *store.Tx) error {
		a := peer.Assignment(1, 2)
		for i := range n {
			a.ClusterName = storedName(i)
			raw, err := proto.Marshal(a)
			if err != nil {
				return err
			}
			if err := tx.Put(resource.Key{Type: resource.TypeAssignment, Name: a.GetClusterName()}, raw); err != nil {
				return err
			}
		}
		return nil
	})
	if closeError := s.Close(); err == nil {
		err = closeError
	}
	return err
}
