package lb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
	shutdown   = connectivity.Shutdown
)

// TestQueue: one pick for each row, on a channel of the endpoint z-0:80, and how
// long it waits.
func TestQueue(t *testing.T) {
	errGone := errors.New("the caller hung up")
	one := config(nil, 10, locality("z", 0, 1, 1))
	all := config([]resource.Drop{{Category: "all", PerMillion: 1_000_000}}, 10, locality("z", 0, 1, 1))
	type world struct {
		board  *switchboard
		c      *lb.Channel
		cancel context.CancelCauseFunc
		ended  chan struct{} // Canceled of the pick
	}
	up := func(w *world) { w.board.set(true, "z-0:80") }
	down := func(w *world) { w.board.set(false, "z-0:80") }
	configured := func(w *world) { w.c.Offer(one) }
	dropping := func(w *world) { w.c.Offer(all) }
	gone := func(w *world) { w.cancel(errGone) }
	canceled := func(w *world) { close(w.ended) }
	closed := func(w *world) { w.c.Close() }
	unusable := func(w *world) { w.c.Offer(configOf(&resource.ClusterConfig{Err: errors.New("deleted")})) }

	tests := []struct {
		name         string
		before       []func(*world)
		wait         time.Duration
		waitForReady bool
		cluster      string
		then         func(*world) // two seconds later
		want         string       // endpoint, or error with its type
		waited       time.Duration
	}{
		{name: "READY: no wait", before: []func(*world){configured, up}, want: "z-0:80"},
		{name: "no config yet: it comes", wait: time.Minute, then: func(w *world) { configured(w); up(w) }, want: "z-0:80", waited: 2 * time.Second},
		{name: "CONNECTING, then READY", before: []func(*world){configured}, wait: time.Minute, then: up, want: "z-0:80", waited: 2 * time.Second},
		{
			name: "CONNECTING for longer than the pick waits", before: []func(*world){configured}, wait: 5 * time.Second,
			want: "*lb.TimeoutError still connecting after 5s", waited: 5 * time.Second,
		},
		{name: "a pick that does not wait", before: []func(*world){configured}, want: "*lb.TimeoutError still connecting after 0s"},
		{
			name: "the caller goes away", before: []func(*world){configured}, wait: time.Minute, then: gone,
			want: "*errors.errorString the caller hung up", waited: 2 * time.Second,
		},
		{
			name: "the wait is canceled", before: []func(*world){configured}, wait: time.Minute, then: canceled,
			want: "*errors.errorString the wait was canceled", waited: 2 * time.Second,
		},
		{name: "canceled before, but there is no wait", before: []func(*world){configured, up, canceled}, wait: time.Minute, want: "z-0:80"},
		{
			name: "CONNECTING, then failed", before: []func(*world){configured}, wait: time.Minute, then: down,
			want: "*lb.NotReadyError connect to z-0:80: connection refused", waited: 2 * time.Second,
		},
		{
			name: "TRANSIENT_FAILURE ends a pick at once", before: []func(*world){configured, down}, wait: time.Minute,
			want: "*lb.NotReadyError connect to z-0:80: connection refused",
		},
		{
			name: "but not one that waits for ready: the back-off ends a second later", before: []func(*world){configured, down},
			wait: time.Minute, waitForReady: true, then: up, want: "z-0:80", waited: 2600 * time.Millisecond,
		},
		{
			name: "which learns the last error when its wait ends", before: []func(*world){configured, down},
			wait: 5 * time.Second, waitForReady: true,
			want: "*lb.TimeoutError not ready within 5s: connect to z-0:80: connection refused", waited: 5 * time.Second,
		},
		{
			name: "or at once, if it does not wait", before: []func(*world){configured, down}, waitForReady: true,
			want: "*lb.TimeoutError not ready within 0s: connect to z-0:80: connection refused",
		},
		{name: "a drop ends it, wait-for-ready or not", before: []func(*world){dropping, up}, wait: time.Minute, waitForReady: true, want: "*policy.Refusal RPC is dropped"},
		{
			name: "so does an unknown cluster", before: []func(*world){configured, up}, wait: time.Minute, waitForReady: true, cluster: "x",
			want: `*policy.Refusal unknown cluster selected for RPC: "x"`,
		},
		{name: "a drop ends it while it is queued", before: []func(*world){configured}, wait: time.Minute, then: func(w *world) { dropping(w); up(w) }, want: "*policy.Refusal RPC is dropped", waited: 2 * time.Second},
		{
			name: "the cluster turns unusable", before: []func(*world){configured}, wait: time.Minute, then: unusable,
			want: "*lb.NotReadyError deleted", waited: 2 * time.Second,
		},
		{name: "the channel is closed", before: []func(*world){configured}, wait: time.Minute, waitForReady: true, then: closed, want: "*errors.errorString channel is closed", waited: 2 * time.Second},
		{name: "the channel was closed", before: []func(*world){configured, up, closed}, wait: time.Minute, want: "*errors.errorString channel is closed"},
		{
			name: "the connection fails with another's status: that is no verdict on the pick",
			before: []func(*world){configured, func(w *world) {
				w.board.why = status.Error(codes.Unavailable, "unhealthy")
			}, down},
			wait: time.Minute, waitForReady: true, then: up, want: "z-0:80", waited: 2600 * time.Millisecond,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{board: newSwitchboard(), ended: make(chan struct{})}
				w.c = newChannel(t, w.board, func(o *lb.Options) { o.Draw = half })
				ctx, cancel := context.WithCancelCause(t.Context())
				w.cancel = cancel
				defer cancel(nil)
				for _, f := range tt.before {
					f(w)
					synctest.Wait()
				}
				call := &policy.Call{Context: ctx, Cluster: cluster, WaitForReady: tt.waitForReady, Canceled: w.ended}
				if tt.cluster != "" {
					call.Cluster = tt.cluster
				}
				if tt.then != nil {
					time.AfterFunc(2*time.Second, func() { tt.then(w) })
				}
				start := time.Now()
				err := w.c.Pick(call, tt.wait)
				got := fmt.Sprintf("%T %v", err, err)
				if err == nil {
					got = call.Address
					if call.Generation != w.c.Generation() {
						t.Errorf("generation %d, the picker's is %d", call.Generation, w.c.Generation())
					}
				}
				if got != tt.want || time.Since(start) != tt.waited || call.Queued != tt.waited {
					t.Errorf("got %s after %v, queued %v\nwant %s after %v", got, time.Since(start), call.Queued, tt.want, tt.waited)
				}
			})
		})
	}
}

