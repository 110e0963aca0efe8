package lb

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// track is a network in which an address is as its name says: "good:1" connects,
// "good+300ms:1" after so long, "bad:1" refuses, "silent:1" does not answer.
type track struct {
	start time.Time

	mu    sync.Mutex
	dials []string // "250ms good:1"
	open  int      // connections, and dials under way
}

func newTrack() *track { return &track{start: time.Now()} }

func (n *track) connect(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, fmt.Sprint(time.Since(n.start), " ", address))
	n.open++
	n.mu.Unlock()
	how, _, _ := strings.Cut(address, ":")
	how, after, _ := strings.Cut(how, "+")
	var answer <-chan time.Time
	if how != "silent" {
		d, _ := time.ParseDuration(after) // at once where there is none
		answer = time.After(d)
	}
	conn, _ := net.Pipe()
	tracked := &trackedConn{Conn: conn, track: n}
	select {
	case <-ctx.Done():
		_ = tracked.Close()
		return nil, ctx.Err()
	case <-answer:
	}
	if how == "bad" {
		_ = tracked.Close()
		return nil, fmt.Errorf("%s refused", address)
	}
	return tracked, nil
}

func (n *track) left() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

type trackedConn struct {
	net.Conn
	track *track
	once  sync.Once
}

func (c *trackedConn) Close() error {
	c.once.Do(func() {
		c.track.mu.Lock()
		defer c.track.mu.Unlock()
		c.track.open--
	})
	return c.Conn.Close()
}

// TestRace: addresses are dialed as gRFC A61 has it, the first that connects is the
// endpoint's, and nothing of the others is left.
func TestRace(t *testing.T) {
	tests := []struct {
		name      string
		addresses string
		dials     string
		want      string
	}{
		{"one", "good:1", "0s good:1", "0s good:1"},
		{"one that is silent", "silent:1", "0s silent:1", "20s silent:1 context deadline exceeded"},
		{"the first is in time", "good+249ms:1 good:2", "0s good+249ms:1", "249ms good+249ms:1"},
		{"the first is silent", "silent:1 good:2", "0s silent:1, 250ms good:2", "250ms good:2"},
		{"two of three are", "silent:1 silent:2 good:3", "0s silent:1, 250ms silent:2, 500ms good:3", "500ms good:3"},
		{"the first is slow, and wins", "good+400ms:1 good+300ms:2", "0s good+400ms:1, 250ms good+300ms:2", "400ms good+400ms:1"},
		{"one fails: the next at once", "bad+100ms:1 good:2", "0s bad+100ms:1, 100ms good:2", "100ms good:2"},
		{
			"and the one after that in its time",
			"bad+100ms:1 silent:2 good:3",
			"0s bad+100ms:1, 100ms silent:2, 350ms good:3", "350ms good:3",
		},
		{
			"one fails after another was begun: that has its time",
			"bad+300ms:1 silent:2 good:3",
			"0s bad+300ms:1, 250ms silent:2, 500ms good:3", "500ms good:3",
		},
		{"all fail: the last error", "bad:1 bad:2 bad:3", "0s bad:1, 0s bad:2, 0s bad:3", "0s bad:3 bad:3 refused"},
		{
			"whichever was last",
			"bad+600ms:1 bad:2 bad:3",
			"0s bad+600ms:1, 250ms bad:2, 250ms bad:3", "600ms bad+600ms:1 bad+600ms:1 refused",
		},
		{
			"all are silent: each has its time",
			"silent:1 silent:2 silent:3",
			"0s silent:1, 250ms silent:2, 500ms silent:3", "20.5s silent:3 context deadline exceeded",
		},
	}
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold} {
		for _, tt := range tests {
			t.Run(string(mode)+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, d := newTrack(), NewDialer(nil, overload.Budget{}, nil, nil)
					d.connect = n.connect
					reports := make(chan Connection, 2)
					stop := d.Connectors(mode)[mode].Start(strings.Fields(tt.addresses), func(c Connection) { reports <- c })
					c := <-reports
					got := fmt.Sprint(time.Since(n.start), " ", c.Address)
					if c.Err != nil {
						got += " " + c.Err.Error()
					}
					synctest.Wait()
					if dials := strings.Join(n.dials, ", "); got != tt.want || dials != tt.dials {
						t.Errorf("dialed %s\nand got %s\nwant %s\nand %s", dials, got, tt.dials, tt.want)
					}
					held := 0
					if c.Err == nil && mode == resource.ConnectTCPHold {
						held = 1
					}
					if n.left() != held || busyDials(d) != 0 {
						t.Errorf("%d connections and %d slots are taken, want %d and none", n.left(), busyDials(d), held)
					}
					stop()
					synctest.Wait()
					if n.left() != 0 || len(reports) != 0 {
						t.Errorf("%d connections, %d reports after it was stopped", n.left(), len(reports))
					}
					d.Close()
				})
			})
		}
	}
}

