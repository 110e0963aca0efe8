package lb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// host is a network, and the system that lbd runs on: while that lacks something,
// every dial fails with errno.
type host struct {
	*network

	lack  sync.Mutex
	errno syscall.Errno // 0 for none
	noUDP bool          // EADDRNOTAVAIL is the answer of UDP as well
	only  string        // the prefix of the addresses that the shortage is toward
	dials []time.Time   // of TCP, that failed for the shortage
}

func (s *host) set(errno syscall.Errno) {
	s.lack.Lock()
	defer s.lack.Unlock()
	s.errno = errno
}

func (s *host) failed() []time.Time {
	s.lack.Lock()
	defer s.lack.Unlock()
	return append([]time.Time(nil), s.dials...)
}

func (s *host) connect(ctx context.Context, network, address string) (net.Conn, error) {
	s.lack.Lock()
	errno := s.errno
	lacking := errno != 0 && strings.HasPrefix(address, s.only)
	if network == "udp" {
		lacking = lacking && (errno != syscall.EADDRNOTAVAIL || s.noUDP)
	}
	if lacking && network == "tcp" {
		s.dials = append(s.dials, time.Now())
	}
	s.lack.Unlock()
	if lacking {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", errno)}
	}
	return pipe(s.network.connect)(ctx, network, address)
}

// check is what the monitor tries.
func (s *host) check() error {
	s.lack.Lock()
	defer s.lack.Unlock()
	if s.errno == 0 || s.errno == syscall.EADDRNOTAVAIL {
		return nil
	}
	return s.errno
}

// on returns a Dialer on the system, and the monitor that it reports to.
func (s *host) on(t *testing.T, b overload.Budget) (*Dialer, *overload.Monitor) {
	m := overload.NewMonitor(s.check)
	t.Cleanup(m.Close)
	if b.Dials == 0 {
		b.Dials = MaxDials
	}
	d := NewDialer(nil, b, m, nil)
	d.connect = s.connect
	t.Cleanup(d.Close)
	return d, m
}

// watched is a channel on the dialer whose timers stand still in a shortage.
func watched(t *testing.T, d *Dialer, m *overload.Monitor, mode resource.ConnectMode, events func(policy.Event)) *Channel {
	c := NewChannel(Options{
		Registry: Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64,
		Report: func(batch []policy.Event) {
			for _, e := range batch {
				if events != nil {
					events(e)
				}
			}
		},
		Connectors: d.Connectors(mode), Overload: m,
	})
	t.Cleanup(c.Close)
	return c
}

var shortages = map[overload.Resource]syscall.Errno{
	overload.Descriptors: syscall.EMFILE, overload.SystemDescriptors: syscall.ENFILE, overload.Buffers: syscall.ENOBUFS,
	overload.Memory: syscall.ENOMEM, overload.Watches: syscall.ENOSPC, overload.LocalPorts: syscall.EADDRNOTAVAIL,
}

// TestShortageFailsNoEndpoint: while lbd lacks something, an endpoint is CONNECTING
// however often its dial fails, and is READY once a dial has its answer.
func TestShortageFailsNoEndpoint(t *testing.T) {
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold} {
		for lacking, errno := range shortages {
			t.Run(fmt.Sprint(mode, " ", lacking), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &host{network: newNetwork()}
					s.set(errno)
					d, m := s.on(t, overload.Budget{})
					failures := 0
					c := watched(t, d, m, mode, func(e policy.Event) {
						if e, ok := e.(policy.ConnectionChanged); ok && e.To == connectivity.TransientFailure {
							failures++
						}
					})
					send(t, c, cluster("c", numbered(1, "first", "second"), numbered(1, "other")))
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					if got := m.Current(); len(got) != 1 || got[0].Resource != lacking || time.Since(got[0].Since) < 9*time.Minute {
						t.Errorf("the monitor knows of %v", got)
					}
					if n := len(s.failed()); n < 60 || n > 20*600 {
						t.Errorf("%d dials in 10 minutes", n)
					}
					if s := c.Summary().Clusters.Get("c"); s.Priorities[0].Connecting != 1 || s.Priority != 0 {
						t.Errorf("%+v", s)
					}
					s.set(0)
					if took := answers(t, c, "c", "first0:1"); took > 3*overload.RetryPause/2 {
						t.Errorf("READY %v after the shortage", took)
					}
					time.Sleep(overload.Calm + overload.CheckInterval)
					synctest.Wait()
					if got := m.Current(); len(got) != 0 || failures != 0 {
						t.Errorf("after the shortage: %v, %d failures", got, failures)
					}
				})
			})
		}
	}
}

