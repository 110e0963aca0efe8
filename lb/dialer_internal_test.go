package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// pipe is a network in which every dial is answered by connect.
func pipe(connect func(ctx context.Context, address string) error) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		if err := connect(ctx, address); err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		go func() { // an endpoint that reads until the end
			buf := make([]byte, 1)
			_, _ = far.Read(buf)
			_ = far.Close()
		}()
		return near, nil
	}
}

// TestMaxDials: of 400 attempts of one cluster half of 256 are under way, of
// several clusters' three quarters; and all have their turn.
func TestMaxDials(t *testing.T) {
	for _, tt := range []struct {
		clusters []string
		want     int64
	}{{[]string{""}, MaxDials / 2}, {[]string{"a", "b", "c"}, MaxDials * 3 / 4}} {
		synctest.Test(t, func(t *testing.T) {
			d := NewDialer(nil, overload.Budget{}, nil, nil)
			release := make(chan struct{})
			var dialing, most atomic.Int64
			d.connect = pipe(func(context.Context, string) error {
				most.Store(max(most.Load(), dialing.Add(1)))
				<-release
				dialing.Add(-1)
				return nil
			})
			var reported atomic.Int64
			for i := range 400 {
				c := tcpConnector{dialer: d, hold: true, group: dialGroup{cluster: tt.clusters[i%len(tt.clusters)]}}
				c.Start([]string{"a:1"}, func(c Connection) {
					if c.Err == nil {
						reported.Add(1)
					}
				})
			}
			synctest.Wait()
			if n := dialing.Load(); n != tt.want {
				t.Errorf("%d dials are under way, want %d", n, tt.want)
			}
			close(release)
			synctest.Wait()
			if reported.Load() != 400 || most.Load() != tt.want {
				t.Errorf("%d connected, at most %d at a time; want 400, %d", reported.Load(), most.Load(), tt.want)
			}
			d.Close()
			synctest.Wait()
		})
	}
}

// TestAcceptAndClose: an endpoint that closes every connection at once is
// connected to with back-off.
func TestAcceptAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		var dials atomic.Int64
		d.connect = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			near, far := net.Pipe()
			return near, far.Close()
		}
		c := dialed(t, d, resource.ConnectTCPHold)
		send(t, c, cluster("c", numbered(1, "a")))
		time.Sleep(time.Minute)
		synctest.Wait()
		// 0 s, 1 s, 2.6 s … 43 s, give or take a fifth.
		if n := dials.Load(); n < 7 || n > 9 {
			t.Errorf("%d connections in a minute, want 8", n)
		}
		if s := c.Summary().Clusters.Get("c"); s.Priorities[0].TransientFailure != 1 {
			t.Errorf("summary %+v, want its endpoint in TRANSIENT_FAILURE", s)
		}
	})
}

// TestRechecks: mode tcp looks again every 2 s, give or take a tenth, reports a loss
// once, and looks no more when it is stopped.
func TestRechecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		var mu sync.Mutex
		var dials []time.Time
		refuse := false
		d.connect = pipe(func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			dials = append(dials, time.Now())
			if refuse {
				return errors.New("refused")
			}
			return nil
		})
		reports := make(chan Connection, 16)
		stop := d.Connectors(resource.ConnectTCP)[resource.ConnectTCP].Start([]string{"a:1"}, func(c Connection) { reports <- c })
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		for i := 1; i < len(dials); i++ {
			if d := dials[i].Sub(dials[i-1]); d < RecheckInterval*9/10 || d > RecheckInterval*11/10 {
				t.Errorf("looked again after %v", d)
			}
		}
		if n := len(dials); n < 27 || n > 35 {
			t.Errorf("%d dials in a minute", n)
		}
		refuse = true
		mu.Unlock()
		time.Sleep(RecheckInterval * 11 / 10)
		synctest.Wait()
		if c := <-reports; c.Address != "a:1" {
			t.Errorf("reported %+v", c)
		}
		if c := <-reports; c.Err == nil {
			t.Errorf("reported %+v, want a loss", c)
		}
		mu.Lock()
		n := len(dials)
		refuse = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(dials) != n || len(reports) != 0 {
			t.Error("looked again after a loss was reported")
		}
		stop()

		stop = d.Connectors(resource.ConnectTCP)[resource.ConnectTCP].Start([]string{"a:1"}, func(c Connection) { reports <- c })
		<-reports
		synctest.Wait()
		stop()
		n = len(dials)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(dials) != n {
			t.Error("looked again after it was stopped")
		}
	})
}

// TestRecheckRate: with more endpoints than it allows for, the interval grows.
func TestRecheckRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		d.connect = pipe(func(context.Context, string) error { return nil })
		p := &fakeProber{}
		d.poller = p
		const endpoints = 3 * RechecksPerSecond // 15,000 looks a second, if they were not bounded
		for i := range endpoints {
			address := fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255)
			d.Connectors(resource.ConnectTCP)[resource.ConnectTCP].Start([]string{address}, func(Connection) {})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(p.probed()); n > 10*RechecksPerSecond+RechecksPerSecond/10 || n < 7*RechecksPerSecond {
			t.Errorf("%d looks in 10 s, want about %d", n, 8*RechecksPerSecond)
		}
	})
}

// TestStoppedRechecksTakeNothing: rechecks of endpoints that were removed leave
// the rate to those that are there.
func TestStoppedRechecksTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		var watched atomic.Int64
		d.connect = pipe(func(_ context.Context, address string) error {
			if address == "watched:1" {
				watched.Add(1)
			}
			return nil
		})
		tcp := d.Connectors(resource.ConnectTCP)[resource.ConnectTCP]
		for range 10 {
			var stops []func()
			for range 5000 {
				stops = append(stops, tcp.Start([]string{"a:1"}, func(Connection) {}))
			}
			synctest.Wait()
			for _, stop := range stops {
				stop()
			}
		}
		tcp.Start([]string{"watched:1"}, func(Connection) {})
		time.Sleep(RecheckInterval * 11 / 10)
		synctest.Wait()
		if watched.Load() != 2 {
			t.Errorf("dialed %d times, want a recheck after the attempt", watched.Load())
		}

		// Some that have waited for the rate are stopped too.
		var stops []func()
		for range 8000 {
			stops = append(stops, tcp.Start([]string{"a:1"}, func(Connection) {}))
		}
		time.Sleep(RecheckInterval * 11 / 10)
		for _, stop := range stops {
			stop()
		}
		synctest.Wait()
		before := watched.Load()
		time.Sleep(RecheckInterval * 11 / 10)
		synctest.Wait()
		if watched.Load() == before {
			t.Error("rechecks that were stopped hold up one that was not")
		}
	})
}