// TestQueuedIsThisPicks: a call that is asked again tells nothing of the pick
// before.
func TestQueuedIsThisPicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		offer(t, c, config(nil, 10, locality("z", 0, 1, 1)))
		time.AfterFunc(time.Second, func() { board.set(true, "z-0:80") })
		call := newCall()
		for _, want := range []time.Duration{time.Second, 0} {
			if err := c.Pick(call, time.Minute); err != nil || call.Queued != want {
				t.Errorf("queued for %v, %v; want %v", call.Queued, err, want)
			}
			call.Again()
		}
	})
}

// TestConfigSlot: of the configs that wait for a busy owner only the newest is
// applied, and everybody is answered.
func TestConfigSlot(t *testing.T) {
	var g gate
	var clusters []string
	c := newChannel(t, nil, func(o *lb.Options) {
		o.Report = func(events []policy.Event) {
			for _, e := range events {
				if p, ok := e.(policy.PrioritySwitched); ok {
					clusters = append(clusters, p.Cluster)
				}
			}
			g.report(events)
		}
	})
	version := func(n int) *resource.Config {
		name := fmt.Sprint("v", n)
		return &resource.Config{Roots: []string{name}, Clusters: few.Of(map[string]*resource.ClusterConfig{name: {
			Cluster:    resource.DefaultCluster(name),
			Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{locality("z", 0, 1, 1)}},
		}})}
	}
	held := g.hold()
	offered := []lb.Offered{c.Offer(version(1))}
	<-held
	for n := 2; n <= 5; n++ {
		offered = append(offered, c.Offer(version(n)))
	}
	done, cancel := context.WithCancelCause(t.Context())
	errGone := errors.New("gone")
	cancel(errGone)
	for i, o := range offered {
		if err := o.Wait(done); !errors.Is(err, errGone) {
			t.Errorf("config %d: %v while the owner is busy", i+1, err)
		}
	}
	g.open()
	for i, o := range offered {
		if err := o.Wait(t.Context()); err != nil {
			t.Errorf("config %d: %v", i+1, err)
		}
	}
	if err := c.Pick(&policy.Call{Context: t.Context(), Cluster: "v5"}, 0); err != nil {
		t.Errorf("the newest config is answered, but picks do not see it: %v", err)
	}
	c.Close()
	if got := fmt.Sprint(clusters); got != "[v1 v5]" {
		t.Errorf("applied %v, want the first, which was on its way, and the newest", got)
	}
	if err := c.Offer(version(6)).Wait(t.Context()); !errors.Is(err, lb.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, lb.ErrClosed)
	}
}

