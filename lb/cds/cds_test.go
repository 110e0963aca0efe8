package cds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "orders"

// stage is a cds policy with the real policies below it.
type stage struct {
	t       *testing.T
	tree    *lbtest.Tree
	cluster *resource.Cluster
	places  map[string]*resource.LocalityEndpoints // unchanged localities keep their pointers
	last    *resource.Assignment
}

type step func(s *stage)

// assignment gives localities, each with one endpoint of its name: "a b | c" is
// a and b in the highest priority, c below it.
func assignment(s string, drops ...resource.Drop) step {
	return func(st *stage) {
		a := &resource.Assignment{Name: cluster, Drops: drops}
		for i, p := range strings.Split(s, "|") {
			for zone := range strings.FieldsSeq(p) {
				key := fmt.Sprint(zone, i)
				if st.places[key] == nil {
					id := resource.Locality{Zone: zone}
					st.places[key] = &resource.LocalityEndpoints{ID: id, Priority: uint32(i), Weight: 1, Endpoints: []*resource.Endpoint{
						{Addresses: []string{zone}, Locality: id, Weight: 1},
						{Addresses: []string{zone + "-sick"}, Locality: id, Weight: 1, Health: resource.HealthUnhealthy},
					}}
				}
				a.Localities = append(a.Localities, st.places[key])
			}
		}
		st.update(&resource.ClusterConfig{Cluster: st.cluster, Assignment: a})
	}
}

func failed(cc resource.ClusterConfig) step {
	return func(s *stage) {
		cc.Cluster = s.cluster
		s.update(&cc)
	}
}

func (s *stage) update(cc *resource.ClusterConfig) {
	s.t.Helper()
	s.last = cc.Assignment
	s.tree.Config(policy.Child{Config: &policy.CDSConfig{Cluster: cluster, XDS: &resource.Config{
		Target: "cluster:" + cluster, Clusters: few.Of(map[string]*resource.ClusterConfig{cluster: cc}),
	}}})
}

func says(address string, state connectivity.State) step {
	return func(s *stage) {
		sc := s.tree.SubConn(address)
		s.tree.Batch(func() { sc.Says(state, errors.New(address+" refused")) })
	}
}

const (
	up   = connectivity.Ready
	down = connectivity.TransientFailure
)

func reports(want int) step { return func(s *stage) { s.tree.ExpectReports(want) } }

// subConns asserts how many were made in all.
func subConns(want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := len(s.tree.SubConns); got != want {
			s.t.Errorf("%d SubConns were made, want %d", got, want)
		}
	}
}

func withCluster(change func(*resource.Cluster)) step {
	return func(s *stage) {
		c := *s.cluster
		change(&c)
		s.cluster = &c
	}
}

