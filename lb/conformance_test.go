package lb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endpointPolicies are the policies that a cluster can choose, by name. Each of them
// has to pass what is in this file.
func endpointPolicies() map[string]policy.Builder {
	all := make(map[string]policy.Builder)
	for name, b := range lb.Policies() {
		if b, ok := b.(policy.Builder); ok && b.Traits() != nil {
			all[name] = b
		}
	}
	return all
}

// otherConfigs are valid configs that are not the default, of policies that have any.
var otherConfigs = map[string]string{
	"weighted_round_robin":       `{"blackoutPeriod":"0s","weightUpdatePeriod":"3s"}`,
	"least_request_experimental": `{"choiceCount":5}`,
	"ring_hash_experimental":     `{"minRingSize":16,"maxRingSize":32}`,
	"pick_first":                 `{"shuffleAddressList":true}`,
}

// trial is one endpoint policy over connections that the test drives.
type trial struct {
	t         testing.TB
	name      string
	builder   policy.Builder
	tree      *lbtest.Tree
	endpoints map[string]*resource.Endpoint

	down     map[string]bool // addresses that refuse connections
	hangs    bool            // whether attempts to connect go on without end
	answered map[*lbtest.SubConn]int
}

func newTrial(t testing.TB, name string, builder policy.Builder) *trial {
	tr := &trial{
		t: t, name: name, builder: builder, tree: lbtest.NewTree(t, builder),
		endpoints: make(map[string]*resource.Endpoint), down: make(map[string]bool), answered: make(map[*lbtest.SubConn]int),
	}
	tr.tree.Draw = rand.New(rand.NewPCG(1, 2)).Uint64
	return tr
}

// update gives the policy a config and endpoints, which are named by their addresses.
func (tr *trial) update(config, names string) error {
	tr.t.Helper()
	parsed, err := tr.builder.ParseConfig(json.RawMessage(config))
	if err != nil {
		tr.t.Fatalf("config %s: %v", config, err)
	}
	child := policy.Child{Config: parsed}
	for n := range strings.FieldsSeq(names) {
		if tr.endpoints[n] == nil {
			tr.endpoints[n] = &resource.Endpoint{Addresses: []string{n}, Weight: 1}
		}
		child.Endpoints = append(child.Endpoints, tr.endpoints[n])
	}
	return tr.tree.Update(child)
}

// config is update with defaults, which the policy must accept.
func (tr *trial) config(names string) {
	tr.t.Helper()
	if err := tr.update("{}", names); err != nil {
		tr.t.Errorf("endpoints %s: %v", names, err)
	}
}

// settle answers attempts to connect until there are none. A SubConn that has failed
// stays so until retry.
func (tr *trial) settle() {
	for range 20 {
		tr.tree.Batch(func() {
			for _, sc := range tr.tree.SubConns {
				address := sc.Addresses[0].Addr
				switch {
				case sc.Closed:
				case sc.State == connectivity.Idle && sc.Connects > tr.answered[sc]:
					tr.answered[sc] = sc.Connects
					sc.Says(connectivity.Connecting, nil)
				case sc.State == connectivity.Connecting && tr.down[address]:
					sc.Says(connectivity.TransientFailure, fmt.Errorf("%s refused", address))
				case sc.State == connectivity.Connecting && !tr.hangs:
					sc.Says(connectivity.Ready, nil)
				}
			}
		})
	}
}

// retry ends the back-off of SubConns that have failed.
func (tr *trial) retry() {
	tr.tree.Batch(func() {
		for _, sc := range tr.tree.SubConns {
			if !sc.Closed && sc.State == connectivity.TransientFailure {
				sc.Says(connectivity.Idle, nil)
			}
		}
	})
	tr.settle()
}

// lose ends the connection of an address.
func (tr *trial) lose(address string) {
	tr.tree.Batch(func() { tr.tree.SubConn(address).Says(connectivity.Idle, fmt.Errorf("%s was lost", address)) })
	tr.settle()
}

// pick picks once. If the pick is queued, it asks the pickers that follow.
func (tr *trial) pick(call *policy.Call) (string, error) {
	tr.t.Helper()
	tr.settle()
	for range 10 {
		res, err := tr.tree.Pick(call)
		if errors.Is(err, balancer.ErrNoSubConnAvailable) {
			tr.settle()
			continue
		}
		if err != nil {
			return "", err
		}
		sc := lbtest.Picked(tr.t, res)
		if e := call.Endpoint; e == nil || e != tr.endpoints[sc.Addresses[0].Addr] {
			tr.t.Errorf("picked endpoint %v at %s", e, sc.Addresses[0].Addr)
		}
		return sc.Addresses[0].Addr, nil
	}
	return "queue", nil
}