// TestGeneration: a picker is published only when picks can see a change.
func TestGeneration(t *testing.T) {
	good := func() *resource.ClusterConfig {
		return config(nil, 10, locality("a", 0, 1, 2), locality("b", 1, 1, 1)).Clusters.Get(cluster)
	}
	first := good()
	change := func(f func(cc *resource.ClusterConfig)) *resource.ClusterConfig {
		cc := *first
		f(&cc)
		return &cc
	}
	tests := []struct {
		name string
		next *resource.ClusterConfig
		do   func(board *switchboard)
		want int64
	}{
		{name: "the same config", next: first},
		{name: "another config of the same values", next: change(func(*resource.ClusterConfig) {})},
		{name: "an ambient error", next: change(func(cc *resource.ClusterConfig) { cc.AssignmentErr = errors.New("x") })},
		{name: "the same endpoints decoded again", next: good(), want: 1},
		{name: "drops", next: change(func(cc *resource.ClusterConfig) {
			a := *cc.Assignment
			a.Drops = []resource.Drop{{Category: "a", PerMillion: 5}}
			cc.Assignment = &a
		}), want: 1},
		{name: "a limit", next: change(func(cc *resource.ClusterConfig) {
			c := *cc.Cluster
			c.MaxRequests = 11
			cc.Cluster = &c
		}), want: 1},
		{name: "a priority below the one in use", next: change(func(cc *resource.ClusterConfig) {
			a := *cc.Assignment
			a.Localities = append(a.Localities[:1:1], locality("b", 1, 1, 7))
			cc.Assignment = &a
		})},
		{name: "an error for good", next: &resource.ClusterConfig{Err: errors.New("deleted")}, want: 1},
		{name: "an endpoint is lost", do: func(b *switchboard) { b.lose("a-0:80") }, want: 1},
		{name: "one that has failed goes on failing", do: func(*switchboard) { time.Sleep(time.Hour) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				board.set(true, "a-0:80")
				board.set(false, "a-1:80")
				c := newChannel(t, board, func(o *lb.Options) { o.Generation = 41 })
				if c.Generation() != 41 {
					t.Errorf("the first generation is %d, want 41", c.Generation())
				}
				offer(t, c, configOf(first))
				synctest.Wait()
				before := c.Generation()
				if tt.next != nil {
					offer(t, c, configOf(tt.next))
				}
				if tt.do != nil {
					tt.do(board)
				}
				synctest.Wait()
				if got := c.Generation() - before; got != tt.want {
					t.Errorf("%d new pickers, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestOneBatchOnePicker: a thousand connections that come up together make one
// picker, and so does a config that brings a thousand endpoints.
func TestOneBatchOnePicker(t *testing.T) {
	var g gate
	board := newSwitchboard()
	c := newChannel(t, board, func(o *lb.Options) { o.Report = g.report })
	l := locality("z", 0, 1, 1000)
	offer(t, c, config(nil, 10, l))

	held := g.hold()
	board.set(true, "z-0:80") // its event holds the owner
	<-held
	for _, e := range l.Endpoints[1:] {
		board.set(true, e.Addresses[0])
	}
	before := c.Generation()
	g.open()
	for g := c.Generation(); c.Summary().Clusters.Get(cluster).Priorities[0].Ready < 1000; g = c.Generation() {
		c.WaitForGeneration(t.Context(), g)
	}
	if got := c.Generation() - before; got > 2 {
		t.Errorf("%d pickers for a thousand connections, want 2: of the one that held the owner, and of all others", got)
	}

	none := newChannel(t, nil)
	before = none.Generation()
	offer(t, none, config(nil, 10, l))
	if got := none.Generation() - before; got != 1 {
		t.Errorf("%d pickers for a config, want 1", got)
	}
}

func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		var got []string
		var watch sync.WaitGroup
		watch.Go(func() {
			for state := idle; state != shutdown; {
				generation := c.Generation()
				if s := c.State(); s != state {
					state = s
					got = append(got, state.String())
					continue
				}
				c.WaitForGeneration(t.Context(), generation)
			}
		})
		synctest.Wait()
		for _, step := range []func(){
			func() { c.Offer(config(nil, 10, locality("z", 0, 1, 1))) },
			func() { board.set(true, "z-0:80") },
			func() { time.Sleep(time.Second) },
			func() { board.lose("z-0:80") },
			func() { board.set(false, "z-0:80") },
			func() { board.set(true, "z-0:80") },
			func() { time.Sleep(time.Second * 2) },
			c.Close,
		} {
			step()
			synctest.Wait()
		}
		watch.Wait()
		// TRANSIENT_FAILURE lasts until READY.
		if want := "[CONNECTING READY CONNECTING TRANSIENT_FAILURE READY SHUTDOWN]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.WaitForGeneration(ctx, c.Generation()) {
			t.Error("a wait for nothing did not end with its context")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		board.set(true, "a-0:80")
		board.set(false, "a-1:80")
		events := 0
		c := newChannel(t, board, func(o *lb.Options) { o.Report = func(batch []policy.Event) { events += len(batch) } })
		offer(t, c, config(nil, 10, locality("a", 0, 1, 3), locality("b", 1, 1, 1)))
		synctest.Wait()
		board.mu.Lock()
		late := slices.Clone(board.links)
		board.mu.Unlock()
		call := newCall()
		call.Hold = true
		noError(t, c.Pick(call, 0))
		c.Close()
		c.Close()
		events = 0
		if n := board.open(); n != 0 {
			t.Errorf("%d attempts and connections are not given up", n)
		}
		for _, l := range late {
			l.report(lb.Connection{Address: l.addresses[0]})
		}
		time.Sleep(time.Hour) // no back-off, no init timer
		synctest.Wait()
		if events != 0 {
			t.Errorf("%d events after Close", events)
		}
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
		if err := c.Pick(newCall(), time.Minute); !errors.Is(err, lb.ErrClosed) {
			t.Errorf("Pick: %v, want %v", err, lb.ErrClosed)
		}
		if _, err := c.Describe(t.Context()); !errors.Is(err, lb.ErrClosed) {
			t.Errorf("Describe: %v, want %v", err, lb.ErrClosed)
		}
		if c.State() != shutdown {
			t.Errorf("state %v", c.State())
		}
	})
}

// TestUnderLoad: picks, connections and configs all at once; every answer is one
// that some config allows, and nothing stays held.
func TestUnderLoad(t *testing.T) {
	a, b := locality("a", 0, 1, 4), locality("b", 1, 1, 4)
	drops := []resource.Drop{{Category: "half", PerMillion: 500_000}}
	for _, tt := range []struct {
		name    string
		configs []*resource.Config
		lost    []*resource.Endpoint // again and again
		// fails is true where every endpoint of a config can be in back-off at
		// once: such a channel is in TRANSIENT_FAILURE, and tells picks the last
		// error.
		fails bool
	}{
		{name: "one endpoint stays", configs: []*resource.Config{config(nil, 3, a, b), config(drops, 5, a, b), config(nil, 4, a)}, lost: a.Endpoints[1:]},
		{name: "one priority stays", configs: []*resource.Config{config(nil, 3, a, b), config(drops, 5, a, b), config(nil, 4, a, b)}, lost: a.Endpoints},
		{name: "none stays", configs: []*resource.Config{config(nil, 3, a, b), config(drops, 5, a, b), config(nil, 4, a)}, lost: a.Endpoints, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			board := newSwitchboard()
			counters := policy.NewCounters()
			c := newChannel(t, board, func(o *lb.Options) { o.Counters = counters })
			allowed := make(map[string]bool)
			for _, e := range slices.Concat(a.Endpoints, b.Endpoints) {
				allowed[e.Addresses[0]] = true
				board.set(true, e.Addresses[0])
			}
			offer(t, c, tt.configs[0])
			stop := make(chan struct{})
			var picks, churn sync.WaitGroup
			churn.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					c.Offer(tt.configs[i%len(tt.configs)])
					address := tt.lost[i%len(tt.lost)].Addresses[0]
					board.lose(address)
					board.set(true, address)
				}
			})
			for range 4 {
				picks.Go(func() {
					call := newCall()
					for i := range 3000 {
						call.Hold = i%2 == 0
						err := c.Pick(call, time.Minute)
						var refusal *policy.Refusal
						var notReady *lb.NotReadyError
						switch {
						case err == nil:
							if !allowed[call.Address] || call.Endpoint.Addresses[0] != call.Address {
								t.Errorf("picked %q of %v", call.Address, call.Endpoint)
							}
							call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
						case errors.As(err, &refusal):
						case tt.fails && errors.As(err, &notReady) && errors.Is(err, errRefused):
						default:
							t.Error(err)
						}
						call.Again()
					}
				})
			}
			picks.Wait()
			close(stop)
			churn.Wait()
			if n := counters.Get(resource.ServiceKey{Cluster: cluster}).Breaker.InFlight(); n != 0 {
				t.Errorf("%d are still held", n)
			}
			c.Close()
			if counters.Get(resource.ServiceKey{Cluster: cluster}) != nil {
				t.Error("the channel is closed, but its counters are kept")
			}
		})
	}
}
