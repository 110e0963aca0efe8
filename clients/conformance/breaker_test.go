package conformance

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

const (
	breakerLimit = 100
	breakerTime  = 8 * time.Second
	// leaseTTL is that of the leases of the load: its deadline and 5 s.
	leaseTTL = 2*time.Second + 5*time.Second
)

// TestBreaker lets the clients of all languages hold one circuit breaker together, while
// their processes are killed at random: never more than its limit are in flight, by the
// count of lbd and by that of the upstreams, and none is after the ttl of the leases.
func TestBreaker(t *testing.T) {
	host := newClient(t, "host", "")
	p := &play{client: host, target: "shared"}
	for range 3 {
		u, err := stand.NewUpstream(&p.meter, "ok")
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		p.upstreams = append(p.upstreams, u)
	}
	if err := p.push(&cluster{MaxRequests: breakerLimit}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	time.AfterFunc(breakerTime, func() { close(stop) })
	watched := watch(t, host.daemon, p.target, stop)

	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := make(map[string]int)
	for _, name := range clients(t) {
		for i := range 2 {
			wg.Go(func() {
				l := &holder{name: name, open: stand.Command{
					Do: "open", LBD: "unix:" + host.daemon.Socket, Cluster: p.target, Mode: "lease", Adapter: "core",
				}}
				if err := l.run(stop, i == 0); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				t.Logf("%s: %d processes, %d killed; requests: %d answered, %d refused, %d timed out",
					name, l.processes, l.kills, l.answered, l.refused, l.late)
				mu.Lock()
				defer mu.Unlock()
				answered[name] += l.answered
			})
		}
	}
	wg.Wait()
	ended := time.Now()
	for name, n := range answered {
		if n == 0 {
			t.Errorf("%s: no request was answered", name)
		}
	}
	most := <-watched
	t.Logf("at most %d in flight by leases, %d at the upstreams, of %d", most, p.meter.Max.Load(), breakerLimit)
	if most > breakerLimit || p.meter.Max.Load() > breakerLimit {
		t.Errorf("at most %d in flight by leases, and %d at the upstreams: more than %d", most, p.meter.Max.Load(), breakerLimit)
	}
	if most < breakerLimit {
		t.Errorf("at most %d in flight: the breaker was never full", most)
	}
	err := until(leaseTTL+time.Second, func() error {
		held, err := inFlight(host.daemon, p.target)
		if err == nil && held+int(p.meter.InFlight.Load()) > 0 {
			err = fmt.Errorf("%d leases and %d requests in flight %s after the end", held, p.meter.InFlight.Load(), time.Since(ended))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("back at zero after %s", time.Since(ended).Round(10*time.Millisecond))
}

// inFlight returns what the circuit breaker of a cluster counts.
func inFlight(d *stand.Daemon, cluster string) (int, error) {
	var state struct {
		Breaker struct {
			InFlight int `json:"in_flight"`
		} `json:"circuit_breaker"`
	}
	err := d.Call(http.MethodGet, stand.ClusterPath(cluster)+"?endpoints=false", nil, &state)
	return state.Breaker.InFlight, err
}

// watch polls the breaker until stop, and then sends the most that was in flight.
func watch(t *testing.T, d *stand.Daemon, cluster string, stop <-chan struct{}) <-chan int {
	result := make(chan int, 1)
	go func() {
		most := 0
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				result <- most
				return
			case <-ticker.C:
				n, err := inFlight(d, cluster)
				if err != nil {
					t.Error(err)
				}
				most = max(most, n)
			}
		}
	}()
	return result
}

// holder sends load with one process after another.
type holder struct {
	name string
	open stand.Command

	processes, kills, loads, answered, refused, late int
}

// run sends load until stop. If kills is set, processes are killed within their loads.
func (h *holder) run(stop <-chan struct{}, kills bool) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		c := &client{name: h.name}
		h.processes++
		err := h.process(c, stop, kills)
		c.discard()
		if err != nil {
			return err
		}
	}
}

func (h *holder) process(c *client, stop <-chan struct{}, kills bool) error {
	if _, err := c.do(h.open); err != nil {
		return err
	}
	load := stand.Command{Do: "load", N: 100, Threads: 20, Method: "GET", Path: "/slow?ms=200", Timeout: 2}
	for {
		if err := c.runner.Send(load); err != nil {
			return err
		}
		if kills && h.loads > 0 {
			timer := time.NewTimer(time.Duration(50+rand.IntN(500)) * time.Millisecond)
			select {
			case <-timer.C:
			case <-stop:
			}
			h.kills++
			return nil
		}
		a, err := c.runner.Receive(stand.Patience)
		if err != nil {
			return err
		}
		if a.Unsupported != "" { // no threads
			if load.Threads == 1 {
				return unsupportedError{a.Unsupported}
			}
			load.Threads, load.N = 1, 10
			continue
		}
		h.loads++
		h.answered += a.Statuses["200"]
		for name, n := range a.Errors {
			switch name {
			case "circuit_broken":
				h.refused += n
			case "timeout": // the machine is busy
				h.late += n
			default:
				return fmt.Errorf("%d requests failed with %s", n, name)
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}