// reach asserts that many picks reach no endpoint but those of want.
func (tr *trial) reach(want string) {
	tr.t.Helper()
	got := make(map[string]bool)
	for range 200 {
		address, err := tr.pick(new(policy.Call))
		if err != nil {
			tr.t.Fatalf("pick: %v", err)
		}
		got[address] = true
	}
	for address := range got {
		if !slices.Contains(strings.Fields(want), address) {
			tr.t.Errorf("picks reach %v, want %s", slices.Sorted(maps.Keys(got)), want)
		}
	}
}

// shares asserts that picks reach each endpoint in proportion to its share.
func (tr *trial) shares() {
	tr.t.Helper()
	const picks = 3000
	got := make(map[string]float64)
	for range picks {
		address, err := tr.pick(new(policy.Call))
		if err != nil {
			tr.t.Fatalf("pick: %v", err)
		}
		got[address]++
	}
	for _, e := range tr.tree.Describe().Endpoints {
		address := e.Endpoint.Addresses[0]
		if math.Abs(got[address]/picks-e.Share) > 0.05 {
			tr.t.Errorf("%s has the share %v; picks reach %v", address, e.Share, got)
		}
	}
}

// connections are the open SubConns to an address that is picked.
func (tr *trial) connections() map[string]*lbtest.SubConn {
	all := make(map[string]*lbtest.SubConn)
	for _, sc := range tr.tree.SubConns {
		if !sc.Closed && sc.State == connectivity.Ready {
			all[sc.Addresses[0].Addr] = sc
		}
	}
	return all
}

func (tr *trial) state(want connectivity.State) {
	tr.t.Helper()
	node, summary := tr.tree.Describe(), tr.tree.Summarize()
	if got := tr.tree.State(); got != want || node.State != want || summary.State != want {
		tr.t.Errorf("the state is %v, described as %v, summarized as %v; want %v", got, node.State, summary.State, want)
	}
}

