package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/process"
	"github.com/lbd-dev/lbd/bench/work"
)

// memoryRows are the bytes that each thing adds.
func memoryRows() []row {
	endpoint := func(mode string, most float64) row {
		return memoryRow("heap-"+mode, "heap and stacks for each endpoint, connect mode "+mode,
			work.MemoryRequest{Kind: "endpoint", N: 2000, Mode: mode}, most)
	}
	return []row{
		endpoint("none", 500),
		endpoint("tcp", 1200),
		endpoint("tcp_hold", 4000),
		memoryRow("heap-cluster", "heap for each cluster of 2 endpoints, without history", work.MemoryRequest{Kind: "cluster", N: 2000}, 8000),
		memoryRow("heap-lease", "heap for each lease", work.MemoryRequest{Kind: "lease", N: 100_000}, 200),
		watcherRow(),
	}
}

// briefMemory is how many things a brief run adds.
const briefMemory = 20

func memoryRow(name, text string, request work.MemoryRequest, most float64) row {
	return row{
		name: name, work: text,
		start: func(_ context.Context, b *bench) (*running, error) {
			if b.brief {
				request.N = briefMemory
			}
			r := &running{}
			r.add(subjectLBD, func(context.Context) (figures, error) {
				own := &running{} // a process for each measurement
				defer own.stop()
				w, err := b.worker(own, roleMemory)
				if err != nil {
					return nil, err
				}
				var each float64
				err = w.Do(request, &each)
				return figures{bytesEach: each}, err
			})
			return r, nil
		},
		comparisons: []comparison{{bytesEach, subjectLBD, "", bound{atMost, most}}},
	}
}

// watcherRow measures the resident memory of the daemon with watchers.
func watcherRow() row {
	return row{
		name: "rss-watcher", work: "resident memory for each of 10,000 SSE watchers of a cluster, unix",
		start: func(_ context.Context, b *bench) (*running, error) {
			n := 10_000
			if b.brief {
				n = briefMemory
			}
			r := &running{}
			r.add(subjectLBD, func(ctx context.Context) (figures, error) {
				own := &running{}
				defer own.stop()
				d, err := b.startOrders(ctx, own, "unix", 10, 10,
					fmt.Sprintf("--max-streams=%d", n), fmt.Sprintf("--max-connections=%d", n+spare), fmt.Sprintf("--max-peer-connections=%d", n+spare))
				if err != nil {
					return nil, err
				}
				before, _, err := process.RSS(d.PID())
				if err != nil {
					return nil, err
				}
				for range n {
					c, err := watch(ctx, d.at)
					if err != nil {
						return nil, err
					}
					own.onStop(func() { _ = c.Close() })
				}
				after, _, err := process.RSS(d.PID())
				return figures{bytesEach: float64(after-before) / float64(n)}, err
			})
			return r, nil
		},
		comparisons: []comparison{{bytesEach, subjectLBD, "", bound{atMost, 8000}}},
	}
}

// spare is the number of connections of a daemon that are for others than watchers.
const spare = 100

// watchTimeout is how long the begin of a watch may take.
const watchTimeout = 10 * time.Second

// watch opens a stream of a cluster's changes, and reads the begin of its first event.
func watch(ctx context.Context, at peer.Listen) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, at.Network, at.Address)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 200)
	if _, err = fmt.Fprintf(c, "GET /v1/clusters/%s/watch HTTP/1.1\r\nHost: localhost\r\n\r\n", peer.Cluster); err == nil {
		if err = c.SetReadDeadline(time.Now().Add(watchTimeout)); err == nil {
			_, err = io.ReadFull(c, head)
		}
	}
	if err == nil && string(head[:12]) != "HTTP/1.1 200" {
		err = fmt.Errorf("watch: %q", head)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
