package conformance

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// rateFaults are what one of four endpoints does under load.
var rateFaults = []struct {
	fault  string
	method string
}{
	{"stop", "GET"}, {"kill", "GET"}, {"silent", "GET"}, {"resets", "GET"}, {"stop", "POST"},
}

// TestRate sends requests at a rate while one of four endpoints fails and comes back: no request of a client fails that
// can be sent again. nginx, whose path is in LBD_TEST_NGINX, does the same beside them.
func TestRate(t *testing.T) {
	rate, part := 200.0, 2*time.Second
	if os.Getenv("RATE") == "full" {
		rate, part = 1000, 20*time.Second
	}
	for _, f := range rateFaults {
		t.Run(f.method+" "+f.fault, func(t *testing.T) {
			for _, name := range clients(t) {
				for _, adapter := range adaptersOf(t, name) {
					t.Run(name+" "+adapter, func(t *testing.T) {
						c := newClient(t, name, adapter)
						rate := rate
						if name == "shell" { // starts processes for each request
							rate /= 10
						}
						a := c.underFault(t, f.fault, stand.Command{
							Do: "load", Method: f.method, Path: "/slow?ms=1", Rate: rate, N: int(rate * 3 * part.Seconds()), Threads: 16, Timeout: 5,
						}, part)
						t.Logf("%v %v, p99 by second %.3f", a.Statuses, a.Errors, a.P99)
						if a.Statuses["200"] != int(rate*3*part.Seconds()) {
							t.Errorf("requests failed: %v, %v", a.Statuses, a.Errors)
						}
						if i := int(part.Seconds()); len(a.P99) < 3*i-1 {
							t.Errorf("%d seconds", len(a.P99))
						} else if before, after := a.P99[i-1], a.P99[i]; after > 2*before+0.25 {
							t.Logf("p99 of the second after the fault: %.0f ms, %.0f before", 1000*after, 1000*before)
						}
					})
				}
			}
		})
	}
}

// underFault plays a load while an endpoint fails for a third of it.
func (c *client) underFault(t *testing.T, fault string, load stand.Command, part time.Duration) stand.Answer {
	t.Helper()
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	c.daemon.Stop(syscall.SIGTERM)
	c.daemon.Connect = "tcp"
	must(c.daemon.Start())
	var meter stand.Meter
	var addresses []string
	upstreams := make([]*stand.Upstream, 4)
	for i := range upstreams {
		var err error
		upstreams[i], err = stand.NewUpstream(&meter, "ok")
		must(err)
		t.Cleanup(upstreams[i].Close)
		addresses = append(addresses, upstreams[i].Address)
	}
	must(c.daemon.Push("orders", addresses...))
	opened := stand.Command{Do: "open", LBD: "unix:" + c.daemon.Socket, Cluster: "orders", Mode: "batch", Adapter: c.adapter}
	_, err := c.do(opened)
	var not unsupportedError
	if errors.As(err, &not) {
		opened.Mode = "pick"
		_, err = c.do(opened)
	}
	must(err)
	_, err = c.do(stand.Command{Do: "request", Method: "GET", Path: "/"}) // waits for the batch
	must(err)
	must(c.runner.Send(load))
	time.Sleep(part)
	must(upstreams[0].Fail(fault))
	time.Sleep(part)
	must(upstreams[0].Return())
	a, err := c.runner.Receive(2*part + stand.Patience)
	must(err)
	return a
}