// TestAddressThatIsNotAvailable: an address at which no connection can be made from
// here, of whichever kind, has failed.
func TestAddressThatIsNotAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork(), noUDP: true}
		s.set(syscall.EADDRNOTAVAIL)
		d, m := s.on(t, overload.Budget{})
		c := watched(t, d, m, resource.ConnectTCP, nil)
		send(t, c, cluster("c", numbered(1, "v6")))
		synctest.Wait()
		if s := c.Summary().Clusters.Get("c"); s.Priorities[0].TransientFailure != 1 || len(m.Current()) != 0 {
			t.Errorf("%+v, %v", s, m.Current())
		}
	})
}

// TestShortageOfFilesOfTLS: certificates that cannot be read for a shortage are read
// again, and the endpoint has not failed.
func TestShortageOfFilesOfTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		p := &lackingFiles{}
		d := NewDialer(p, overload.Budget{}, m, nil)
		defer d.Close()
		d.connect = pipe(func(context.Context, string) error { return nil })
		reports := make(chan Connection, 16)
		c := tcpConnector{dialer: d, hold: true, security: &resource.Security{RootInstance: "p"}}
		defer c.Start([]string{"a:1"}, func(c Connection) { reports <- c })()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(reports) != 0 || len(m.Current()) != 1 {
			t.Fatalf("%d reports, %v", len(reports), m.Current())
		}
		p.set(errors.New("no such file"))
		if r := <-reports; r.Err == nil {
			t.Error("connected without roots")
		}
	})
}

// lackingFiles provides no certificates, for lack of descriptors or for another error.
type lackingFiles struct {
	mu  sync.Mutex
	err error
}

func (p *lackingFiles) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *lackingFiles) Certificates(string) ([]tls.Certificate, *x509.CertPool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, nil, p.err
	}
	return nil, nil, &fs.PathError{Op: "open", Path: "ca.pem", Err: syscall.EMFILE}
}

// TestShortageLosesNoConnection: what is READY stays so while it cannot be looked at,
// and its loss is noticed afterwards.
func TestShortageLosesNoConnection(t *testing.T) {
	for lacking, errno := range shortages {
		t.Run(string(lacking), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &host{network: newNetwork()}
				d, m := s.on(t, overload.Budget{})
				c := watched(t, d, m, resource.ConnectTCP, nil)
				send(t, c, cluster("c", numbered(3, "good"), numbered(1, "other")))
				time.Sleep(time.Second)
				before := c.Generation()
				s.set(errno)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if ready := c.Summary().Clusters.Get("c").Priorities[0].Ready; ready != 3 || c.Generation() != before {
					t.Errorf("%d are READY, %d pickers later", ready, c.Generation()-before)
				}
				s.network.set(func() { s.down["good0:1"], s.down["good1:1"], s.down["good2:1"] = true, true, true })
				s.set(0)
				time.Sleep(NoticeTime(resource.ConnectTCP))
				answers(t, c, "c", "other0:1")
			})
		})
	}
}

// TestShortageStopsInitTimers: what is left of an init timer when a shortage begins is
// left when it is over, also in a tree in which nothing failed.
func TestShortageStopsInitTimers(t *testing.T) {
	for lacking, errno := range shortages {
		if lacking == overload.LocalPorts {
			continue // see TestShortageOfLocalPorts
		}
		t.Run(string(lacking), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &host{network: newNetwork()}
				d, m := s.on(t, overload.Budget{})
				waiting := watched(t, d, m, resource.ConnectTCP, nil)
				send(t, waiting, cluster("c", numbered(1, "hole"), numbered(1, "good")))
				time.Sleep(6 * time.Second) // 4 are left
				s.set(errno)
				short := watched(t, d, m, resource.ConnectTCP, nil)
				send(t, short, cluster("c", numbered(1, "good"), numbered(1, "other")))
				time.Sleep(5 * time.Second) // the attempt at the hole has longer
				synctest.Wait()
				if p := waiting.Summary().Clusters.Get("c").Priority; p != 0 {
					t.Errorf("priority %d is in use in the shortage", p)
				}
				s.set(0)
				for len(m.Current()) > 0 {
					time.Sleep(overload.CheckInterval / 5)
				}
				if took := answers(t, waiting, "c", "good0:1"); took < 3900*time.Millisecond || took > 4*time.Second {
					t.Errorf("failed over %v after the shortage, want 4 s", took)
				}
				answers(t, short, "c", "good0:1")
			})
		})
	}
}