func TestCDS(t *testing.T) {
	var (
		errDeleted = errors.New("cluster orders was deleted")
		errNoEDS   = errors.New("assignment orders does not exist")
		errAmbient = errors.New("the management server is away")
	)
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"connects", []step{assignment("a b | c"), subConns(2)}, "CONNECTING no SubConn is available"},
		{"READY", []step{assignment("a | b"), says("a", up)}, "READY a"},
		{"fails over", []step{assignment("a | b"), says("a", down), says("b", up)}, "READY b"},
		{"no locality", []step{assignment("")}, "TRANSIENT_FAILURE no locality in any priority: the assignment is empty"},
		{"no endpoint of the only locality is usable", []step{assignment("a"), says("a", up), unusable("a")}, "TRANSIENT_FAILURE no usable endpoints"},
		{"the cluster has an error", []step{failed(resource.ClusterConfig{Err: errDeleted})}, "TRANSIENT_FAILURE cluster orders was deleted"},
		{"the assignment never came", []step{failed(resource.ClusterConfig{AssignmentErr: errNoEDS})}, "TRANSIENT_FAILURE assignment orders does not exist"},
		{"no assignment, no error", []step{failed(resource.ClusterConfig{})}, "TRANSIENT_FAILURE no endpoints are known yet"},
		{
			"deleted: connections are closed, and the error is the cluster's",
			[]step{assignment("a"), says("a", up), failed(resource.ClusterConfig{Err: errDeleted}), closed},
			"TRANSIENT_FAILURE cluster orders was deleted",
		},
		{
			"and back",
			[]step{assignment("a"), says("a", up), failed(resource.ClusterConfig{Err: errDeleted}), assignment("a"), says("a", up), subConns(2)},
			"READY a",
		},
		{
			"the same error again is no news",
			[]step{failed(resource.ClusterConfig{Err: errDeleted}), reports(1), failed(resource.ClusterConfig{Err: errors.New(errDeleted.Error())}), reports(1), failed(resource.ClusterConfig{Err: errNoEDS}), reports(2)},
			"TRANSIENT_FAILURE assignment orders does not exist",
		},
		{
			"an ambient error keeps the last good assignment",
			[]step{assignment("a"), says("a", up), reports(2), ambient(errAmbient), reports(1)},
			"READY a",
		},
		{
			"a locality moves to another priority: its connection goes along",
			[]step{assignment("a | b"), says("a", down), says("b", up), assignment("b | a"), subConns(2)},
			"READY b",
		},
		{
			"two priorities are merged: what stays keeps its connection",
			[]step{assignment("a | b"), says("a", up), assignment("a b"), subConns(2)},
			"READY a",
		},
		{
			"a locality in two priorities: an update that changes nothing of them makes no connection",
			[]step{assignment("a | a b"), says("a", up), subConns(1), assignment("a | a b", resource.Drop{Category: "x"}), subConns(1)},
			"READY a",
		},
		{
			"drops alone: one picker, no connection",
			[]step{assignment("a b"), says("a", up), reports(2), assignment("a b", resource.Drop{Category: "x"}), reports(2), subConns(2)},
			"READY a",
		},
		{
			"a priority that is not in use changes: no picker",
			[]step{assignment("a | b"), says("a", up), reports(2), assignment("a | b c"), reports(1)},
			"READY a",
		},
		{
			"round_robin over all localities",
			[]step{withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: resource.PolicyRoundRobin} }), assignment("a b"), says("a", up)},
			"READY a",
		},
		{
			"a policy that cannot pick endpoints fails the cluster",
			[]step{assignment("a"), says("a", up), withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: policy.Priority} }), assignment("a"), closed},
			`TRANSIENT_FAILURE load balancing policy "priority_experimental" cannot pick endpoints`,
		},
		{
			"so does a locality policy without one for the endpoints",
			[]step{withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: resource.PolicyWRRLocality} }), assignment("a")},
			`TRANSIENT_FAILURE load balancing policy "xds_wrr_locality_experimental" cannot pick endpoints`,
		},
		{
			"and it recovers",
			[]step{
				withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: policy.Priority} }), assignment("a"), reports(1), assignment("a"), reports(1),
				withCluster(func(c *resource.Cluster) { c.Policy = resource.RoundRobinPolicy() }), assignment("a"), says("a", up),
			},
			"READY a",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
			s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(),
				weightedtarget.Builder(), roundrobin.Builder())
			for _, step := range tt.steps {
				step(s)
			}
			call := new(policy.Call)
			_, err := s.tree.Pick(call)
			got := fmt.Sprintf("%v %v", s.tree.State(), err)
			if err == nil {
				got = fmt.Sprintf("%v %s", s.tree.State(), call.Endpoint.Addresses[0])
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if n := s.tree.Describe(); n.State != s.tree.State() || n.Policy != policy.CDS || (n.State == down) != (n.Err != nil && n.Err.Error() == err.Error()) {
				t.Errorf("describes %s in %v, error %v; reported is %v, %v", n.Policy, n.State, n.Err, s.tree.State(), err)
			}
			if sum := s.tree.Summarize(); sum.State != s.tree.State() {
				t.Errorf("summary %+v, reported is %v", sum, s.tree.State())
			}
		})
	}
}

// closed asserts that no connection is left.
func closed(s *stage) {
	s.t.Helper()
	for _, sc := range s.tree.SubConns {
		if !sc.Closed {
			s.t.Errorf("%s is not shut down", sc.Addresses[0].Addr)
		}
	}
}

