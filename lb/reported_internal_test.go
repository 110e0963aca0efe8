package lb

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// reporting is a Channel with three endpoints, 10.0.0.1:1 to 3:1, that have not changed for 10 minutes.
func reporting(t *testing.T, mode resource.ConnectMode) (*Channel, *fakeProber, *hosts) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * RecheckTimeout) }) // probes that are under way
	d, p, h := probing(t)
	c := dialed(t, d, mode)
	var es []*resource.Endpoint
	for i := range 3 {
		es = append(es, &resource.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d:1", i+1)}, Weight: 1})
	}
	send(t, c, cluster("c", es))
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	p.forget()
	return c, p, h
}

// fail reports that a connect to an endpoint failed, and expects whether lbd checks it.
func fail(t *testing.T, c *Channel, address string, checked bool) {
	t.Helper()
	u := &policy.Usage{Address: address, ConnectFailures: 1}
	<-c.Use("c", []*policy.Usage{u})
	if !u.Found || u.Checked != checked {
		t.Fatalf("%+v", u)
	}
}

func ready(c *Channel) int { return c.ClusterSummary("c").Priorities[0].Ready }

// TestReportedLoss: a report of a failed connect has the endpoint checked at once, in each mode that connects.
func TestReportedLoss(t *testing.T) {
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold} {
		for how, within := range map[string]time.Duration{"refuses": 0, "silent": RecheckTimeout} {
			t.Run(fmt.Sprint(mode, " ", how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, p, h := reporting(t, mode)
					within += recheckTick
					h.set("10.0.0.1:1", how)
					fail(t, c, "10.0.0.1:1", true)
					time.Sleep(within)
					synctest.Wait()
					if n := ready(c); n != 2 {
						t.Errorf("%d are READY after %v", n, within)
					}
					fail(t, c, "10.0.0.1:1", true) // of a lost one
					time.Sleep(time.Second)
					if n := len(p.gaps("10.0.0.1:1")); n > 0 {
						t.Errorf("%d more probes", n)
					}
				})
			})
		}
	}
}

// TestReportsAreAdvice: reports about an endpoint that connects cost a few probes of it, and nothing else.
func TestReportsAreAdvice(t *testing.T) {
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, _ := reporting(t, mode)
				for range 10_000 {
					fail(t, c, "10.0.0.1:1", true)
					time.Sleep(time.Second / 10_000)
				}
				synctest.Wait()
				if n := len(p.gaps("10.0.0.1:1")) + 1; n < 3 || n > 5 {
					t.Errorf("%d probes within a second", n)
				}
				time.Sleep(300 * time.Millisecond)
				p.forget()
				time.Sleep(time.Minute)
				if n := len(p.gaps("10.0.0.1:1")); n > 8 {
					t.Errorf("%d probes in the minute after", n)
				}
				if n := ready(c); n != 3 {
					t.Errorf("%d are READY", n)
				}
				for _, gap := range p.gaps("10.0.0.2:1") {
					if gap < MaxRecheckInterval*9/10 {
						t.Errorf("probed another after %v", gap)
					}
				}
			})
		})
	}
}

// TestReportsWhileChecking: reports during a check cause one more after it.
func TestReportsWhileChecking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := reporting(t, resource.ConnectTCP)
		p.answer = func(string, time.Duration) (time.Duration, error) { return time.Second, nil }
		for range 200 {
			fail(t, c, "10.0.0.3:1", true)
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if gaps := p.gaps("10.0.0.3:1"); len(gaps) != 1 || gaps[0] > time.Second+2*recheckTick {
			t.Errorf("probed after %v", gaps)
		}
	})
}

// TestReportsWithoutConnections: in mode none, the failures are those of the endpoint.
func TestReportsWithoutConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := reporting(t, resource.ConnectNone)
		fail(t, c, "10.0.0.1:1", false)
		time.Sleep(time.Second)
		if n := ready(c); n != 3 || len(p.probed()) > 0 || c.State() != connectivity.Ready {
			t.Errorf("%d are READY, %d probes", n, len(p.probed()))
		}
	})
}
