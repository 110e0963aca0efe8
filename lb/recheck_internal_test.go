package lb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/probe"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// fakeProber is a network for rechecks, in which answer decides what comes of a probe,
// and after which time.
type fakeProber struct {
	answer func(address string, limit time.Duration) (time.Duration, error) // nil: all connect at once

	mu     sync.Mutex
	probes []fakeProbe
	closed bool
}

type fakeProbe struct {
	address string
	at      time.Time
}

func (p *fakeProber) Probe(a netip.AddrPort, limit time.Duration, t probe.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = append(p.probes, fakeProbe{a.String(), time.Now()})
	go func() {
		var err error
		if p.answer != nil {
			var after time.Duration
			after, err = p.answer(a.String(), limit)
			time.Sleep(after)
		}
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if !closed {
			t.Probed(err)
		}
	}()
}

func (p *fakeProber) Hold(*net.TCPConn, probe.Holder) (int32, bool) { return 0, false }

func (p *fakeProber) Release(int32, probe.Holder) {}

func (p *fakeProber) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// probed returns the probes since the last call of forget.
func (p *fakeProber) probed() []fakeProbe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.probes)
}

func (p *fakeProber) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = nil
}

// gaps returns the times between the probes of an address.
func (p *fakeProber) gaps(address string) (gaps []time.Duration) {
	var last time.Time
	for _, f := range p.probed() {
		if f.address != address {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, f.at.Sub(last))
		}
		last = f.at
	}
	return gaps
}

// hosts is a network in which attempts and probes have the same answers.
type hosts struct {
	mu   sync.Mutex
	down map[string]string // "refuses" or "silent"
}

func (h *hosts) set(address, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down[address] = how
}

func (h *hosts) answer(address string, limit time.Duration) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.down[address] {
	case "refuses":
		return 0, fmt.Errorf("%s refused", address)
	case "silent":
		return limit, fmt.Errorf("%s is silent", address)
	default:
		return 0, nil
	}
}

func (h *hosts) dial(ctx context.Context, address string) error {
	end, _ := ctx.Deadline()
	after, err := h.answer(address, time.Until(end))
	time.Sleep(after)
	return err
}

// probing is a Dialer on a network of hosts.
func probing(t *testing.T) (*Dialer, *fakeProber, *hosts) {
	t.Helper()
	h := &hosts{down: make(map[string]string)}
	d, p := NewDialer(nil, overload.Budget{}, nil, nil), &fakeProber{answer: h.answer}
	d.connect, d.poller = pipe(h.dial), p
	t.Cleanup(d.Close)
	return d, p, h
}

// connectIn connects in mode tcp, for a cluster.
func connectIn(d *Dialer, cluster, address string) (reports chan Connection, stop func()) {
	reports = make(chan Connection, 16)
	c := tcpConnector{dialer: d, group: dialGroup{cluster: cluster}}
	return reports, c.Start([]string{address}, func(c Connection) { reports <- c })
}

// TestRecheckIntervals: the interval doubles after one minute and after five, and is
// short again after a reconnection.
func TestRecheckIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, h := probing(t)
		const address = "10.0.0.1:1"
		for range 2 {
			p.forget()
			start := time.Now()
			reports, stop := connectIn(d, "c", address)
			if c := <-reports; c.Err != nil {
				t.Fatal(c.Err)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			at := start
			for _, f := range p.probed() {
				want := RecheckInterval
				switch stable := at.Sub(start); {
				case stable >= 5*time.Minute:
					want = 8 * time.Second
				case stable >= time.Minute:
					want = 4 * time.Second
				}
				if gap := f.at.Sub(at); gap < want*9/10 || gap > want*11/10 {
					t.Errorf("probed %v after %v, at %v; want %v", f.address, gap, at.Sub(start), want)
				}
				at = f.at
			}
			if time.Since(at) > 9*time.Second {
				t.Errorf("the last probe was %v ago", time.Since(at))
			}
			h.set(address, "silent")
			lost := time.Now()
			if c := <-reports; c.Err == nil || time.Since(lost) > NoticeTime(resource.ConnectTCP) {
				t.Errorf("reported %v after %v", c.Err, time.Since(lost))
			}
			h.set(address, "")
			stop()
		}
	})
}