// TestRaceFamilies: an endpoint's addresses of both families take turns.
func TestRaceFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		var dialed []string
		d.connect = func(_ context.Context, _, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return nil, fmt.Errorf("%s refused", address)
		}
		reports := make(chan Connection, 1)
		addresses := []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "192.0.2.2:1"}
		stop := d.Connectors(resource.ConnectTCP)[resource.ConnectTCP].Start(addresses, func(c Connection) { reports <- c })
		defer stop()
		<-reports
		if got := strings.Join(dialed, " "); got != "[2001:db8::1]:1 192.0.2.1:1 [2001:db8::2]:1 192.0.2.2:1" {
			t.Errorf("dialed %s", got)
		}
	})
}

// TestRaceOfTwoThatConnect: of two connections that are made at one time one is the
// endpoint's, and the other is closed.
func TestRaceOfTwoThatConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d := newTrack(), NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		d.connect = func(_ context.Context, network, address string) (net.Conn, error) {
			return n.connect(t.Context(), network, address) // it connects even where it is given up
		}
		reports := make(chan Connection, 2)
		stop := d.Connectors(resource.ConnectTCPHold)[resource.ConnectTCPHold].Start(
			[]string{"good+450ms:1", "good+200ms:2"}, func(c Connection) { reports <- c })
		time.Sleep(time.Second)
		synctest.Wait()
		if len(reports) != 1 || n.left() != 1 {
			t.Errorf("%d reports, %d connections; want 1 and 1", len(reports), n.left())
		}
		stop()
		synctest.Wait()
		if n.left() != 0 {
			t.Errorf("%d connections after it was stopped", n.left())
		}
	})
}

// TestRaceStopped: an attempt that is given up ends every dial, begins none, and
// has not failed.
func TestRaceStopped(t *testing.T) {
	for _, tt := range []struct {
		addresses string
		dials     int
	}{{"silent:1", 1}, {"silent:1 silent:2 good:3", 2}} {
		synctest.Test(t, func(t *testing.T) {
			n, d := newTrack(), NewDialer(nil, overload.Budget{}, nil, nil)
			defer d.Close()
			d.connect = n.connect
			stop := d.Connectors(resource.ConnectTCP)[resource.ConnectTCP].Start(
				strings.Fields(tt.addresses), func(c Connection) { t.Errorf("reported %+v", c) })
			time.Sleep(policy.AttemptDelay * 3 / 2)
			stop()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(n.dials) != tt.dials || n.left() != 0 || busyDials(d) != 0 {
				t.Errorf("dialed %v; %d connections and %d slots are taken", n.dials, n.left(), busyDials(d))
			}
		})
	}
}

// TestPickOfManySilentAddresses: where slots are scarce, an endpoint's next address
// waits for one, and goes before endpoints that were not dialed.
func TestPickOfManySilentAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialed(t, dialerOn(t, newNetwork()), resource.ConnectTCPHold)
		send(t, c, cluster("c", numbered(10_000, "hole", "good")))
		start := time.Now()
		if err := c.Pick(&policy.Call{Context: t.Context(), Cluster: "c"}, time.Hour); err != nil || time.Since(start) > BusyTimeout {
			t.Errorf("answered %v after %v, want within %v", err, time.Since(start), BusyTimeout)
		}
	})
}