// TestShortageOfLocalPorts: a shortage toward one address stops the init timers of the
// clusters that have it, and of no other.
func TestShortageOfLocalPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork(), only: "few"}
		s.set(syscall.EADDRNOTAVAIL)
		d, m := s.on(t, overload.Budget{})
		c := watched(t, d, m, resource.ConnectTCP, nil)
		send(t, c, clusters(map[string][][]*resource.Endpoint{
			"short": {numbered(1, "few"), numbered(1, "other")},
			"c":     {numbered(1, "hole"), numbered(1, "good")},
		}))
		if took := answers(t, c, "c", "good0:1"); took != 10*time.Second {
			t.Errorf("another cluster of the tree failed over after %v", took)
		}
		time.Sleep(10 * time.Minute)
		if p := c.Summary().Clusters.Get("short").Priority; p != 0 || m.Short() {
			t.Errorf("priority %d is in use", p)
		}
		s.set(0)
		answers(t, c, "short", "few0:1")

		s.set(syscall.EADDRNOTAVAIL)
		send(t, c, cluster("short", numbered(1, "few-others"), numbered(1, "other")))
		time.Sleep(time.Minute)
		// An address that waits is taken away: the time of the next goes on.
		send(t, c, cluster("short", numbered(1, "hole"), numbered(1, "other")))
		if took := answers(t, c, "short", "other0:1"); took > 10*time.Second {
			t.Errorf("failed over after %v", took)
		}
	})
}

// TestShortageOfOneAddress: an endpoint connects at one address while another of its
// addresses waits because of a shortage. The init timers of its cluster go on.
func TestShortageOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork(), only: "few"}
		s.set(syscall.EADDRNOTAVAIL)
		d, m := s.on(t, overload.Budget{})
		inner := d.connect
		d.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "slow:1" {
				time.Sleep(2 * policy.AttemptDelay)
			}
			return inner(ctx, network, address)
		}
		c := watched(t, d, m, resource.ConnectTCP, nil)
		two := &resource.Endpoint{Weight: 1, Addresses: []string{"slow:1", "few:1"}}
		s.network.set(func() { s.silent = "flaky" })
		send(t, c, cluster("c", numbered(1, "flaky"), []*resource.Endpoint{two}))
		answers(t, c, "c", "slow:1")
		if s.failed() == nil {
			t.Fatal("the other address was not dialed")
		}
		s.network.set(func() { s.silent = "nothing" })
		time.Sleep(time.Minute) // priority 0 is READY again, priority 1 stays connected
		answers(t, c, "c", "flaky0:1")
		s.network.set(func() { s.silent = "flaky" })
		time.Sleep(NoticeTime(resource.ConnectTCP) + 10*time.Second)
		if waited := answers(t, c, "c", "slow:1"); waited != 0 {
			t.Errorf("failed over %v too late", waited)
		}
	})
}

// TestRetriesAreSpread: however many endpoints wait, few are dialed while the shortage
// lasts, and more and more once it is over.
func TestRetriesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork()}
		s.set(syscall.EMFILE)
		d, m := s.on(t, overload.Budget{})
		for i := range 10 {
			c := watched(t, d, m, resource.ConnectTCP, nil)
			send(t, c, cluster("c", numbered(500, fmt.Sprint("e", i, "-"))))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(s.failed()); n < 300 || n > 1600 { // those under way when it began, then one in 50 to 150 ms
			t.Errorf("%d dials failed in a minute", n)
		}
		s.set(0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d.slots.allowed != MaxDials {
			t.Errorf("%d dials are allowed 2 s after the shortage", d.slots.allowed)
		}
	})
}

// TestSilentEndpointsAfterShortage: the first dials after a shortage are of endpoints
// that do not answer, and the others are dialed soon all the same.
func TestSilentEndpointsAfterShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork()}
		s.set(syscall.EMFILE)
		d, m := s.on(t, overload.Budget{})
		for range 10 {
			c := watched(t, d, m, resource.ConnectTCP, nil)
			send(t, c, cluster("c", numbered(1, "hole")))
		}
		c := watched(t, d, m, resource.ConnectTCP, nil)
		send(t, c, cluster("c", numbered(1, "good")))
		time.Sleep(time.Minute)
		s.set(0)
		if took := answers(t, c, "c", "good0:1"); took > time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