// unusable gives zone's locality with no usable endpoint.
func unusable(zone string) step {
	return func(s *stage) {
		id := resource.Locality{Zone: zone}
		s.update(&resource.ClusterConfig{Cluster: s.cluster, Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{
			{ID: id, Weight: 1, Endpoints: []*resource.Endpoint{{Addresses: []string{zone}, Health: resource.HealthDraining}}},
		}}})
	}
}

// ambient repeats the last assignment, with an error beside it.
func ambient(err error) step {
	return func(s *stage) {
		s.update(&resource.ClusterConfig{Cluster: s.cluster, Assignment: s.last, AssignmentErr: err})
	}
}

func TestWrongConfigs(t *testing.T) {
	tree := lbtest.NewTree(t, cds.Builder())
	err := tree.Update(policy.Child{Config: &policy.CDSConfig{Cluster: "x", XDS: &resource.Config{Target: "cluster:y"}}})
	if err == nil || err.Error() != `cluster "x" is not in the config of cluster:y` {
		t.Errorf("err %v", err)
	}
}

// stub is a policy below cds. It keeps its configs, and counts the calls of Close.
type stub struct {
	policy.Policy
	name    string
	configs []serviceconfig.LoadBalancingConfig
	closes  int
}

func (b *stub) Name() string { return b.name }

func (b *stub) Build(*policy.Conn) policy.Policy { return b }

func (b *stub) Update(c policy.Child) error {
	b.configs = append(b.configs, c.Config)
	return nil
}

func (b *stub) Close() { b.closes++ }

func TestChildIsClosed(t *testing.T) {
	child := &stub{name: policy.ClusterImpl}
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), child)
	assignment("a")(s)
	if child.closes != 0 {
		t.Errorf("the child was closed %d times, want 0", child.closes)
	}
	s.tree.Close()
	if child.closes != 1 {
		t.Errorf("the child was closed %d times", child.closes)
	}
}

// configured is an endpoint policy that notes which configs it is given. Its configs
// are pointers, as are those of most policies in grpc's registry.
type configured struct {
	policy.Policy

	given *[]string
}

type givenConfig struct {
	serviceconfig.LoadBalancingConfig
	text   string
	number int
}

func (c configured) Name() string { return "configured" }

func (c configured) Build(*policy.Conn) policy.Policy { return c }

// ParseConfig numbers the configs.
func (c configured) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if strings.Contains(string(text), "bad") {
		return nil, errors.New("bad config")
	}
	*c.given = append(*c.given, "parse "+string(text))
	return &givenConfig{text: string(text), number: len(*c.given)}, nil
}

func (c configured) Update(part policy.Child) error {
	if cfg, ok := part.Config.(*givenConfig); ok {
		*c.given = append(*c.given, fmt.Sprintf("%s of %d endpoints", cfg.text, len(part.Endpoints)))
	}
	return nil
}

func (c configured) Close() {}

// TestConfigIsParsedOnce: as long as the cluster's policy stays the same, its children
// are given the same config.
func TestConfigIsParsedOnce(t *testing.T) {
	var given []string
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), configured{given: &given})
	policyOf := func(config string) step {
		return withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: "configured", Config: config} })
	}
	for _, step := range []step{
		policyOf(""), assignment("a"),
		policyOf(`{"n":1}`), assignment("a"), assignment("a b"),
		policyOf(`{"n":2}`), assignment("a b"),
	} {
		step(s)
	}
	want := `parse {}; {} of 1 endpoints; parse {"n":1}; {"n":1} of 1 endpoints; {"n":1} of 2 endpoints; parse {"n":2}; {"n":2} of 2 endpoints`
	if got := strings.Join(given, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	policyOf(`{"n":"bad"}`)(s)
	assignment("a b")(s)
	if s.tree.State() != connectivity.TransientFailure {
		t.Errorf("with a bad config the state is %v", s.tree.State())
	}
	if n := s.tree.Describe(); n.Policy != policy.CDS || n.Err == nil || n.Err.Error() != "bad config" {
		t.Errorf("described as %+v", n)
	}
}

