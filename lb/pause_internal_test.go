package lb

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

const address = "10.0.0.1:1"

// single is a config of a cluster with one endpoint, at address.
func single(name string, change func(*resource.Cluster)) *resource.Config {
	c := resource.DefaultCluster(name)
	if change != nil {
		change(c)
	}
	return &resource.Config{Target: "xds:///t", Roots: []string{name}, Clusters: few.Of(map[string]*resource.ClusterConfig{name: {
		Cluster: c, Assignment: &resource.Assignment{Name: name, Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{
			{Addresses: []string{address}, Weight: 1},
		}}}},
	}})}
}

func isReady(c *Channel) bool {
	synctest.Wait()
	return c.ClusterSummary("c").Priorities[0].Ready == 1
}

// TestSuccessEndsBackOffs: an endpoint that has been down for long is used at once when anybody has connected to it.
func TestSuccessEndsBackOffs(t *testing.T) {
	for name, connect := range map[string]func(t *testing.T, d *Dialer, c *Channel){
		"doctor": func(t *testing.T, d *Dialer, _ *Channel) {
			t.Helper()
			_, err := d.Try(t.Context(), Attempt{Address: address}, time.Second)
			noError(t, err)
		},
		"another cluster": func(t *testing.T, d *Dialer, _ *Channel) {
			t.Helper()
			send(t, dialed(t, d, resource.ConnectTCPHold), single("other", nil))
		},
		"a check of another cluster": func(_ *testing.T, d *Dialer, _ *Channel) {
			l := &tcpLink{tcpConnector: tcpConnector{dialer: d}, report: func(Connection) {}}
			d.rechecks.join(l, address)
			d.rechecks.soon(l, address)
			time.Sleep(2 * recheckTick)
			l.stop()
		},
		"reconnect": func(t *testing.T, d *Dialer, _ *Channel) {
			t.Helper()
			if n := d.Reconnect("c") + d.Reconnect("other"); n != 1 {
				t.Errorf("%d endpoints", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, h := probing(t)
				h.set(address, "refuses")
				c, secure := dialed(t, d, resource.ConnectTCP), dialed(t, d, resource.ConnectTCP)
				send(t, c, single("c", nil))
				send(t, secure, single("secure", func(c *resource.Cluster) { c.Security = &resource.Security{SystemRoots: true} }))
				time.Sleep(33 * time.Second)
				h.set(address, "")
				if isReady(c) {
					t.Fatal("READY before")
				}
				connect(t, d, c)
				if !isReady(c) {
					t.Error("not READY after")
				}
				if n := len(d.pauses.all[address]); n != 1 {
					t.Errorf("%d back-offs, want that with TLS", n)
				}
				c.Close()
				secure.Close()
				if len(d.pauses.all) != 0 {
					t.Error("back-offs after the end")
				}
			})
		})
	}
}

// TestReconnectResetsBackOff: it is the shortest again if the endpoint still refuses.
func TestReconnectResetsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, h := probing(t)
		h.set(address, "refuses")
		c := dialed(t, d, resource.ConnectTCP)
		c.options.Draw = func() uint64 { return 1 << 63 } // the last back-off began 8 s before, long enough to be reset
		send(t, c, single("c", nil))
		time.Sleep(5 * time.Minute)
		d.Reconnect("c")
		synctest.Wait()
		h.set(address, "")
		time.Sleep(1300 * time.Millisecond)
		if !isReady(c) {
			t.Error("not READY after the shortest back-off")
		}
	})
}

// TestClosedConnectionsEndNoPauses: clusters over an endpoint that accepts connections and closes them at once do not
// make each other dial it without a pause.
func TestClosedConnectionsEndNoPauses(t *testing.T) {
	dials := func(clusters ...string) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			d := NewDialer(nil, overload.Budget{}, nil, nil)
			t.Cleanup(d.Close)
			d.poller = &fakeProber{}
			var all atomic.Int64
			d.connect = func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(50 * time.Millisecond) // longer than a connection lasts
				all.Add(1)
				near, far := net.Pipe()
				return near, far.Close()
			}
			for _, name := range clusters {
				send(t, dialed(t, d, resource.ConnectTCPHold), single(name, nil))
			}
			time.Sleep(10 * time.Minute)
			n = all.Load()
		})
		return n
	}
	if one, two := dials("a"), dials("a", "b"); two > 4*one+4 || two <= one {
		t.Errorf("%d dials of two, %d of one", two, one)
	}
}

// TestMaxBackoff: the limit of a cluster replaces gRPC's, also while its endpoints are down, without a reconnection.
func TestMaxBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, h := probing(t)
		h.set(address, "refuses")
		c := dialed(t, d, resource.ConnectTCP)
		send(t, c, single("c", nil))
		time.Sleep(10 * time.Minute)
		send(t, c, single("c", func(c *resource.Cluster) { c.MaxBackoff = 2 * time.Second }))
		time.Sleep(144 * time.Second) // until the pause has ended that was under way
		h.set(address, "")
		time.Sleep(2400 * time.Millisecond)
		if !isReady(c) {
			t.Error("not READY after the longest back-off")
		}
	})
}
