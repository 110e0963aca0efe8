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
	breakerLimit   = 100
	breakerThreads = 20              // of each process: two of each client at a time
	breakerTime    = 8 * time.Second // at least: each client has to be answered, and to be killed
	breakerWait    = 90 * time.Second
	// A request takes 0.5 s, so that one that comes late is not at an upstream any more at its deadline.
	breakerDeadline = 5 * time.Second
	// leaseTTL is that of the leases of the load.
	leaseTTL = breakerDeadline + 5*time.Second
)

// TestBreaker lets the clients of all languages hold one circuit breaker together, while
// processes of each are killed at random: never more than its limit are in flight, by the
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
	names := clients(t)
	limit := min(breakerLimit, 2*breakerThreads*len(names)*3/8) // some clients cannot fill that of all
	if err := p.push(&cluster{MaxRequests: limit}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	watched := watch(t, host.daemon, p.target, stop)

	var wg sync.WaitGroup
	begin := time.Now()
	for _, name := range names {
		for i := range 2 {
			wg.Go(func() {
				l := &holder{
					name: name, kill: i == 0, begin: begin,
					open: stand.Command{Do: "open", LBD: "unix:" + host.daemon.Socket, Cluster: p.target, Mode: "lease", Adapter: "core"},
				}
				if err := l.run(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				t.Logf("%s: %d processes, %d killed; requests: %d answered, %d refused, %d timed out",
					name, l.processes, l.kills, l.answered, l.refused, l.late)
			})
		}
	}
	wg.Wait()
	ended := time.Now()
	close(stop)
	most := <-watched
	t.Logf("at most %d in flight by leases, %d at the upstreams, of %d", most, p.meter.Max.Load(), limit)
	if max(most, int(p.meter.Max.Load())) > limit {
		t.Errorf("at most %d in flight by leases, and %d at the upstreams: more than %d", most, p.meter.Max.Load(), limit)
	}
	if most < limit {
		t.Errorf("at most %d in flight: the breaker was never full", most)
	}
	err := until(leaseTTL+2*time.Second, func() error {
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
	name  string
	kill  bool // kills processes within their loads
	begin time.Time
	open  stand.Command

	processes, kills, answered, refused, late int
}

// done reports whether the holder has shown what it should, for long enough. Other holders
// that are done leave it a place in the breaker.
func (h *holder) done() bool {
	return time.Since(h.begin) > breakerTime && h.answered > 0 && (h.kills > 0 || !h.kill)
}

// run sends load until the holder is done.
func (h *holder) run() error {
	for !h.done() {
		if time.Since(h.begin) > breakerWait {
			return fmt.Errorf("%d requests are answered and %d processes killed after %s", h.answered, h.kills, breakerWait)
		}
		c := &client{name: h.name}
		h.processes++
		err := h.process(c)
		c.discard()
		if err != nil {
			return err
		}
	}
	return nil
}

// process sends loads with one process, and kills it within a later one, or returns when the
// holder is done.
func (h *holder) process(c *client) error {
	if _, err := c.do(h.open); err != nil {
		return err
	}
	load := stand.Command{
		Do: "load", N: 3 * breakerThreads, Threads: breakerThreads, Method: "GET", Path: "/slow?ms=500", Timeout: breakerDeadline.Seconds(),
	}
	for {
		if err := c.runner.Send(load); err != nil {
			return err
		}
		if h.kill && h.answered > 0 {
			time.Sleep(time.Duration(50+rand.IntN(500)) * time.Millisecond)
			h.kills++
			return nil
		}
		a, err := c.runner.Receive(breakerWait)
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
		if h.done() || time.Since(h.begin) > breakerWait {
			return nil
		}
	}
}