var conformance = map[string]func(tr *trial){
	"no endpoints": func(tr *trial) {
		tr.config("")
		tr.state(connectivity.TransientFailure)
		if _, err := tr.pick(new(policy.Call)); !errors.Is(err, policy.ErrNoEndpoints) {
			tr.t.Errorf("pick: %v, want %v", err, policy.ErrNoEndpoints)
		}
		if n := tr.tree.Describe(); len(n.Endpoints) != 0 || !errors.Is(n.Err, policy.ErrNoEndpoints) {
			tr.t.Errorf("described as %+v", n)
		}
		tr.config("a")
		tr.reach("a")
	},
	"all are connecting": func(tr *trial) {
		tr.hangs = true
		tr.config("a b")
		if address, err := tr.pick(new(policy.Call)); address != "queue" || err != nil {
			tr.t.Errorf("picked %s, %v", address, err)
		}
		tr.state(connectivity.Connecting)
		tr.hangs = false
		tr.reach("a b")
		tr.state(connectivity.Ready)
	},
	"one is ready": func(tr *trial) {
		tr.down["a"] = true
		tr.config("a b")
		tr.reach("b")
		tr.state(connectivity.Ready)
		tr.describes("b")
		tr.explains("b")
	},
	"failure and recovery": func(tr *trial) {
		tr.down["a"], tr.down["b"] = true, true
		tr.config("a b")
		for range 3 { // ring_hash tries one after the other, as picks ask for them
			_, _ = tr.pick(&policy.Call{})
			tr.retry()
		}
		tr.state(connectivity.TransientFailure)
		if _, err := tr.pick(&policy.Call{}); err == nil || !strings.HasSuffix(err.Error(), " refused") {
			tr.t.Errorf("pick: %v, want why a connection failed", err)
		}
		for _, e := range tr.tree.Describe().Endpoints {
			if e.LastErr == nil || e.Share != 0 && e.State == connectivity.TransientFailure {
				tr.t.Errorf("described %+v", e)
			}
		}
		tr.down["b"] = false
		tr.retry()
		tr.reach("b")
		tr.state(connectivity.Ready)
		if e := tr.tree.Describe().Endpoints[1]; e.LastErr != nil {
			tr.t.Errorf("described %+v", e)
		}
		tr.lose("b")
		tr.reach("b")
	},
	"exclude": func(tr *trial) {
		tr.config("a b")
		tr.reach("a b")
		for _, excluded := range []string{"a", "b"} {
			for range 50 {
				address, err := tr.pick(&policy.Call{Exclude: []string{excluded}})
				r, refused := errors.AsType[*policy.Refusal](err)
				if address == excluded || err != nil && (!refused || r.Kind != policy.KindAllExcluded) {
					tr.t.Fatalf("picked %s without %s: %v", address, excluded, err)
				}
			}
		}
		call := &policy.Call{Exclude: []string{"a", "b"}, Trace: new(policy.Trace)}
		_, err := tr.pick(call)
		if r, ok := errors.AsType[*policy.Refusal](err); !ok || r.Kind != policy.KindAllExcluded {
			tr.t.Errorf("picked without both: %v", err)
		}
		s := lbtest.As[policy.EndpointStep](tr.t, call.Trace.Steps[0])
		if s.Policy != tr.name || s.Index != -1 || s.Endpoint != nil || s.InsteadOf != nil || s.Excluded != s.Rotation {
			tr.t.Errorf("step %+v", s)
		}
	},
	"shares": func(tr *trial) {
		tr.config("a b c")
		tr.reach("a b c")
		tr.shares()
	},
	"picks that ended leave nothing": func(tr *trial) {
		tr.config("a")
		for i := range 100 {
			for _, call := range []*policy.Call{{}, {Hold: true}} {
				if _, err := tr.pick(call); err != nil {
					tr.t.Fatalf("pick: %v", err)
				}
				if call.Hold { // the end of others is not known
					call.Held().Finish(lbtest.Outcomes[i%4], policy.NoInfo)
				}
			}
			given := &policy.Call{Hold: true}
			if _, err := tr.pick(given); err != nil {
				tr.t.Fatalf("pick: %v", err)
			}
			given.GiveUp()
		}
		tr.config("a b c")
		tr.reach("a b c")
		tr.shares()
	},
	"nothing changes": func(tr *trial) {
		tr.config("a b")
		tr.reach("a b")
		reports, connected := len(tr.tree.Reports), len(tr.tree.Connected)
		tr.config("a b")
		tr.reach("a b")
		if r, c := len(tr.tree.Reports), len(tr.tree.Connected); r != reports || c != connected {
			tr.t.Errorf("%d reports and %d attempts to connect", r-reports, c-connected)
		}
	},
	"the same endpoint twice": func(tr *trial) {
		tr.config("a a b")
		tr.reach("a b")
		if n := len(tr.tree.Describe().Endpoints); n > 2 || len(tr.connections()) > 2 {
			tr.t.Errorf("%d endpoints, connected to %v", n, tr.connections())
		}
	},
	"a SubConn is rejected": func(tr *trial) {
		errMode := errors.New("no such connect mode")
		tr.tree.RefuseSubConn = func(address string) error {
			if address == "a" {
				return errMode
			}
			return nil
		}
		err := tr.update("{}", "a b")
		if err == nil { // then it is why the endpoint failed
			err = tr.tree.Describe().Endpoints[0].LastErr
		}
		if !errors.Is(err, errMode) || !strings.Contains(err.Error(), " a") {
			tr.t.Errorf("update: %v, want %v with the address", err, errMode)
		}
		tr.reach("b")
	},
	"a removed endpoint is ignored": func(tr *trial) {
		tr.config("a b")
		tr.reach("a b")
		removed := slices.Clone(tr.tree.SubConns)
		tr.config("c")
		tr.reach("c")
		reports := len(tr.tree.Reports)
		for _, sc := range removed {
			tr.tree.Batch(func() { sc.Says(connectivity.Ready, nil) })
		}
		if n := len(tr.tree.Reports) - reports; n != 0 {
			tr.t.Errorf("%d reports", n)
		}
		tr.reach("c")
	},
	"another config in place": func(tr *trial) {
		tr.config("a b")
		tr.reach("a b")
		before := tr.connections()
		other := tr.other()
		if err := tr.update(other, "a b"); err != nil {
			tr.t.Errorf("update: %v", err)
		}
		tr.state(connectivity.Ready)
		if !maps.Equal(tr.connections(), before) {
			tr.t.Error("connections changed with the config")
		}
		tr.reach("a b")
		if _, isNone := tr.parsed("{}").(policy.NoConfig); isNone {
			return
		}
		err := tr.tree.Update(policy.Child{Config: &policy.PriorityConfig{}})
		if err == nil || !strings.HasPrefix(err.Error(), tr.name+": config is a ") {
			tr.t.Errorf("the config of another policy: %v", err)
		}
		tr.reach("a b")
	},
	"other endpoints keep connections": func(tr *trial) {
		tr.config("a b c")
		tr.reach("a b c")
		before := tr.connections()
		delete(before, "b")
		tr.config("d c a")
		tr.reach("a c d")
		for address, sc := range before {
			if sc.Closed {
				tr.t.Errorf("the connection to %s was closed", address)
			}
		}
		for _, sc := range tr.tree.SubConns {
			if sc.Addresses[0].Addr == "b" && !sc.Closed {
				tr.t.Error("the SubConn of a removed endpoint stays")
			}
		}
		var order []string
		for _, e := range tr.tree.Describe().Endpoints {
			order = append(order, e.Endpoint.Addresses[0])
		}
		if got := strings.Join(order, " "); got != "d c a" {
			tr.t.Errorf("described endpoints %s, want those of the config in its order", got)
		}
	},
	"another value of an endpoint": func(tr *trial) {
		tr.config("a")
		tr.reach("a")
		tr.endpoints["a"] = &resource.Endpoint{Addresses: []string{"a"}, Weight: 7}
		tr.config("a")
		tr.reach("a") // compares the endpoint
		if n := len(tr.tree.SubConns); n != 1 {
			tr.t.Errorf("%d SubConns were made", n)
		}
	},
	"weights count, unless it declares that it ignores them": func(tr *trial) {
		share := func(weight uint32) float64 {
			tr.endpoints["b"] = &resource.Endpoint{Addresses: []string{"b"}, Weight: weight}
			tr.config("a b")
			tr.settle()
			return tr.tree.Describe().Endpoints[1].Share
		}
		if ignored := share(1) == share(9); ignored != tr.builder.Traits().IgnoresWeights {
			tr.t.Errorf("another weight changes the share: %t", !ignored)
		}
	},
	"without a Call": func(tr *trial) { // for a policy that is not lbd's, to see if it fails
		tr.config("a")
		tr.reach("a")
		res, err := tr.tree.Picker().Pick(balancer.PickInfo{Ctx: tr.t.Context()})
		if err != nil || res.Done != nil || lbtest.Picked(tr.t, res) != tr.tree.SubConn("a") {
			tr.t.Errorf("picked %v, %v", res.SubConn, err)
		}
	},
	"close": func(tr *trial) {
		tr.config("a b")
		tr.reach("a b")
		call := &policy.Call{Hold: true}
		if _, err := tr.pick(call); err != nil {
			tr.t.Fatalf("pick: %v", err)
		}
		reports := len(tr.tree.Reports)
		tr.tree.Close()
		for _, sc := range tr.tree.SubConns {
			if !sc.Closed {
				tr.t.Errorf("the SubConn of %s stays", sc.Addresses[0].Addr)
			}
		}
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo) // a lease outlives the policy
		if len(tr.tree.Reports) != reports {
			tr.t.Error("a report while closing")
		}
	},
}