// TestJoinSetsBackInterval: an address is checked at the shortest interval once another
// link has connected.
func TestJoinSetsBackInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, _ := probing(t)
		const address = "10.0.0.1:1"
		reports, stop := connectIn(d, "a", address)
		defer stop()
		<-reports
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		p.forget()
		reports, stop = connectIn(d, "b", address)
		defer stop()
		<-reports
		time.Sleep(time.Minute)
		synctest.Wait()
		if gaps := p.gaps(address); len(gaps) < 25 {
			t.Errorf("probed after %v", gaps)
		}
	})
}

// TestSharedRechecks: links of any cluster share the checks of an address, each of them
// has its report of the loss, and the checks end with the last link. TLS has its own.
func TestSharedRechecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, h := probing(t)
		const address = "10.0.0.1:1"
		var reports []chan Connection
		var stops []func()
		for i := range 5 {
			r, stop := connectIn(d, fmt.Sprint("c", i), address)
			<-r
			reports, stops = append(reports, r), append(stops, stop)
		}
		for _, i := range []int{0, 4, 2} { // the last, the first and one between
			stops[i]()
			stops[i]()
		}
		p.forget()
		time.Sleep(time.Minute)
		synctest.Wait()
		gaps := p.gaps(address)
		if len(gaps) < 25 || slices.Min(gaps) < RecheckInterval*9/10 {
			t.Errorf("%d probes, the shortest time between them %v", len(gaps)+1, slices.Min(gaps))
		}
		stops[1]()
		h.set(address, "refuses")
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, r := range reports {
			if got := len(r); (got == 1) != (i == 3) {
				t.Errorf("link %d has %d reports", i, got)
			}
		}
		h.set(address, "")
		stops[3]()
		n := len(p.probed())
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(p.probed()) != n || len(d.rechecks.all) != 0 || d.rechecks.waiting != 0 || busyDials(d) != 0 {
			t.Errorf("%d probes without a link; %d addresses, %d waiting", len(p.probed())-n, len(d.rechecks.all), d.rechecks.waiting)
		}
	})
}

// TestRechecksOfTLS: each link with TLS has checks of its own.
func TestRechecksOfTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := probing(t)
		var links []*tcpLink
		for i := range 5 {
			l := &tcpLink{tcpConnector: tcpConnector{dialer: d, tls: i < 2}}
			if i == 2 || i == 4 {
				l.security = &resource.Security{}
			}
			d.rechecks.join(l, "10.0.0.1:1")
			links = append(links, l)
		}
		plain := &tcpLink{tcpConnector: tcpConnector{dialer: d}}
		d.rechecks.join(plain, "10.0.0.1:1")
		if n := len(d.rechecks.all); n != 5 || links[3].recheck != plain.recheck {
			t.Errorf("%d checks; want 4 of TLS and a shared one", n)
		}
	})
}

// TestStoppedLink: a link that is stopped leaves no check, before and after it connects.
func TestStoppedLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := probing(t)
		reports, stop := connectIn(d, "c", "10.0.0.1:1")
		<-reports
		synctest.Wait()
		if d.rechecks.waiting != 1 {
			t.Fatalf("%d checks wait", d.rechecks.waiting)
		}
		stop()
		if n := len(d.rechecks.all) + d.rechecks.waiting; n != 0 {
			t.Errorf("a stopped link left a check")
		}
		l := &tcpLink{tcpConnector: tcpConnector{dialer: d}}
		l.stop()
		d.rechecks.join(l, "10.0.0.1:1")
		if n := len(d.rechecks.all) + d.rechecks.waiting; n != 0 {
			t.Errorf("a link that was stopped before it connected has a check")
		}
	})
}

// TestCloseDuringRecheck: a Dialer that is closed reports no loss.
func TestCloseDuringRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		var silent sync.Mutex
		d.connect = pipe(func(ctx context.Context, _ string) error {
			if silent.TryLock() { // the attempt
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		reports, stop := connectIn(d, "c", "name:1")
		defer stop()
		<-reports
		time.Sleep(RecheckInterval * 11 / 10)
		synctest.Wait()
		if busyDials(d) != 1 {
			t.Fatal("no check is under way")
		}
		d.Close()
		synctest.Wait()
		if len(reports) != 0 {
			t.Errorf("reported %+v", <-reports)
		}
	})
}

