package lb_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// probe stands where the tree's topmost policy is, and lets the test use the
// channel's ClientConn.
type probe struct {
	t       *testing.T
	channel *lb.Channel
	start   time.Time

	mu   sync.Mutex
	conn *policy.Conn
	says []string // what the SubConn's listener received since the last look
}

func (p *probe) Name() string { return policy.ClusterManager }

func (p *probe) Build(conn *policy.Conn) policy.Policy {
	p.conn = conn
	return p
}

func (p *probe) Update(policy.Child) error { return nil }
func (p *probe) Describe() policy.Node     { return policy.Node{} }
func (p *probe) Summarize() policy.Summary { return policy.Summary{} }
func (p *probe) Use([]*policy.Usage)       {}
func (p *probe) Close()                    {}

func newProbe(t *testing.T, connectors map[resource.ConnectMode]lb.Connector, draw func() uint64) *probe {
	p := &probe{t: t, start: time.Now()}
	o := options(nil)
	o.Registry, o.Connectors, o.Draw = policy.NewRegistry(p), connectors, draw
	p.channel = lb.NewChannel(o)
	t.Cleanup(p.channel.Close)
	_, err := p.channel.DescribeCluster(t.Context(), "") // it builds the tree
	noError(t, err)
	return p
}

// do lets the owner run f, and all that comes of it.
func (p *probe) do(f func()) {
	p.t.Helper()
	done := make(chan struct{})
	p.conn.Post(func() {
		f()
		close(done)
	})
	<-done
	synctest.Wait()
}

// subConn makes a SubConn that connects whenever it is IDLE, as policies do.
func (p *probe) subConn(addresses ...string) balancer.SubConn {
	p.t.Helper()
	var sc balancer.SubConn
	p.do(func() {
		var err error
		sc, err = p.conn.NewSubConn(toAddresses(addresses), balancer.NewSubConnOptions{
			StateListener: func(s balancer.SubConnState) {
				p.mu.Lock()
				defer p.mu.Unlock()
				line := fmt.Sprintf("%v %v", time.Since(p.start), s.ConnectivityState)
				if s.ConnectionError != nil {
					line += " " + s.ConnectionError.Error()
				}
				p.says = append(p.says, line)
				if s.ConnectivityState == idle {
					sc.Connect()
				}
			},
		})
		if err != nil {
			p.t.Error(err)
		}
	})
	return sc
}

func (p *probe) ready(sc balancer.SubConn) (string, bool) {
	p.t.Helper()
	return policy.ConnectionOf(sc).Ready()
}

func toAddresses(addresses []string) []resolver.Address {
	out := make([]resolver.Address, len(addresses))
	for i, a := range addresses {
		out[i] = resolver.Address{Addr: a}
	}
	return out
}

// expect asserts what the listener received since the last look.
func (p *probe) expect(want ...string) {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.says, want) {
		p.t.Errorf("received\n  %s\nwant\n  %s", strings.Join(p.says, "\n  "), strings.Join(want, "\n  "))
	}
	p.says = nil
}

func onBoard(b lb.Connector) map[resource.ConnectMode]lb.Connector {
	return map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: b}
}

func TestSubConnLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		p := newProbe(t, onBoard(board), half)
		sc := p.subConn("a:1")
		p.expect() // nothing before Connect
		p.do(func() {
			sc.Connect()
			sc.Connect() // one attempt is enough
		})
		p.expect("0s CONNECTING")
		time.Sleep(time.Second)
		board.set(true, "a:1")
		p.expect("1s READY")
		if a, ok := p.ready(sc); !ok || a != "a:1" {
			t.Errorf("ready at %q, %t", a, ok)
		}
		p.do(sc.Connect) // it is
		p.expect()

		time.Sleep(time.Second)
		board.lose("a:1") // lost: IDLE, and it connects again at once
		p.expect("2s IDLE connect to a:1: connection refused", "2s CONNECTING")
		if _, ok := p.ready(sc); ok {
			t.Error("ready, but lost")
		}
		board.set(false, "a:1")
		p.expect("2s TRANSIENT_FAILURE connect to a:1: connection refused")
		p.do(sc.Connect) // not before the back-off's end
		time.Sleep(time.Second)
		p.expect("3s IDLE", "3s CONNECTING", "3s TRANSIENT_FAILURE connect to a:1: connection refused")
		board.set(true, "a:1")
		time.Sleep(1600 * time.Millisecond)
		p.expect("4.6s IDLE", "4.6s CONNECTING", "4.6s READY")

		time.Sleep(time.Second)
		board.set(false, "a:1") // READY for a second in between: the back-off restarts
		p.expect("5.6s IDLE connect to a:1: connection refused", "5.6s CONNECTING", "5.6s TRANSIENT_FAILURE connect to a:1: connection refused")
		time.Sleep(time.Second)
		p.expect("6.6s IDLE", "6.6s CONNECTING", "6.6s TRANSIENT_FAILURE connect to a:1: connection refused")

		p.do(sc.Shutdown)
		p.do(sc.Shutdown)
		p.do(sc.Connect)
		time.Sleep(time.Hour)
		p.expect("6.6s SHUTDOWN")
		if board.open() != 0 {
			t.Error("an attempt is not given up")
		}
	})
}

// TestShortLife: a connection that is lost within a second of its making is an
// attempt that failed, and one that lived longer restarts the back-off.
func TestShortLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as attempts
		p := newProbe(t, onBoard(&as), half)
		sc := p.subConn("a:1", "b:1")
		p.do(sc.Connect)
		live := func(attempt int, d time.Duration) {
			t.Helper()
			synctest.Wait()
			a := as.at(attempt)
			a.report(lb.Connection{Address: "a:1"})
			time.Sleep(d)
			a.report(lb.Connection{Err: errRefused})
		}
		live(0, 0)
		p.expect("0s CONNECTING", "0s READY", "0s TRANSIENT_FAILURE connect to a:1: connection refused")
		if a, ok := p.ready(sc); ok {
			t.Errorf("ready at %s", a)
		}
		if !as.gaveUp(0) {
			t.Error("the lost connection is not given up")
		}
		time.Sleep(time.Second)
		live(1, 999*time.Millisecond)
		p.expect("1s IDLE", "1s CONNECTING", "1s READY", "1.999s TRANSIENT_FAILURE connect to a:1: connection refused")
		time.Sleep(1600 * time.Millisecond)
		live(2, time.Second)
		p.expect("3.599s IDLE", "3.599s CONNECTING", "3.599s READY", "4.599s IDLE connect to a:1: connection refused", "4.599s CONNECTING")
		live(3, 0)
		p.expect("4.599s READY", "4.599s TRANSIENT_FAILURE connect to a:1: connection refused")
		time.Sleep(time.Second)
		p.expect("5.599s IDLE", "5.599s CONNECTING")

		p.do(func() { sc.UpdateAddresses(toAddresses([]string{"c:1"})) }) // which has not failed yet
		as.at(5).report(lb.Connection{Address: "c:1", Err: errRefused})
		time.Sleep(time.Second)
		p.expect("5.599s IDLE", "5.599s CONNECTING", "5.599s TRANSIENT_FAILURE connect to c:1: connection refused", "6.599s IDLE", "6.599s CONNECTING")
	})
}

// TestBackOff: 1 s × 1.6, at most 120 s, give or take a fifth, and reported in the
// error.
func TestBackOff(t *testing.T) {
	for _, tt := range []struct {
		name   string
		draw   uint64
		factor float64
	}{{"least", 0, 0.8}, {"middle", 1 << 63, 1}, {"most", 1<<64 - 1, 1.2}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				board.set(false, "a:1")
				p := newProbe(t, onBoard(board), func() uint64 { return tt.draw })
				sc := p.subConn("a:1")
				p.do(sc.Connect)
				want, next := float64(time.Second), time.Now()
				for n := 1; n <= 15; n++ {
					if got := board.attempted("a:1"); got != n {
						t.Fatalf("%d attempts, want %d", got, n)
					}
					pause := time.Duration(min(want, float64(120*time.Second)) * tt.factor)
					next = next.Add(pause)
					time.Sleep(time.Until(next) - time.Microsecond)
					synctest.Wait()
					if got := board.attempted("a:1"); got != n {
						t.Fatalf("attempt %d came before %v had passed", n+1, pause)
					}
					time.Sleep(2 * time.Microsecond)
					synctest.Wait()
					want *= 1.6
				}
			})
		})
	}
}