// describes asserts that one endpoint of two gets all picks.
func (tr *trial) describes(ready string) {
	tr.t.Helper()
	n, census := tr.tree.Describe(), tr.tree.Summarize().Census
	if n.Policy != tr.name || len(n.Endpoints) != 2 || n.Err != nil || census.Ready != 1 || census.Total() != 2 {
		tr.t.Errorf("described as %+v, with %+v", n, census)
	}
	sum := 0.0
	for _, e := range n.Endpoints {
		sum += e.Share
		if is := e.Endpoint.Addresses[0] == ready; (e.State == connectivity.Ready) != is || is && e.Address != ready || !is && e.Share != 0 {
			tr.t.Errorf("described %+v", e)
		}
	}
	if n.Shares && math.Abs(sum-1) > 1e-9 {
		tr.t.Errorf("the shares are %v in all", sum)
	}
}

// explains asserts the step of a pick of an endpoint.
func (tr *trial) explains(ready string) {
	tr.t.Helper()
	call := &policy.Call{Trace: new(policy.Trace)}
	if _, err := tr.pick(call); err != nil {
		tr.t.Fatalf("pick: %v", err)
	}
	if len(call.Trace.Steps) != 1 {
		tr.t.Fatalf("steps %+v", call.Trace.Steps)
	}
	s := lbtest.As[policy.EndpointStep](tr.t, call.Trace.Steps[0])
	if s.Policy != tr.name || s.Endpoint != tr.endpoints[ready] || s.Index < 0 || s.Index >= s.Rotation {
		tr.t.Errorf("step %+v", s)
	}
	if says := s.Says(); !strings.HasPrefix(says, tr.name) || !strings.Contains(says, ready) {
		tr.t.Errorf("says %q", says)
	}
	if text, err := json.Marshal(s.Detail); err != nil || s.Detail != nil && string(text) == "{}" {
		tr.t.Errorf("detail %s, %v", text, err)
	}
}