// TestJoinDuringRecheck: an endpoint that connects while a check of its address is under
// way is not lost if that check fails.
func TestJoinDuringRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, h := probing(t)
		const address = "10.0.0.1:1"
		first, stop := connectIn(d, "a", address)
		defer stop()
		<-first
		h.set(address, "silent")
		time.Sleep(RecheckInterval * 11 / 10) // the check is under way
		h.set(address, "")
		n := len(p.probed())
		second, stop := connectIn(d, "b", address)
		defer stop()
		if c := <-second; c.Err != nil || n != 1 {
			t.Fatalf("%v; %d probes", c.Err, n)
		}
		if c := <-first; c.Err == nil {
			t.Errorf("reported %+v; want a loss", c)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(second) != 0 || len(p.probed()) < 25 {
			t.Errorf("%d reports, %d probes", len(second), len(p.probed()))
		}
		h.set(address, "refuses")
		if c := <-second; c.Err == nil {
			t.Errorf("reported %+v; want a loss", c)
		}
	})
}

// TestLossHurriesOthers: after a loss, other endpoints of the cluster and of the host
// are checked within the short interval, those of other clusters are not.
func TestLossHurriesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, h := probing(t)
		endpoints := []struct {
			cluster, address string
			hurried          bool
		}{
			{"c", "10.0.0.1:1", true},
			{"c", "10.0.0.2:1", true},
			{"other", "10.0.0.1:2", true},
			{"other", "10.0.0.3:1", false},
			{"c", "[2001:db8::1]:1", true},
		}
		var reports []chan Connection
		for _, e := range endpoints {
			r, stop := connectIn(d, e.cluster, e.address)
			defer stop()
			<-r
			reports = append(reports, r)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		h.set(endpoints[0].address, "refuses")
		<-reports[0]
		synctest.Wait()
		lost := time.Now()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for i, e := range endpoints[1:] {
			var at []time.Duration
			for _, f := range p.probed() {
				if f.address == e.address && f.at.After(lost) {
					at = append(at, f.at.Sub(lost).Round(time.Millisecond))
				}
			}
			hurried := len(at) > 12 && at[0] <= RecheckInterval*11/10+recheckTick
			if hurried != e.hurried {
				t.Errorf("endpoint %d is probed %v after the loss", i+1, at)
			}
		}
	})
}

// TestSharedRechecksBesideBlackHoles: the loss of an endpoint is noticed in time, also
// if a cluster with thousands of endpoints that do not answer has its address too.
func TestSharedRechecksBesideBlackHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		d := dialerOn(t, n)
		c := dialed(t, d, resource.ConnectTCP)
		send(t, c, cluster("good", numbered(1, "good"), numbered(1, "other")))
		answers(t, c, "good", "good0:1")
		dark := dialed(t, d, resource.ConnectTCP)
		send(t, dark, cluster("dark", append(numbered(5000, "dark"), numbered(1, "good")...)))
		synctest.Wait()
		if ready := dark.Summary().Clusters.Get("dark").Priorities[0].Ready; ready != 5001 {
			t.Fatalf("%d are READY", ready)
		}
		n.set(func() { n.silent = "dark" })
		time.Sleep(20 * time.Second)
		n.set(func() { n.down["good0:1"] = true })
		time.Sleep(NoticeTime(resource.ConnectTCP))
		if took := answers(t, c, "good", "other0:1"); took != 0 {
			t.Errorf("noticed %v too late", took)
		}
	})
}

// TestShortageOfProber: a shortage of lbd in a probe loses no endpoint, of whichever
// kind; EADDRNOTAVAIL that is the address's fault does.
func TestShortageOfProber(t *testing.T) {
	for lacking, errno := range shortages {
		synctest.Test(t, func(t *testing.T) {
			s := &host{network: newNetwork()}
			d, m := s.on(t, overload.Budget{})
			p := &fakeProber{answer: func(address string, _ time.Duration) (time.Duration, error) {
				_, err := s.connect(t.Context(), "tcp", address)
				return 0, err
			}}
			d.poller = p
			reports, stop := connectIn(d, "c", "10.0.0.1:1")
			defer stop()
			<-reports
			s.set(errno)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := m.Current(); len(reports) != 0 || len(got) != 1 || got[0].Resource != lacking {
				t.Errorf("%s: %d reports, the monitor has %v", lacking, len(reports), got)
			}
			s.lack.Lock()
			s.noUDP = true
			s.lack.Unlock()
			time.Sleep(NoticeTime(resource.ConnectTCP))
			if lost := errno == syscall.EADDRNOTAVAIL; (len(reports) == 1) != lost {
				t.Errorf("%s: %d reports without UDP", lacking, len(reports))
			}
		})
	}
}