func TestConnectError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		board.set(false, "a-0:80")
		c := newChannel(t, board, func(o *lb.Options) { o.Draw = half })
		offer(t, c, config(nil, 1, locality("a", 0, 1, 1)))
		synctest.Wait()
		err := c.Pick(newCall(), 0)
		var ce *policy.ConnectError
		if !errors.As(err, &ce) || ce.Address != "a-0:80" || !errors.Is(err, errRefused) || !ce.RetryAt.Equal(time.Now().Add(time.Second)) {
			t.Errorf("err %#v, retry in %v; want it to name the address, why, and when", err, time.Until(ce.RetryAt))
		}
	})
}

// attempts is a Connector that leaves every attempt to the test.
type attempts struct {
	mu  sync.Mutex
	all []*attempt
}

type attempt struct {
	addresses []string
	report    func(lb.Connection)
	stopped   bool
}

func (a *attempts) Start(addresses []string, report func(lb.Connection)) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := &attempt{addresses: addresses, report: report}
	a.all = append(a.all, at)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		at.stopped = true
	}
}

// at returns the i-th attempt.
func (a *attempts) at(i int) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[i]
}

func (a *attempts) gaveUp(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[i].stopped
}

// TestLateReports: reports of an attempt that was given up are ignored.
func TestLateReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var as attempts
		p := newProbe(t, onBoard(&as), half)
		sc := p.subConn("a:1", "b:1")
		p.do(sc.Connect)
		first := as.all[0]
		first.report(lb.Connection{Address: "b:1", Err: errRefused})
		time.Sleep(time.Second)
		p.expect("0s CONNECTING", "0s TRANSIENT_FAILURE connect to b:1: connection refused", "1s IDLE", "1s CONNECTING")
		if !first.stopped {
			t.Error("a failed attempt is not stopped")
		}
		first.report(lb.Connection{Address: "a:1"})
		first.report(lb.Connection{Err: errRefused})
		p.expect()
		as.all[1].report(lb.Connection{Address: "b:1"})
		p.expect("1s READY")
		first.report(lb.Connection{Err: errRefused})
		p.expect()
		p.do(sc.Shutdown)
		as.all[1].report(lb.Connection{Err: errRefused})
		p.expect("1s SHUTDOWN")
		if !as.all[1].stopped {
			t.Error("the connection is not stopped")
		}
	})
}

// TestUpdateAddresses: where the connection's address stays, so does the
// connection.
func TestUpdateAddresses(t *testing.T) {
	tests := []struct {
		name   string
		state  connectivity.State // before: b:1 is the connected one
		to     []string
		want   []string
		atOnce string // the address that is ready then
	}{
		{"the connected one stays", ready, []string{"c:1", "b:1"}, nil, "b:1"},
		{"the connected one goes", ready, []string{"c:1"}, []string{"0s IDLE", "0s CONNECTING", "0s READY"}, "c:1"},
		{"another order", ready, []string{"b:1", "a:1"}, nil, "b:1"},
		{"another order while connecting: the attempt goes on", connecting, []string{"b:1", "a:1"}, nil, ""},
		{"while connecting", connecting, []string{"c:1"}, []string{"0s IDLE", "0s CONNECTING", "0s READY"}, "c:1"},
		{"while backing off: when that ends", failure, []string{"c:1"}, nil, ""},
		{"before the first attempt", idle, []string{"c:1"}, nil, ""},
		{"none", ready, nil, nil, "b:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				board.set(true, "c:1")
				switch tt.state {
				case ready:
					board.set(true, "b:1")
				case failure:
					board.set(false, "a:1", "b:1")
				}
				p := newProbe(t, onBoard(board), half)
				sc := p.subConn("a:1", "b:1")
				if tt.state != idle {
					p.do(sc.Connect)
				}
				p.says = nil
				p.do(func() { sc.UpdateAddresses(toAddresses(tt.to)) })
				p.expect(tt.want...)
				if a, _ := p.ready(sc); a != tt.atOnce {
					t.Errorf("ready at %q, want %q", a, tt.atOnce)
				}
				time.Sleep(time.Minute)
				if tt.state == connecting {
					board.set(true, "b:1")
				}
				p.do(sc.Connect)
				if a, _ := p.ready(sc); len(tt.to) > 0 && !slices.Contains(tt.to, a) {
					t.Errorf("later ready at %q, want one of %v", a, tt.to)
				}
			})
		})
	}
}

