package lb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// refusing is a Waiter that permits no wait.
type refusing struct{}

var errNoWait = errors.New("no wait")

func (refusing) BeginWait() error { return errNoWait }
func (refusing) EndWait()         {}

// TestWarming: a pick in a channel that has a config and no tree.
func TestWarming(t *testing.T) {
	at := func(zone string) *resource.Config { return config(nil, 10, locality(zone, 0, 1, 1)) }
	for _, tt := range []struct {
		name    string
		up      []string
		down    []string
		before  func(t *testing.T, c *lb.Channel)
		waiter  policy.Waiter
		wait    time.Duration
		want    string // endpoint, or error with its type
		warming bool   // afterwards
	}{
		{name: "connected at once", up: []string{"z-0:80"}, wait: time.Second, want: "z-0:80"},
		{name: "still connecting", want: "*lb.TimeoutError still connecting after 0s"},
		{name: "refused", down: []string{"z-0:80"}, wait: time.Second, want: "*lb.NotReadyError connect to z-0:80: connection refused"},
		{
			name: "the newest of several configs", up: []string{"z-0:80", "y-0:80"}, wait: time.Second,
			before: func(_ *testing.T, c *lb.Channel) { c.Defer(at("y")) }, want: "y-0:80",
		},
		{
			name: "an update that builds the tree", up: []string{"y-0:80"}, wait: time.Second,
			before: func(_ *testing.T, c *lb.Channel) { c.Offer(at("y")) }, want: "y-0:80",
		},
		{
			name: "built in the background", up: []string{"z-0:80"}, wait: time.Second,
			before: func(t *testing.T, c *lb.Channel) { noError(t, c.Build(t.Context())) }, want: "z-0:80",
		},
		{
			name: "described", up: []string{"z-0:80"}, wait: time.Second,
			before: func(t *testing.T, c *lb.Channel) {
				n, err := c.DescribeCluster(t.Context(), cluster)
				noError(t, err)
				if n.State != connecting && n.State != ready {
					t.Errorf("described as %v", n.State)
				}
			},
			want: "z-0:80",
		},
		{
			name: "a config that is pending", before: func(_ *testing.T, c *lb.Channel) { c.Defer(&resource.Config{Pending: true}) },
			want: "*lb.TimeoutError still connecting after 0s",
		},
		{name: "a pick that must not wait", up: []string{"z-0:80"}, waiter: refusing{}, want: "*errors.errorString no wait", warming: true},
		{name: "closed", before: func(_ *testing.T, c *lb.Channel) { c.Close() }, want: "*errors.errorString channel is closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				board.set(true, tt.up...)
				board.set(false, tt.down...)
				c := newChannel(t, board, func(o *lb.Options) { o.Generation = 7 })
				if _, deferred := c.Defer(at("z")); !deferred {
					t.Fatal("the channel has built a tree")
				}
				synctest.Wait()
				if len(board.attempts) > 0 || !c.Warming() || c.State() != idle || c.Generation() != 7 {
					t.Errorf("connects to %v; %v, generation %d", board.attempts, c.State(), c.Generation())
				}
				if tt.before != nil {
					tt.before(t, c)
					synctest.Wait()
				}
				call := newCall()
				call.Waiter = tt.waiter
				err := c.Pick(call, tt.wait)
				got := fmt.Sprintf("%T %v", err, err)
				if err == nil {
					got = call.Address
				}
				if got != tt.want || c.Warming() != tt.warming {
					t.Errorf("got %s, warming %v; want %s, %v", got, c.Warming(), tt.want, tt.warming)
				}
				if _, deferred := c.Defer(at("z")); deferred != tt.warming {
					t.Errorf("the next config is deferred: %v", deferred)
				}
			})
		})
	}
}

// TestWarmingWaits: a pick that builds the tree then waits as any other.
func TestWarmingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		c.Defer(config(nil, 10, locality("z", 0, 1, 1)))
		time.AfterFunc(time.Second, func() { board.set(true, "z-0:80") })
		call := newCall()
		if err := c.Pick(call, time.Minute); err != nil || call.Queued != time.Second {
			t.Errorf("%v after %v", err, call.Queued)
		}
	})
}

// TestWarmingAnswersEarlierPicks: a pick that waits for the first config builds the tree.
func TestWarmingAnswersEarlierPicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		board.set(true, "z-0:80")
		c := newChannel(t, board)
		time.AfterFunc(time.Second, func() { c.Defer(config(nil, 10, locality("z", 0, 1, 1))) })
		call := newCall()
		if err := c.Pick(call, time.Minute); err != nil || call.Queued != time.Second || c.Warming() {
			t.Errorf("%v after %v, warming %v", err, call.Queued, c.Warming())
		}
	})
}

// TestWarmingIsClosed: a config without a tree is answered when the channel is closed.
func TestWarmingIsClosed(t *testing.T) {
	board := newSwitchboard()
	c := newChannel(t, board)
	o, _ := c.Defer(config(nil, 10, locality("z", 0, 1, 1)))
	c.Close()
	if err := o.Wait(t.Context()); !errors.Is(err, lb.ErrClosed) || len(board.attempts) > 0 {
		t.Errorf("%v; connects to %v", err, board.attempts)
	}
}

// blocking is a Connector that holds the owner of the tree until it is closed.
type blocking chan struct{}

func (b blocking) Start([]string, func(lb.Connection)) func() {
	<-b
	return func() {}
}

// TestWarmingEnds: the wait for a tree that is being built ends with the caller.
func TestWarmingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(blocking)
		c := newChannel(t, stuck)
		c.Defer(config(nil, 10, locality("z", 0, 1, 1)))
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		canceled := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(canceled) })
		for name, tt := range map[string]struct {
			call *policy.Call
			want error
		}{
			"context":  {&policy.Call{Context: ctx, Cluster: cluster}, gone},
			"canceled": {&policy.Call{Context: t.Context(), Cluster: cluster, Canceled: canceled}, lb.ErrCanceled},
		} {
			if err := c.Pick(tt.call, time.Minute); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := c.Build(ctx); !errors.Is(err, gone) {
			t.Error(err)
		}
		close(stuck)
	})
}

// TestWarmingRaces: whatever comes first, each pick gets an answer of the tree. While the channel
// is being closed, the tree may have no connection any more.
func TestWarmingRaces(t *testing.T) {
	newest := config(nil, 100, locality("z", 0, 1, 2))
	for i := range 200 {
		closes := i%2 == 0
		c := newChannel(t, nil)
		c.Defer(newest)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				var disconnected *lb.TimeoutError
				err := c.Pick(newCall(), 0)
				if err != nil && (!closes || !errors.Is(err, lb.ErrClosed) && !errors.As(err, &disconnected)) {
					t.Error(err)
				}
			})
		}
		all.Go(func() { c.Defer(newest) })
		all.Go(func() { c.Offer(newest) })
		all.Go(func() { _ = c.Build(t.Context()) })
		all.Go(func() { _, _ = c.Describe(t.Context()) })
		if closes {
			all.Go(c.Close)
		}
		all.Wait()
		if err := c.Pick(newCall(), 0); closes != errors.Is(err, lb.ErrClosed) {
			t.Fatalf("after the end: %v", err)
		}
	}
}
