package service_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// TestSharesInTheState: every policy of lbd's own says where its picks go; of one
// that only grpc has nobody knows.
func TestSharesInTheState(t *testing.T) {
	for policy, config := range map[string][]byte{
		"ROUND_ROBIN":   encode(t, object{"type": "EDS"}),
		"LEAST_REQUEST": encode(t, object{"type": "EDS", "lb_policy": "LEAST_REQUEST"}),
		"RING_HASH":     encode(t, object{"type": "EDS", "lb_policy": "RING_HASH"}),
		"custom":        fussyCluster(t, object{"endpoints": "any"}),
	} {
		t.Run(policy, func(t *testing.T) {
			s, _ := start(t, "", nil)
			push(t, s, sources.Config, "orders", config)
			push(t, s, sources.Endpoints, "orders", assignment(t, nil,
				place{"a", 0, 3, endpoints("a", 2)}, place{"b", 0, 1, endpoints("b", 1)}, place{"c", 1, 1, endpoints("c", 1)}))
			for i := range 100 { // until all are connected
				_, _ = pick(s, picks.Request{Cluster: "orders", WaitForReady: true, Wait: time.Second, Hash: fmt.Sprint(i)})
			}
			c, err := s.Cluster(t.Context(), "orders", "", true)
			if err != nil {
				t.Fatal(err)
			}
			together := 0.0
			for _, l := range c.Priorities[0].Localities {
				known := 0.0
				for _, e := range l.Endpoints {
					if (e.Share == nil) != (policy == "custom") {
						t.Errorf("%s of %s: share %v", e.Address, l.Locality, e.Share)
						continue
					}
					if e.Share != nil {
						known += *e.Share
					}
				}
				if policy != "custom" && (l.Share == nil || math.Abs(*l.Share-known) > 1e-9) {
					t.Errorf("%v has the share %v, its endpoints %v", l.Locality, l.Share, known)
				}
				together += known
			}
			if policy != "custom" && math.Abs(together-1) > 1e-9 {
				t.Errorf("the shares come to %v", together)
			}
			if l := c.Priorities[1].Localities[0]; *l.Share != 0 || *l.Endpoints[0].Share != 0 {
				t.Errorf("a priority that is not in use: %+v", l)
			}
		})
	}
}

func TestInUseSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		began := time.Now()
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}, place{"b", 1, 1, endpoints("b", 1)}))
		synctest.Wait()
		time.Sleep(time.Minute)
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 2)}, place{"b", 1, 1, endpoints("b", 1)}))
		synctest.Wait()
		c, err := s.Cluster(t.Context(), "orders", "", false)
		if err != nil {
			t.Fatal(err)
		}
		if p := c.Priorities; p[0].InUseSince == nil || !p[0].InUseSince.Equal(began) || p[1].InUseSince != nil {
			t.Errorf("in use since %v and %v, want %v and never", p[0].InUseSince, p[1].InUseSince, began)
		}
	})
}

// TestExplainNamesLeaves: a priority of an aggregate is one of a leaf.
func TestExplainNamesLeaves(t *testing.T) {
	s, _ := start(t, "", nil)
	if _, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "near", AllowEmpty: true, Body: assignment(t, nil, place{"n", 0, 1, nil}, place{"m", 1, 1, nil}),
	}); err != nil {
		t.Fatal(err)
	}
	push(t, s, sources.Endpoints, "far", assignment(t, nil, place{"f", 0, 1, endpoints("f", 1)}))
	push(t, s, sources.Config, "agg", aggregate(t, "near", "far"))
	out, err := pick(s, picks.Request{Cluster: "agg", Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	var leaf *picks.LeafStep
	for _, step := range out.Picks[0].Explain {
		if step.Leaf != nil {
			leaf = step.Leaf
			if want := "leaf far is in use (READY); leaf near was skipped: "; !strings.HasPrefix(step.Says, want) {
				t.Errorf("says %q, want %q…", step.Says, want)
			}
		}
		if p := step.Priority; p != nil {
			if p.Priority != 2 || p.Cluster != "far" || len(p.PassedOver) != 0 || step.Says != "priority 2 of far is in use (READY)" {
				t.Errorf("the priority: %+v, says %q", p, step.Says)
			}
			if leaf == nil || leaf.Cluster != "far" || len(leaf.PassedOver) != 1 || leaf.PassedOver[0].Cluster != "near" {
				t.Errorf("the leaf, which comes first: %+v", leaf)
			}
			return
		}
	}
	t.Errorf("no priority in %+v", out.Picks[0].Explain)
}
