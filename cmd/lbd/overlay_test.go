package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
)

// leaseholders pick with leases and end them, from several connections. A pick that fails fails the
// test, and so does one that begins after forbid and has the address.
type leaseholders struct {
	t       *testing.T
	url     string
	cluster string

	forbidden atomic.Pointer[string]
	made      sync.Map // *atomic.Int64 by address
	stopped   chan struct{}
	running   sync.WaitGroup
}

func holdLeases(t *testing.T, url, cluster string) *leaseholders {
	t.Helper()
	h := &leaseholders{t: t, url: url, cluster: cluster, stopped: make(chan struct{})}
	for range 3 {
		h.running.Go(h.run)
	}
	t.Cleanup(h.stop)
	return h
}

func (h *leaseholders) run() {
	var held []string
	defer func() {
		for _, location := range held {
			_, _ = try(h.t.Context(), http.DefaultClient, "POST", h.url+location+"/done", "")
		}
	}()
	for {
		select {
		case <-h.stopped:
			return
		default:
		}
		forbidden := h.forbidden.Load()
		a, err := try(h.t.Context(), http.DefaultClient, "POST", h.url+"/pick?ttl=1m&cluster="+h.cluster, "")
		switch {
		case h.t.Context().Err() != nil:
			return
		case err != nil || a.status != http.StatusCreated:
			h.t.Errorf("a pick of %s failed: %+v, %v", h.cluster, a, err)
			return
		case forbidden != nil && a.address() == *forbidden:
			h.t.Errorf("a pick of %s that began after the drain has its endpoint %s", h.cluster, *forbidden)
			return
		}
		n, _ := h.made.LoadOrStore(a.address(), new(atomic.Int64))
		n.(*atomic.Int64).Add(1) //nolint:errcheck // it has nothing else
		if held = append(held, a.header.Get("Location")); len(held) == 5 {
			_, _ = try(h.t.Context(), http.DefaultClient, "POST", h.url+held[0]+"/done", "")
			held = held[1:]
		}
	}
}

func (h *leaseholders) stop() {
	select {
	case <-h.stopped:
	default:
		close(h.stopped)
	}
	h.running.Wait()
}

// more waits for more picks of an address.
func (h *leaseholders) more(address string) {
	h.t.Helper()
	count := func() int64 {
		n, ok := h.made.Load(address)
		if !ok {
			return 0
		}
		return n.(*atomic.Int64).Load() //nolint:errcheck // it has nothing else
	}
	from := count()
	eventually(h.t, "more picks of "+address, func() bool { return h.t.Failed() || count() > from+20 })
}

// TestDrainUnderLoad drains an endpoint of a push, of a file and of a management server: no pick fails,
// none that begins after the response has the endpoint, its requests in flight end, the next change of
// the source takes effect beside the overlay, and the overlay ends by itself.
func TestDrainUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("long: picks all the time from three sources")
	}
	t.Parallel()
	const drained, stays, added = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
	cache, plane := serveSnapshot(t, types.Resource(edsCluster("served")), assignmentOf("served", drained, stays))
	dir := t.TempDir()
	file := filepath.Join(dir, "filed.yaml")
	replace := func(body string) {
		next := filepath.Join(dir, ".next")
		writeFile(t, next, []byte(body))
		noError(t, os.Rename(next, file))
	}
	replace(envoyFile("filed", drained, stays))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, plane), Resources: dir})
	pushEndpoints(t, url, "pushed", drained, stays)
	changes := map[string]func(){
		"pushed": func() {
			expect(t, http.StatusOK, "PUT", url+"/v1/clusters/pushed/endpoints", envoyFile("pushed", drained, stays, added))
		},
		"filed":  func() { replace(envoyFile("filed", drained, stays, added)) },
		"served": func() { cache.set(edsCluster("served"), assignmentOf("served", drained, stays, added)) },
	}
	for cluster, change := range changes {
		t.Run(cluster, func(t *testing.T) {
			callers := holdLeases(t, url, cluster)
			callers.more(drained)
			overlay := url + "/v1/clusters/" + cluster + "/overlays/one"
			expect(t, http.StatusCreated, "PUT", overlay, `{"kind":"drain","endpoint":"`+drained+`","reason":"a test"}`, `"in_flight":`)
			callers.forbidden.Store(new(drained))
			var is struct {
				InFlight int `json:"in_flight"`
			}
			noError(t, json.Unmarshal([]byte(do(t, "GET", overlay+"?wait=30s", "").body), &is))
			if is.InFlight != 0 {
				t.Errorf("%d in flight after 30 s", is.InFlight)
			}
			change()
			callers.more(added)
			callers.forbidden.Store(nil)
			expect(t, http.StatusOK, "PUT", overlay, `{"kind":"drain","endpoint":"`+drained+`","expires":"1s"}`)
			callers.more(drained)
			eventually(t, "the end of the overlay", func() bool { return strings.Contains(do(t, "GET", overlay, "").body, "unknown_overlay") })
			callers.stop()
		})
	}
}
