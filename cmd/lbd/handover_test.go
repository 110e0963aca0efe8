package main

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLimitAcrossRestarts: upstreams never have more requests than the circuit breaker permits, across restarts
// and kill -9: 50 of each with LBD_TEST_LONG.
func TestLimitAcrossRestarts(t *testing.T) {
	t.Parallel()
	restarts := 2
	if os.Getenv("LBD_TEST_LONG") != "" {
		restarts = 50
	}
	const limit, callers, ttl = 20, 30, 2 * time.Second
	address, data := lastingAddress(t), t.TempDir()
	run := func() *process {
		return start(t, command("serve", "--listen="+address, "--data="+data, "--connect=none", "--log-format=json"))
	}
	p := run()
	expect(t, http.StatusCreated, "PUT", p.url+"/v1/clusters/orders/config", `{"name":"orders","type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":20}]}}`)
	expect(t, http.StatusCreated, "PUT", p.url+"/v1/clusters/orders/endpoints", `["192.0.2.1:80"]`)
	url := p.url

	type change struct {
		at time.Time
		by int
	}
	var (
		mu       sync.Mutex
		changes  []change // of the requests that the upstream has
		granted  atomic.Int64
		finished = make(chan struct{})
		wg       sync.WaitGroup
	)
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-finished:
					return
				case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
				}
				a, err := try(t.Context(), http.DefaultClient, "POST", url+"/pick?cluster=orders&ttl="+ttl.String(), "")
				begin := time.Now()
				if err != nil || a.status != http.StatusCreated {
					continue
				}
				var v struct {
					Lease struct {
						ID      string    `json:"id"`
						Expires time.Time `json:"expires_at"`
					} `json:"lease"`
				}
				if err := json.Unmarshal([]byte(a.body), &v); err != nil {
					t.Error(err)
				}
				granted.Add(1)
				<-time.After(rand.N(ttl)) // the request
				end := time.Now()
				if end.After(v.Lease.Expires) { // this machine was busy
					end = v.Lease.Expires
				}
				mu.Lock()
				changes = append(changes, change{begin, 1}, change{end, -1})
				mu.Unlock()
				_, _ = try(t.Context(), http.DefaultClient, "POST", url+"/v1/leases/"+v.Lease.ID+"/done", "") // or it expires
			}
		})
	}
	for i := range 2 * restarts {
		before := granted.Load()
		eventually(t, "some leases", func() bool { return granted.Load() > before+limit })
		if i%2 == 0 {
			p.stop(t)
		} else {
			p.kill(t)
		}
		p = run()
	}
	close(finished)
	wg.Wait()
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	inFlight, most := 0, 0
	for _, c := range changes {
		inFlight += c.by
		most = max(most, inFlight)
	}
	t.Logf("%d requests, at most %d at a time", granted.Load(), most)
	if most > limit || most < limit/2 {
		t.Errorf("%d requests at a time of at most %d", most, limit)
	}
}
