package service_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

func TestRefusals(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "dropped", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1))))
	servicetest.Push(t, s, sources.Endpoints, "broken", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "broken", servicetest.Config(0))
	servicetest.Push(t, s, sources.Config, "homeless", servicetest.Config(1))
	servicetest.Push(t, s, sources.Endpoints, "fine", servicetest.Usable("a", 1))
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
			_, err := servicetest.Pick(s, c.request)
			if servicetest.Code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", servicetest.Code(err), err, c.want, c.says)
			}
		})
	}
}

func TestExplainListsDecisionsInOrder(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("none", 0)},
		servicetest.Place("a", 0, 3, servicetest.Endpoints("a", 2)), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 1))))
	out := mustPick(t, s, picks.Request{Cluster: "orders", Explain: true})
	p := out.Picks[0]
	var steps []string
	for _, step := range p.Explain {
		steps = append(steps, step.Step)
		if step.Says == "" {
			t.Errorf("step %s says nothing", step.Step)
		}
	}
	servicetest.Expect(t, "steps", strings.Join(steps, " "), "cluster priority drop circuit_breaker locality endpoint")
	last := p.Explain[len(p.Explain)-1]
	if last.Endpoint.Address != p.Address {
		t.Errorf("explained %s, picked %s", last.Endpoint.Address, p.Address)
	}

	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("a", 0, 3, servicetest.Endpoints("a", 2))))
	_, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Explain: true})
	var e *picks.ExplainedError
	if !errors.As(err, &e) || len(e.Explain) != 2 || !e.Explain[1].Drop.Dropped {
		t.Errorf("a refusal explains itself too: %+v", e)
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var places []servicetest.Object
	for i := range 103 {
		places = append(places, servicetest.Place(fmt.Sprint("z", i), 0, 1, servicetest.Endpoints(fmt.Sprint("e", i), 1)))
	}
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, places...))
	r := picks.Request{Cluster: "orders", N: picks.MaxExplain, Explain: true, TTL: time.Minute, IdempotencyKey: "k"}
	out, err := servicetest.Pick(s, r)
	if err != nil || len(out.Picks) != picks.MaxExplain {
		t.Fatalf("%d picks, %v", len(out.Picks), err)
	}
	for _, p := range out.Picks {
		i := slices.IndexFunc(p.Explain, func(s picks.Step) bool { return s.Locality != nil })
		if l := p.Explain[i].Locality; len(l.Candidates) != 100 || l.More != 3 || l.Chosen != p.Locality() || l.Candidates[0].Share != 1.0/103 {
			t.Errorf("%d candidates, %d more, %v of %v chosen", len(l.Candidates), l.More, l.Chosen, p.Locality())
		}
	}
	again, err := servicetest.Pick(s, r)
	if err != nil || again.Picks[0].Lease.ID != out.Picks[0].Lease.ID || again.Picks[0].Explain != nil {
		t.Errorf("an explanation is kept: %+v, %v", again, err)
	}
	r.N, r.IdempotencyKey = picks.MaxExplain+1, ""
	if _, err := servicetest.Pick(s, r); servicetest.Code(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "n is 11") || !strings.Contains(err.Error(), "explain") {
		t.Errorf("one more: %v", err)
	}
}

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
			s, _ := servicetest.Start(t, "", nil)
			servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "lb_policy": tt.policy}))
			servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
			for range tt.held {
				mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute, Wait: time.Second})
			}
			out, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Explain: true, Exclude: strings.Fields(tt.exclude)})
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
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	var got []string
	for range 2 {
		out, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Explain: true, Exclude: []string{"a-0:80"}, Wait: time.Second})
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

// fussy is a policy of another's that takes one config alone.
type fussy struct{ balancer.Builder }

type fussyConfig struct {
	serviceconfig.LoadBalancingConfig
	Endpoints string `json:"endpoints"`
}

var errTaste = errors.New("endpoints must be any")

func (fussy) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &fussyConfig{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, err
	}
	if c.Endpoints != "any" {
		return nil, errTaste
	}
	return c, nil
}

// anyReady picks one of the SubConns that are READY.
type anyReady struct{}

func (anyReady) Build(info base.PickerBuildInfo) balancer.Picker {
	for sc := range info.ReadySCs {
		return &only{sc}
	}
	return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
}

type only struct{ sc balancer.SubConn }

func (o *only) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: o.sc}, nil
}

func init() {
	balancer.Register(fussy{base.NewBalancerBuilder("test.fussy", anyReady{}, base.Config{})})
}

func fussyCluster(value servicetest.Object) []byte {
	return servicetest.Encode(servicetest.Object{"type": "EDS", "load_balancing_policy": servicetest.Object{"policies": []servicetest.Object{{
		"typed_extension_config": servicetest.Object{"name": "x", "typed_config": servicetest.Object{
			"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/test.fussy", "value": value,
		}},
	}}}})
}

// TestConfigThatACustomPolicyRefuses: the push is refused in the policy's words,
// and what serves goes on, after a restart too.
func TestConfigThatACustomPolicyRefuses(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "orders", fussyCluster(servicetest.Object{"endpoints": "any"}))
	for _, dry := range []bool{true, false} {
		_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
			Kind: sources.Config, Cluster: "orders", Body: fussyCluster(servicetest.Object{"endpoints": "none"}), Options: sources.ChangeOptions{DryRun: dry},
		})
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Code != fault.InvalidResource || len(e.Problems) != 1 ||
			e.Problems[0].Field != "load_balancing_policy.policies[0].typed_extension_config.typed_config.value" ||
			e.Problems[0].Reason != "is rejected by test.fussy: "+errTaste.Error() {
			t.Errorf("refused with %+v, %v", e, err)
		}
	}
	serves := func() {
		t.Helper()
		if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Wait: picks.MaxWait}); err != nil || out.Picks[0].Address != "a-0:80" {
			t.Errorf("%+v, %v", out, err)
		}
		c, err := s.State.Cluster(t.Context(), "orders", "", true)
		if err != nil || !strings.HasSuffix(c.Policy, "test.fussy") || c.State != "READY" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	serves()
	stop()
	s, _ = servicetest.Start(t, dir, nil)
	serves()
}
