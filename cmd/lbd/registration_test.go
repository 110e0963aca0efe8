package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// registrar registers endpoints of a cluster, and renews them.
type registrar struct {
	url, cluster string
	ttl          time.Duration
	endpoints    int
	registered   atomic.Int64
}

// register registers all endpoints.
func (r *registrar) register(t *testing.T) {
	t.Helper()
	for i := range r.endpoints {
		expect(t, http.StatusCreated, "PUT", fmt.Sprintf("%s/v1/clusters/%s/endpoints/10.0.0.%d:80?ttl=%v", r.url, r.cluster, i, r.ttl), "")
		r.registered.Add(1)
	}
}

// renew renews all that are registered three times within each ttl until ctx ends. It adds to renewed, and to lost, how
// many endpoints were and were not registered. A request that is not answered in time is given up.
func (r *registrar) renew(ctx context.Context, renewed, lost *atomic.Int64) {
	client := &http.Client{Timeout: r.ttl / 3}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		next := time.After(r.ttl / 3)
		list := []string{}
		for i := range r.registered.Load() {
			list = append(list, fmt.Sprintf(`{"cluster":%q,"address":"10.0.0.%d:80"}`, r.cluster, i))
		}
		body := `{"endpoints":[` + strings.Join(list, ",") + `]}`
		if a, err := try(ctx, client, "POST", r.url+"/v1/renewals", body); err == nil {
			var out struct {
				Endpoints []struct{ Problem *struct{ Code string } }
			}
			_ = json.Unmarshal([]byte(a.body), &out)
			for _, e := range out.Endpoints {
				if e.Problem != nil {
					lost.Add(1)
				} else {
					renewed.Add(1)
				}
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// TestPauseLosesNoRegistrations: while lbd is stopped, no renewal reaches it. None of 200 endpoints (1000 with
// LBD_TEST_LONG) that are renewed as before and after is lost, even if all of them may be removed at once.
func TestPauseLosesNoRegistrations(t *testing.T) {
	if testing.Short() {
		t.Skip("long: stops lbd for longer than the ttl of registered endpoints")
	}
	t.Parallel()
	const clusters = 10
	endpoints, ttl, pause := 20, 4*time.Second, 6*time.Second
	if os.Getenv("LBD_TEST_LONG") != "" {
		endpoints, ttl, pause = 100, 10*time.Second, time.Minute
	}
	p := startProcess(t, "--data="+t.TempDir(), "--connect=none", "--max-expired=1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var renewed, lost atomic.Int64
	var registering, renewing sync.WaitGroup
	for i := range clusters {
		r := &registrar{url: p.url, cluster: fmt.Sprint("orders", i), ttl: ttl, endpoints: endpoints}
		registering.Go(func() { r.register(t) })
		renewing.Go(func() { r.renew(ctx, &renewed, &lost) })
	}
	registering.Wait()
	rounds := func(n int64) {
		t.Helper()
		until := renewed.Load() + n*int64(clusters*endpoints)
		eventually(t, "renewals", func() bool { return renewed.Load() >= until || lost.Load() > 0 })
	}
	rounds(2)
	noError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	<-time.After(pause)
	noError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	rounds(6)
	cancel()
	renewing.Wait()
	if n := lost.Load(); n > 0 {
		t.Errorf("%d endpoints were lost", n)
	}
	expect(t, http.StatusOK, "GET", p.url+"/metrics", "", "lbd_expired_endpoints_total 0\n", fmt.Sprintf("lbd_registered_endpoints{cluster=\"orders9\"} %d\n", endpoints))
	expect(t, http.StatusOK, "GET", p.url+"/v1/events?type=expiry_deferred", "", `lbd was paused for `, fmt.Sprintf(`: %d registered endpoints have a full ttl again`, clusters*endpoints))
	// Without renewals, they are removed, but for the last of each cluster.
	eventually(t, "the expiry of the others", func() bool {
		a := do(t, "GET", p.url+"/metrics", "")
		return strings.Contains(a.body, fmt.Sprintf("lbd_expired_endpoints_total %d\n", clusters*(endpoints-1)))
	})
}
