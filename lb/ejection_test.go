package lb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ejecting is an outlier_detection every 10 s that ejects endpoints that fail more than
// half of their requests, up to half of the endpoints, for 30 s at first.
func ejecting() *resource.OutlierDetection {
	return &resource.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 50,
		FailurePercentage: &resource.FailurePercentageEjection{Threshold: 50, EnforcementPercentage: 100, MinimumHosts: 1, RequestVolume: 1},
	}
}

// ward is a channel in a bubble whose requests fail at some endpoints.
type ward struct {
	t      *testing.T
	start  time.Time
	board  *switchboard
	c      *lb.Channel
	events []string
}

func newWard(t *testing.T, ls ...*resource.LocalityEndpoints) *ward {
	w := &ward{t: t, start: time.Now(), board: newSwitchboard()}
	for _, l := range ls {
		for _, e := range l.Endpoints {
			w.board.up[e.Addresses[0]] = true
		}
	}
	w.c = newChannel(t, w.board, func(o *lb.Options) {
		o.Report = eachEvent(func(e policy.Event) {
			switch e := e.(type) {
			case policy.Ejected:
				w.events = append(w.events, fmt.Sprintf("%s until %v", e.Address, e.Until.Sub(w.start)))
			case policy.Unejected:
				w.events = append(w.events, e.Address+" back")
			}
		})
	})
	return w
}

// offer applies a config, and waits until its endpoints that are up are connected.
func (w *ward) offer(c *resource.Config) {
	w.t.Helper()
	offer(w.t, w.c, c)
	synctest.Wait()
}

// requests lets n held picks end, those of the bad endpoints badly, and the interval
// with them.
func (w *ward) requests(n int, bad ...string) {
	w.t.Helper()
	for range n {
		call := newCall()
		call.Hold = true
		noError(w.t, w.c.Pick(call, 0))
		outcome := policy.OutcomeSuccess
		if slices.Contains(bad, call.Address) {
			outcome = policy.OutcomeError
		}
		call.Held().Finish(outcome, policy.NoInfo)
	}
	w.after(10 * time.Second)
}

func (w *ward) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// reaches asserts where picks go, at once.
func (w *ward) reaches(want string) {
	w.t.Helper()
	if got := addressesOf(w.c, 200); got != want {
		w.t.Errorf("after %v: picks go to %q, want %q", time.Since(w.start), got, want)
	}
}

// happened asserts the ejections and their ends since the last look.
func (w *ward) happened(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if !slices.Equal(w.events, want) {
		w.t.Errorf("after %v: %q, want %q", time.Since(w.start), w.events, want)
	}
	w.events = nil
}

// attempts are how often each endpoint was connected to so far.
func (w *ward) attempts() map[string]int {
	synctest.Wait()
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return maps.Clone(w.board.attempts)
}

// lone and leafOf make the config of a cluster over ls: of its own, and as the
// first leaf of an aggregate.
func lone(change func(*resource.Cluster), ls ...*resource.LocalityEndpoints) *resource.Config {
	c := config(nil, 1000, ls...)
	change(c.Clusters.Get(cluster).Cluster)
	return c
}

func leafOf(change func(*resource.Cluster), ls ...*resource.LocalityEndpoints) *resource.Config {
	first := leaf("first", 1000, nil, ls...)
	change(first.Cluster)
	return aggregated(first, leaf("second", 1000, nil, locality("other", 0, 1, 1)))
}

// TestOutlierDetectionComesAndGoes: its config reconnects nothing, and what
// is pushed with it is in force at once.
func TestOutlierDetectionComesAndGoes(t *testing.T) {
	for name, of := range map[string]func(func(*resource.Cluster), ...*resource.LocalityEndpoints) *resource.Config{
		"a cluster": lone, "a leaf": leafOf,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locality("z", 0, 1, 3)
				w := newWard(t, l)
				push := func(o *resource.OutlierDetection, limit uint32) {
					t.Helper()
					w.offer(of(func(c *resource.Cluster) { c.OutlierDetection, c.MaxRequests = o, limit }, l))
				}
				shows := func(want bool) {
					t.Helper()
					n, err := w.c.Describe(t.Context())
					noError(t, err)
					n = *n.Clusters[cluster].Child
					if n.Policy == policy.Priority {
						n = *n.Priorities[0].Child.Child
					}
					if got := n.Policy == policy.OutlierDetection; got != want || !got && n.Policy != policy.ClusterImpl {
						t.Errorf("the state shows %s, outlier_detection is configured: %t", n.Policy, want)
					}
				}
				const all = "z-0:80 z-1:80 z-2:80"
				push(nil, 1000)
				shows(false)
				w.reaches(all)
				w.requests(30, "z-1:80")
				w.happened()
				w.board.mu.Lock()
				clear(w.board.up) // who connects from now on has to wait
				w.board.mu.Unlock()
				before := w.attempts()

				push(ejecting(), 0)
				if got := addressesOf(w.c, 10); !strings.HasPrefix(got, "!max requests 0 exceeded") {
					t.Errorf("a limit that came with it: %s", got)
				}
				push(ejecting(), 1000)
				shows(true)
				w.reaches(all)
				w.requests(30, "z-1:80")
				w.happened("z-1:80 until 50s")
				w.reaches("z-0:80 z-2:80")

				longer := ejecting()
				longer.BaseEjectionTime = 60 * time.Second
				push(longer, 1000)
				w.after(59 * time.Second)
				w.reaches("z-0:80 z-2:80")
				w.after(time.Second)
				w.happened("z-1:80 back")
				w.reaches(all)

				w.requests(30, "z-1:80")
				w.happened("z-1:80 until 3m30s")
				push(nil, 1000)
				w.happened("z-1:80 back")
				w.reaches(all)
				shows(false)
				if got := w.attempts(); !maps.Equal(got, before) {
					t.Errorf("connections were attempted: %v, before it came %v", got, before)
				}
			})
		})
	}
}

// TestOutlierDetectionOfAnotherLeaf: a leaf without outlier detection ejects nothing.
func TestOutlierDetectionOfAnotherLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locality("z", 0, 1, 2)
		w := newWard(t, l)
		asking := leaf("b", 1000, nil, l)
		asking.Cluster.OutlierDetection = ejecting()
		w.offer(aggregated(leaf("a", 1000, nil, l), asking))
		w.requests(20, "z-1:80")
		w.happened()
		w.reaches("z-0:80 z-1:80")
	})
}