func (tr *trial) other() string {
	if other, ok := otherConfigs[tr.name]; ok {
		return other
	}
	if _, isNone := tr.parsed("{}").(policy.NoConfig); !isNone {
		tr.t.Error("otherConfigs has none of the policy")
	}
	return "{}"
}

func (tr *trial) parsed(text string) any {
	tr.t.Helper()
	config, err := tr.builder.ParseConfig(json.RawMessage(text))
	if err != nil {
		tr.t.Errorf("config %s: %v", text, err)
	}
	return config
}

// TestConformance: what holds for every endpoint policy.
func TestConformance(t *testing.T) {
	for name, builder := range endpointPolicies() {
		for scenario, run := range conformance {
			t.Run(name+"/"+scenario, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tr := newTrial(t, name, builder)
					defer tr.tree.Close() // within the bubble
					run(tr)
				})
			})
		}
	}
}

// TestConfigConformance: every endpoint policy reads its config by the same rules.
func TestConfigConformance(t *testing.T) {
	for name, b := range endpointPolicies() {
		t.Run(name, func(t *testing.T) {
			tr := &trial{t: t, name: name, builder: b}
			texts := []string{"{}", tr.other()}
			for i, text := range texts {
				applied, findings := b.Traits().Judge(json.RawMessage(text))
				if len(findings) != 0 {
					t.Errorf("%s: %+v", text, findings)
				}
				if applied == "" {
					continue
				}
				// What is applied means the same, and is its own applied form.
				if tr.parsed(applied) != tr.parsed(text) || i > 0 && tr.parsed(applied) == tr.parsed(texts[0]) {
					t.Errorf("%s is applied as %s", text, applied)
				}
				if again, _ := b.Traits().Judge(json.RawMessage(applied)); again != applied {
					t.Errorf("%s is applied as %s", applied, again)
				}
			}
			_, findings := b.Traits().Judge(json.RawMessage(`{"noSuchMember":1}`))
			if len(findings) != 1 || findings[0].Kind != resource.FindingUnknown || findings[0].Member != "noSuchMember" {
				t.Errorf("an unknown member: %+v", findings)
			}
			_, findings = b.Traits().Judge(json.RawMessage(`[]`))
			if len(findings) == 0 || findings[0].Kind != resource.FindingInvalid {
				t.Errorf("a list: %+v", findings)
			}
			if lb.PolicyTraits(name) == nil {
				t.Error("clusters cannot choose it")
			}
		})
	}
}

// TestPolicyConfigOfOthers: clusters cannot choose the policies above endpoints, which
// take no config but their own.
func TestPolicyConfigOfOthers(t *testing.T) {
	for name, b := range lb.Policies() {
		own := lbtest.As[policy.Builder](t, b)
		chosen := own.Traits() != nil
		if available := lb.PolicyTraits(name) != nil; available != chosen {
			t.Errorf("%s: available is %t", name, available)
		}
		if _, err := own.ParseConfig(json.RawMessage("{}")); (err == nil) != chosen {
			t.Errorf("%s: %v", name, err)
		}
		if chosen {
			continue // see conformance
		}
		err := lbtest.NewTree(t, b, slices.Collect(maps.Values(lb.Policies()))...).Update(policy.Child{Config: new(lbtest.Part)})
		if err == nil || err.Error() != name+": config is a *lbtest.Part" {
			t.Errorf("%s: the config of another policy: %v", name, err)
		}
	}
}