// TestRecheckModel: links begin and end at random, at addresses that answer, refuse and
// are silent at random. Each link that is connected has its loss within NoticeTime, no
// link has a report after its end, an address is never probed twice within the shortest
// interval, except after a loss, and nothing is left in the end.
func TestRecheckModel(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 0))
			d, p, h := probing(t)
			var mu sync.Mutex
			downSince := make(map[string]time.Time)
			live := make(map[*modelLink]bool)
			var addresses []string
			for i := range 6 {
				addresses = append(addresses, fmt.Sprintf("10.0.0.%d:%d", i/2, i))
			}
			for range 300 {
				a := addresses[draw.IntN(len(addresses))]
				switch draw.IntN(5) {
				case 0, 1:
					l := &modelLink{address: a, model: &mu}
					c := tcpConnector{dialer: d, group: dialGroup{cluster: fmt.Sprint(draw.IntN(3))}}
					live[l] = true
					l.stop = c.Start([]string{a}, l.report)
				case 2:
					for l := range live {
						l.end()
						delete(live, l)
						break
					}
				case 3:
					how := []string{"", "refuses", "silent"}[draw.IntN(3)]
					mu.Lock()
					if h.set(a, how); how == "" {
						delete(downSince, a)
					} else if _, was := downSince[a]; !was {
						downSince[a] = time.Now()
					}
					mu.Unlock()
				default:
					time.Sleep(time.Duration(draw.Int64N(int64(20 * time.Second))))
				}
				synctest.Wait()
				mu.Lock()
				for l := range live {
					since, down := downSince[l.address]
					late := time.Since(since) - NoticeTime(resource.ConnectTCP) - ConnectTimeout
					if l.wrong != "" || down && l.isConnected && late > 0 {
						t.Errorf("seed %d: %s: %q; connected, down since %v", seed, l.address, l.wrong, time.Since(since))
					}
				}
				mu.Unlock()
			}
			for l := range live {
				l.end()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := len(d.rechecks.all) + d.rechecks.waiting + busyDials(d); n != 0 {
				t.Errorf("seed %d: %d checks are left", seed, n)
			}
			for _, a := range addresses {
				for _, gap := range p.gaps(a) {
					if gap < RecheckInterval*9/10-recheckTick {
						t.Errorf("seed %d: %s was probed twice within %v", seed, a, gap)
					}
				}
			}
		})
	}
}

// modelLink is a link, and what it has reported.
type modelLink struct {
	address string
	stop    func()

	model       *sync.Mutex // guards the rest
	isConnected bool
	ended, done bool
	wrong       string
}

func (l *modelLink) report(c Connection) {
	l.model.Lock()
	defer l.model.Unlock()
	switch {
	case l.ended:
		l.wrong = "a report after the end"
	case l.done:
		l.wrong = "a report after the loss"
	case c.Err == nil && l.isConnected:
		l.wrong = "connected twice"
	case c.Err == nil && c.Address != l.address:
		l.wrong = "connected to " + c.Address
	}
	l.isConnected, l.done = c.Err == nil, c.Err != nil
}

func (l *modelLink) end() {
	l.stop()
	synctest.Wait()
	l.model.Lock()
	defer l.model.Unlock()
	l.ended = true
}

// TestProbeOfRealSockets: an endpoint is checked by probes that it does not see, and
// its loss is reported with the error of net.Dialer.
func TestProbeOfRealSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	d := NewDialer(nil, overload.Budget{}, nil, nil)
	defer d.Close()
	reports, stop := connectIn(d, "c", l.Addr().String())
	defer stop()
	if c := <-reports; c.Err != nil {
		t.Fatal(c.Err)
	}
	noError(t, l.Close())
	_, want := net.Dial("tcp", l.Addr().String())
	if c := <-reports; c.Err == nil || want == nil || c.Err.Error() != want.Error() || !errors.Is(c.Err, syscall.ECONNREFUSED) {
		t.Errorf("reported %v; want %v", c.Err, want)
	}
	if !strings.Contains(want.Error(), "connection refused") {
		t.Error(want)
	}
}