// TestHeldConnectionsHaveABudget: more are not made, which is no fault of endpoints,
// nor of clusters that hold none; and they are once others end.
func TestHeldConnectionsHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &host{network: newNetwork()}
		d, m := s.on(t, overload.Budget{Held: 2, Dials: 16})
		c := watched(t, d, m, resource.ConnectTCPHold, nil)
		send(t, c, cluster("c", numbered(2, "good")))
		time.Sleep(time.Second)
		late := watched(t, d, m, resource.ConnectTCPHold, nil)
		send(t, late, cluster("c", numbered(1, "late"), numbered(1, "other")))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s := late.Summary().Clusters.Get("c"); s.Priority != 0 || s.Priorities[0].Connecting != 1 {
			t.Errorf("%+v", s)
		}
		if got := m.Current(); len(got) != 1 || got[0].Resource != overload.HeldConnections || s.count("late0:1") != 0 || m.Short() {
			t.Errorf("%v, dialed %d times", got, s.count("late0:1"))
		}
		tcp := watched(t, d, m, resource.ConnectTCP, nil)
		send(t, tcp, cluster("c", numbered(1, "hole"), numbered(1, "good")))
		if took := answers(t, tcp, "c", "good0:1"); took != 10*time.Second {
			t.Errorf("another cluster failed over after %v", took)
		}
		send(t, c, cluster("c", numbered(1, "good")))
		answers(t, late, "c", "late0:1")
		send(t, late, &resource.Config{})
		send(t, c, &resource.Config{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := d.held.Load(); n != 0 {
			t.Errorf("%d are held of none", n)
		}
	})
}

// TestShortageChangesNoAnswer: clusters of random endpoints, which answer, refuse or
// are silent, go through random shortages as they go without one: picks see the same
// priorities after each other, whatever is READY stays READY, and in the end all is as
// it would have been.
func TestShortageChangesNoAnswer(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 4))
			config := randomCluster(draw)
			without := story(t, config, resource.ConnectTCP, nil)
			errno := []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}[draw.IntN(4)]
			with := story(t, config, resource.ConnectTCP, func(s *host) {
				for range 1 + draw.IntN(3) {
					time.Sleep(time.Duration(draw.Int64N(int64(15 * time.Second))))
					s.set(errno)
					time.Sleep(time.Duration(draw.Int64N(int64(90 * time.Second))))
					s.set(0)
				}
			})
			if with != without {
				t.Errorf("seed %d, %v: with shortages\n%s\nwithout\n%s", seed, errno, with, without)
			}
		})
	}
}

// randomCluster is a cluster of one to three priorities, each of one to three
// endpoints.
func randomCluster(draw *rand.Rand) *resource.Config {
	kinds := []string{"good", "down", "hole"}
	var priorities [][]*resource.Endpoint
	for p := range 1 + draw.IntN(3) {
		var endpoints []*resource.Endpoint
		for e := range 1 + draw.IntN(3) {
			one := &resource.Endpoint{Weight: 1}
			for a := range 1 + draw.IntN(2) {
				one.Addresses = append(one.Addresses, fmt.Sprintf("%s-%d-%d-%d:1", kinds[draw.IntN(3)], p, e, a))
			}
			endpoints = append(endpoints, one)
		}
		priorities = append(priorities, endpoints)
	}
	return cluster("c", priorities...)
}

// story returns which priorities were in use, whether a READY endpoint was lost, and what
// there is in the end.
func story(t *testing.T, config *resource.Config, mode resource.ConnectMode, during func(*host)) string {
	s := &host{network: newNetwork()}
	d, m := s.on(t, overload.Budget{})
	for _, l := range config.Clusters.Get("c").Assignment.Localities {
		for _, e := range l.Endpoints {
			for _, a := range e.Addresses {
				s.down[a] = strings.HasPrefix(a, "down")
			}
		}
	}
	var log strings.Builder
	c := watched(t, d, m, mode, func(e policy.Event) {
		switch e := e.(type) {
		case policy.PrioritySwitched:
			fmt.Fprintf(&log, "priority %d to %d\n", e.From, e.To)
		case policy.ConnectionChanged:
			if e.From == connectivity.Ready {
				fmt.Fprintf(&log, "lost %s\n", e.Address)
			}
		}
	})
	send(t, c, config)
	if during != nil {
		during(s)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	summary := c.Summary().Clusters.Get("c")
	fmt.Fprintf(&log, "in use %d\n", summary.Priority)
	for p, census := range summary.Priorities {
		fmt.Fprintf(&log, "%d are READY in priority %d\n", census.Ready, p)
	}
	call := &policy.Call{Context: t.Context(), Cluster: "c"}
	err := c.Pick(call, 0)
	address, _, _ := strings.Cut(call.Address, "-")
	fmt.Fprintf(&log, "picked %s, failed: %v\n", address, err != nil)
	return log.String()
}
