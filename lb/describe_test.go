package lb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
)

// outline returns a description in words, a line for each node.
func outline(n policy.Node) string {
	var b strings.Builder
	var walk func(indent, name string, n policy.Node)
	walk = func(indent, name string, n policy.Node) {
		fmt.Fprintf(&b, "%s%s%s %v", indent, name, n.Policy, n.State)
		if n.Err != nil {
			fmt.Fprintf(&b, " %v", n.Err)
		}
		b.WriteString("\n")
		indent += "  "
		for name, c := range n.Clusters {
			walk(indent, name+": ", c)
		}
		if n.Child != nil {
			walk(indent, "", *n.Child)
		}
		for _, p := range n.Priorities {
			use := ""
			if p.InUse {
				use = "*"
			}
			if p.Child.Policy == "" {
				fmt.Fprintf(&b, "%s%s%s not built\n", indent, p.Name, use)
				continue
			}
			walk(indent, p.Name+use+": ", p.Child)
		}
		for _, l := range n.Localities {
			walk(indent, fmt.Sprintf("%s %d: ", l.Locality.Zone, l.Weight), l.Child)
		}
		for _, e := range n.Endpoints {
			fmt.Fprintf(&b, "%s%s %v", indent, e.Endpoint.Addresses[0], e.State)
			if e.Address != "" {
				fmt.Fprintf(&b, " at %s", e.Address)
			}
			if e.LastErr != nil {
				fmt.Fprintf(&b, " %v", e.LastErr)
			}
			b.WriteString("\n")
		}
	}
	walk("", "", n)
	return b.String()
}

func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		board.set(false, "a-0:80")
		c := newChannel(t, board, func(o *lb.Options) { o.Draw = half })
		if s := c.Summary(); s.State != connecting || s.Priority != -1 {
			t.Errorf("before the first config: %+v", s)
		}
		l := locality("a", 0, 3, 2)
		l.Endpoints[1].Addresses = append(l.Endpoints[1].Addresses, "a-1b:80")
		offer(t, c, config(nil, 7, l, locality("b", 1, 1, 1), locality("c", 2, 1, 4)))
		board.set(true, "a-1b:80")
		board.set(false, "a-1:80")
		synctest.Wait()
		check := func(want string, census ...policy.Census) {
			t.Helper()
			n, err := c.Describe(t.Context())
			noError(t, err)
			if got := outline(n); got != strings.ReplaceAll(want, "\t", "") {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			s := c.Summary().Clusters.Get(cluster)
			if s.State != n.Clusters[cluster].State || fmt.Sprint(s.Priorities) != fmt.Sprint(census) {
				t.Errorf("summary %+v, want the endpoints of each priority %+v", s, census)
			}
			if c.Summary().State != n.State || n.State != c.State() {
				t.Errorf("summary %v, description %v, channel %v", c.Summary().State, n.State, c.State())
			}
		}
		check(`xds_cluster_manager_experimental READY
			  orders: cds_experimental READY
			    xds_cluster_impl_experimental READY
			      priority_experimental READY
			        priority-0*: weighted_target_experimental READY
			          a 3: round_robin READY
			            a-0:80 TRANSIENT_FAILURE connect to a-0:80: connection refused
			            a-1:80 READY at a-1b:80
			        priority-1 not built
			        priority-2 not built
			`, policy.Census{Ready: 1, TransientFailure: 1}, policy.Census{Idle: 1}, policy.Census{Idle: 4})

		call := newCall()
		call.Hold = true
		noError(t, c.Pick(call, 0))
		board.set(false, "a-1b:80", "b-0:80")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		check(`xds_cluster_manager_experimental CONNECTING
			  orders: cds_experimental CONNECTING
			    xds_cluster_impl_experimental CONNECTING
			      priority_experimental CONNECTING
			        priority-0: weighted_target_experimental TRANSIENT_FAILURE connect to a-1b:80: connection refused
			          a 3: round_robin TRANSIENT_FAILURE connect to a-1b:80: connection refused
			            a-0:80 TRANSIENT_FAILURE connect to a-0:80: connection refused
			            a-1:80 TRANSIENT_FAILURE connect to a-1b:80: connection refused
			        priority-1: weighted_target_experimental TRANSIENT_FAILURE connect to b-0:80: connection refused
			          b 1: round_robin TRANSIENT_FAILURE connect to b-0:80: connection refused
			            b-0:80 TRANSIENT_FAILURE connect to b-0:80: connection refused
			        priority-2*: weighted_target_experimental CONNECTING
			          c 1: round_robin CONNECTING
			            c-0:80 CONNECTING
			            c-1:80 CONNECTING
			            c-2:80 CONNECTING
			            c-3:80 CONNECTING
			`, policy.Census{TransientFailure: 2}, policy.Census{TransientFailure: 1}, policy.Census{Connecting: 4})
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)

		board.set(false, "c-0:80", "c-1:80", "c-2:80", "c-3:80")
		synctest.Wait()
		n, err := c.Describe(t.Context())
		if err != nil || n.Clusters[cluster].Err == nil || n.Clusters[cluster].State != failure {
			t.Errorf("all failed: %v, err %v", n.Clusters[cluster].State, n.Clusters[cluster].Err)
		}

		board.set(true, "a-1b:80")
		time.Sleep(time.Second)
		synctest.Wait()
		if s := c.Summary().Clusters.Get(cluster); s.Priority != 0 || s.Priorities[1].TransientFailure+s.Priorities[1].Connecting+s.Priorities[1].Idle != 1 {
			t.Errorf("recovered: %+v", s)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if s := c.Summary().Clusters.Get(cluster); s.Priorities[1] != (policy.Census{Idle: 1}) || s.Priorities[2] != (policy.Census{Idle: 4}) {
			t.Errorf("forgotten: %+v", s)
		}
	})
}

// TestDescribeWaitsForItsContext: a description is asked of an owner that may be
// busy.
func TestDescribeWaitsForItsContext(t *testing.T) {
	var g gate
	c := newChannel(t, nil, func(o *lb.Options) { o.Report = g.report })
	held := g.hold()
	o := c.Offer(config(nil, 1, locality("a", 0, 1, 1)))
	<-held
	ctx, cancel := context.WithCancelCause(t.Context())
	errGone := errors.New("gone")
	cancel(errGone)
	if _, err := c.Describe(ctx); !errors.Is(err, errGone) {
		t.Errorf("err %v, want %v", err, errGone)
	}
	g.open()
	if err := o.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