// TestConnectNone: READY at once, at the first address, also of new ones.
func TestConnectNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, onBoard(nil), half)
		sc := p.subConn("a:1", "b:1")
		p.do(sc.Connect)
		p.expect("0s CONNECTING", "0s READY")
		p.do(func() { sc.UpdateAddresses(toAddresses([]string{"a:1"})) })
		p.expect()
		p.do(func() { sc.UpdateAddresses(toAddresses([]string{"c:1"})) })
		p.expect("0s IDLE", "0s CONNECTING", "0s READY")
		if a, ok := p.ready(sc); !ok || a != "c:1" {
			t.Errorf("ready at %q, %t; want c:1", a, ok)
		}
	})
}

func TestSubConnContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		p := newProbe(t, onBoard(board), half)
		sc := p.subConn("a:1")
		healthy := 0
		register := func() {
			sc.RegisterHealthListener(func(s balancer.SubConnState) {
				if s.ConnectivityState == ready {
					healthy++
				}
			})
		}
		p.do(register)
		if healthy != 0 {
			t.Error("healthy before it is READY")
		}
		p.do(sc.Connect)
		board.set(true, "a:1")
		synctest.Wait()
		p.do(register)
		if healthy != 1 {
			t.Errorf("reported healthy %d times, want 1", healthy)
		}
		if producer, closer := sc.GetOrBuildProducer(nil); producer != nil || closer == nil {
			t.Errorf("producer %v", producer)
		}
		p.do(func() {
			if _, err := p.conn.NewSubConn(nil, balancer.NewSubConnOptions{}); err == nil {
				t.Error("a SubConn without address")
			}
			addrs := policy.WithLink(toAddresses([]string{"a:1"}), policy.NewLink("", "", "pigeon", nil))
			if _, err := p.conn.NewSubConn(addrs, balancer.NewSubConnOptions{}); err == nil || err.Error() != `connect mode "pigeon" is not available` {
				t.Errorf("err %v", err)
			}
			sc.Shutdown()
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		if last := p.says[len(p.says)-1]; last != "0s SHUTDOWN" {
			t.Errorf("last state is %s", last)
		}
	})
}

// TestMethodSets: an upgrade of grpc that adds a method to an interface which
// grpc wants embedded would call through nil. It is to be seen here.
func TestMethodSets(t *testing.T) {
	for _, tt := range []struct {
		iface reflect.Type
		want  string
	}{
		{reflect.TypeFor[balancer.ClientConn](), "MetricsRecorder NewSubConn RemoveSubConn ResolveNow Target UpdateAddresses UpdateState"},
		{reflect.TypeFor[balancer.SubConn](), "Connect GetOrBuildProducer RegisterHealthListener Shutdown UpdateAddresses"},
		{reflect.TypeFor[balancer.Balancer](), "Close ExitIdle ResolverError UpdateClientConnState UpdateSubConnState"},
	} {
		var got []string
		for m := range tt.iface.Methods() {
			if m.IsExported() {
				got = append(got, m.Name)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v has the methods\n  %s, known are\n  %s", tt.iface, strings.Join(got, " "), tt.want)
		}
	}
}
