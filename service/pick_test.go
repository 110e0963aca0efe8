package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestRefusals(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "dropped", assignment(t, []object{drop("all", 100)}, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Endpoints, "broken", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "broken", config(t, 0))
	push(t, s, sources.Config, "homeless", config(t, 1))
	push(t, s, sources.Endpoints, "fine", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	for name, c := range map[string]struct {
		request picks.Request
		want    fault.Code
		says    string
	}{
		"unknown":   {picks.Request{Cluster: "unknown"}, fault.UnknownCluster, `"unknown"`},
		"dropped":   {picks.Request{Cluster: "dropped"}, fault.Dropped, "RPC is dropped"},
		"broken":    {picks.Request{Cluster: "broken"}, fault.CircuitBroken, "max requests 0"},
		"homeless":  {picks.Request{Cluster: "homeless"}, fault.NoReadyEndpoint, "ClusterLoadAssignment/homeless is not known"},
		"excluded":  {picks.Request{Cluster: "fine", Exclude: []string{"a-0:80"}}, fault.AllExcluded, "excluded"},
		"n dropped": {picks.Request{Cluster: "dropped", N: 7}, fault.Dropped, "RPC is dropped"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pick(s, c.request)
			if code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", code(err), err, c.want, c.says)
			}
		})
	}
}

func TestExplainListsDecisionsInOrder(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("none", 0)},
		place{"a", 0, 3, endpoints("a", 2)}, place{"b", 0, 1, endpoints("b", 1)}))
	out, err := pick(s, picks.Request{Cluster: "orders", Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	p := out.Picks[0]
	var steps []string
	for _, step := range p.Explain {
		steps = append(steps, step.Step)
		if step.Says == "" {
			t.Errorf("step %s says nothing", step.Step)
		}
	}
	if got := strings.Join(steps, " "); got != "cluster priority drop circuit_breaker locality endpoint" {
		t.Errorf("steps: %s", got)
	}
	last := p.Explain[len(p.Explain)-1]
	if last.Endpoint.Address != p.Address {
		t.Errorf("explained %s, picked %s", last.Endpoint.Address, p.Address)
	}

	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("all", 100)}, place{"a", 0, 3, endpoints("a", 2)}))
	_, err = pick(s, picks.Request{Cluster: "orders", Explain: true})
	var e *picks.ExplainedError
	if !errors.As(err, &e) || len(e.Explain) != 2 || !e.Explain[1].Drop.Dropped {
		t.Errorf("a refusal explains itself too: %+v", e)
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	s, _ := start(t, "", nil)
	var places []place
	for i := range 103 {
		places = append(places, place{fmt.Sprint("z", i), 0, 1, endpoints(fmt.Sprint("e", i), 1)})
	}
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, places...))
	r := picks.Request{Cluster: "orders", N: picks.MaxExplain, Explain: true, TTL: time.Minute, IdempotencyKey: "k"}
	out, err := pick(s, r)
	if err != nil || len(out.Picks) != picks.MaxExplain {
		t.Fatalf("%d picks, %v", len(out.Picks), err)
	}
	for _, p := range out.Picks {
		i := slices.IndexFunc(p.Explain, func(s picks.Step) bool { return s.Locality != nil })
		if l := p.Explain[i].Locality; len(l.Candidates) != 100 || l.More != 3 || l.Chosen != p.Locality || l.Candidates[0].Share != 1.0/103 {
			t.Errorf("%d candidates, %d more, %v of %v chosen", len(l.Candidates), l.More, l.Chosen, p.Locality)
		}
	}
	again, err := pick(s, r)
	if err != nil || again.Picks[0].Lease.ID != out.Picks[0].Lease.ID || again.Picks[0].Explain != nil {
		t.Errorf("an explanation is kept: %+v, %v", again, err)
	}
	r.N, r.IdempotencyKey = picks.MaxExplain+1, ""
	if _, err := pick(s, r); code(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "n is 11") || !strings.Contains(err.Error(), "explain") {
		t.Errorf("one more: %v", err)
	}
}
