package service_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// TestExplainEndpoint: what the policies have to say of their choice.
func TestExplainEndpoint(t *testing.T) {
	tests := []struct {
		policy  string
		exclude string
		held    int // by leases
		want    string
	}{
		{"ROUND_ROBIN", "", 0, `^round_robin took a-0:80, number 0 of 1 in rotation \(0 excluded\)$`},
		{"ROUND_ROBIN", "a-0:80", 0, `^round_robin has no endpoint left: all 1 READY ones are excluded$`},
		{"LEAST_REQUEST", "", 2, `^least_request_experimental drew a-0:80 with 2 in flight, a-0:80 with 2 in flight of 1 READY \(0 excluded\), and took a-0:80$`},
		{"LEAST_REQUEST", "a-0:80", 0, `^least_request_experimental has no endpoint left: all 1 READY ones are excluded$`},
		{"RING_HASH", "", 1, `^ring_hash_experimental: a random hash [0-9a-f]{16} maps to entry \d+ of 1024; used the endpoint 0 entries later, a-0:80, which is READY \(0 skipped as excluded\)$`},
		{"RING_HASH", "a-0:80", 1, `^ring_hash_experimental: a random hash [0-9a-f]{16} maps to entry \d+ of 1024; every endpoint that has not failed is excluded \(1\)$`},
	}
	for _, tt := range tests {
		t.Run(strings.TrimSpace(tt.policy+" "+tt.exclude), func(t *testing.T) {
			s, _ := start(t, "", nil)
			push(t, s, sources.Config, "orders", encode(t, object{"type": "EDS", "lb_policy": tt.policy}))
			push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
			for range tt.held {
				if _, err := pick(s, picks.Request{Cluster: "orders", TTL: time.Minute, Wait: time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			out, err := pick(s, picks.Request{Cluster: "orders", Explain: true, Exclude: strings.Fields(tt.exclude)})
			steps := explanation(t, out, err)
			last := steps[len(steps)-1]
			if last.Step != "endpoint" || !regexp.MustCompile(tt.want).MatchString(last.Says) {
				t.Errorf("%s: %s\nwant %s", last.Step, last.Says, tt.want)
			}
			switch e := last.Endpoint; {
			case tt.policy == "LEAST_REQUEST" && tt.exclude == "" && (len(e.Compared) != 2 || e.Compared[1] != leastrequest.InFlight{Address: "a-0:80", InFlight: 2}):
				t.Errorf("compared %+v", e.Compared)
			case tt.policy == "RING_HASH" && (e.Ring.Size != 1024 || !e.Ring.Drawn || e.Ring.State == "" != (tt.exclude != "")):
				t.Errorf("ring %+v", e.Ring)
			}
		})
	}
}

// TestExplainExcluded: which endpoint was drawn, and instead of which one.
func TestExplainExcluded(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 2)}))
	var got []string
	for range 2 {
		out, err := pick(s, picks.Request{Cluster: "orders", Explain: true, Exclude: []string{"a-0:80"}, Wait: time.Second})
		steps := explanation(t, out, err)
		last := steps[len(steps)-1]
		got = append(got, last.Says)
		if e := last.Endpoint; e.Excluded != 1 || e.Address != "a-1:80" || e.InsteadOf != "" && e.InsteadOf != "a-0:80" {
			t.Errorf("endpoint %+v", e)
		}
	}
	slices.Sort(got) // the start of the rotation is random
	want := []string{
		"round_robin drew a-1:80 instead of a-0:80, whose turn it was: number 1 of 2 in rotation (1 excluded)",
		"round_robin took a-1:80, number 1 of 2 in rotation (1 excluded)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("explained as %q, want %q", got, want)
	}
}

// explanation is what a pick, or its refusal, explains.
func explanation(t *testing.T, out picks.Picks, err error) []picks.Step {
	t.Helper()
	if e, ok := errors.AsType[*picks.ExplainedError](err); ok {
		return e.Explain
	}
	if err != nil || len(out.Picks) != 1 {
		t.Fatalf("picks %v, err %v", out.Picks, err)
	}
	return out.Picks[0].Explain
}