// TestWhatIsCounted: cluster_impl gets the names that are counted and, if the cluster's
// load is reported, the metrics of upstreams.
func TestWhatIsCounted(t *testing.T) {
	for _, reported := range []bool{false, true} {
		child := &stub{name: policy.ClusterImpl}
		c := *resource.DefaultCluster(cluster)
		c.LRSToSelf, c.LoadMetrics = reported, &resource.LoadMetrics{AllNamed: true}
		s := &stage{t: t, cluster: &c, places: map[string]*resource.LocalityEndpoints{}}
		s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), child)
		assignment("a b | a", resource.Drop{Category: "x"})(s)
		got := lbtest.As[*policy.ClusterImplConfig](t, child.configs[0])
		if len(got.Drops) != 1 || len(got.Localities) != 3 || got.Localities[1].ID.Zone != "b" {
			t.Errorf("drops %v, localities %v", got.Drops, got.Localities)
		}
		if (got.LoadMetrics != nil) != reported || reported && !got.LoadMetrics.AllNamed {
			t.Errorf("reported %t: metrics %v", reported, got.LoadMetrics)
		}
	}
}

// localitiesOf returns the localities that weighted_target gets from cds with the assignment
// "a b", and after a change to the localities.
func localitiesOf(t *testing.T, change func(s *stage)) (before, after []*policy.Locality) {
	t.Helper()
	child := &stub{name: policy.WeightedTarget}
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), child)
	assignment("a b")(s)
	change(s)
	assignment("a b")(s)
	if len(child.configs) != 2 {
		t.Fatalf("%d configs, want 2", len(child.configs))
	}
	given := func(i int) (ls []*policy.Locality) {
		for _, target := range lbtest.As[*policy.WeightedTargetConfig](t, child.configs[i]).Targets {
			ls = append(ls, target.Locality)
		}
		return ls
	}
	return given(0), given(1)
}

// TestUnchangedLocalitiesKeepTheirPointers, so that policies below need not compare their
// endpoints.
func TestUnchangedLocalitiesKeepTheirPointers(t *testing.T) {
	before, after := localitiesOf(t, func(s *stage) { delete(s.places, "b0") }) // b is decoded again
	if before[0] != after[0] || before[1] == after[1] {
		t.Errorf("localities %v, then %v; want the same a and another b", before, after)
	}
	if n := len(before[0].Endpoints); n != 1 {
		t.Errorf("%d endpoints, want the usable one", n)
	}
}

// TestLocalitiesBecomeTargets: each locality with its endpoints under the endpoint policy.
func TestLocalitiesBecomeTargets(t *testing.T) {
	child := &stub{name: policy.WeightedTarget}
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), roundrobin.Builder(), child)
	assignment("a b")(s)
	targets := lbtest.As[*policy.WeightedTargetConfig](t, child.configs[0]).Targets
	if len(targets) != 2 {
		t.Fatalf("%d targets, want 2", len(targets))
	}
	for _, got := range targets {
		c := got.Child
		if c.Policy != roundrobin.Name || c.Config != (policy.NoConfig{}) || !slices.Equal(c.Localities, []*policy.Locality{got.Locality}) ||
			len(c.Endpoints) == 0 || !slices.Equal(c.Endpoints, got.Locality.Endpoints) {
			t.Errorf("locality %v has %+v", got.Locality.ID, c)
		}
	}
}

// TestUnchangedEndpointsAreReused, also when there is another one in their locality.
func TestUnchangedEndpointsAreReused(t *testing.T) {
	before, after := localitiesOf(t, func(s *stage) {
		changed := *s.places["a0"]
		changed.Endpoints = append(changed.Endpoints[:1:1], &resource.Endpoint{Addresses: []string{"more"}, Weight: 1, Locality: changed.ID})
		s.places["a0"] = &changed
	})
	if len(after[0].Endpoints) != 2 || before[0].Endpoints[0] != after[0].Endpoints[0] {
		t.Errorf("locality a %+v, then %+v", before[0], after[0])
	}
}
