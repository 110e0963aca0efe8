package decode_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	weighted     = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
	leastRequest = "least_request.v3.LeastRequest"
	pickFirst    = "pick_first.v3.PickFirst"
	// inPolicy is where the config of the only policy stands.
	inPolicy = "load_balancing_policy.policies[0].typed_extension_config.typed_config"
)

// named is the JSON of a policy by gRPC's name, with its config.
func named(name, config string) string {
	return `{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"type.googleapis.com/` + name + `","value":` + config + `}`
}

// only is a cluster with this policy alone.
func only(config string) string { return eds(choose(policies(config))) }

// within is wrr_locality with this policy alone.
func within(config string) string {
	return policy(wrr, `"endpoint_picking_policy":`+policies(config))
}

// grpcs makes those policies available by name that have a proto. A config is applied
// as it is written.
func grpcs(name string) *resource.PolicyTraits {
	switch name {
	case "round_robin":
		return &resource.PolicyTraits{Judge: func(json.RawMessage) (string, []resource.ConfigFinding) { return "", nil }}
	case "weighted_round_robin", "least_request_experimental", "ring_hash_experimental":
		return new(resource.PolicyTraits)
	case "pick_first":
		return &resource.PolicyTraits{KeepsEndpoint: true}
	default:
		return nil
	}
}

// acme makes those of grpcs available, and "acme", which rejects what is "bad".
func acme(name string) *resource.PolicyTraits {
	if name == "acme" {
		return &resource.PolicyTraits{Judge: acmeJudge}
	}
	return grpcs(name)
}

func acmeJudge(config json.RawMessage) (string, []resource.ConfigFinding) {
	if strings.Contains(string(config), "bad") {
		return "", []resource.ConfigFinding{{Text: "is rejected by acme"}}
	}
	return string(config), nil
}

// TestConvertedPolicies: the proto of a policy becomes the JSON config that gRPC's
// service config would have.
func TestConvertedPolicies(t *testing.T) {
	for _, c := range []struct {
		body string
		want resource.Policy
	}{
		{only(policy(roundRobin)), resource.Policy{Name: resource.PolicyRoundRobin}},
		{only(policy(leastRequest)), resource.Policy{Name: "least_request_experimental", Config: "{}"}},
		{only(policy(leastRequest, `"choice_count":0`)), resource.Policy{Name: "least_request_experimental", Config: "{}"}},
		{eds(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":0}`), resource.Policy{Name: "least_request_experimental", Config: `{"choiceCount":0}`}},
		{
			only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":0`)),
			resource.Policy{Name: "ring_hash_experimental", Config: `{"maxRingSize":8388608,"minRingSize":0}`},
		},
		{
			eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"maximum_ring_size":0}`),
			resource.Policy{Name: "ring_hash_experimental", Config: `{"maxRingSize":0}`},
		},
		{only(policy(pickFirst, `"shuffle_address_list":true`)), resource.Policy{Name: "pick_first", Config: `{"shuffleAddressList":true}`}},
		{
			only(policy(weighted, `"blackout_period":"0s","weight_update_period":"0.099s","error_utilization_penalty":0.5,"oob_reporting_period":"1s"`)),
			resource.Policy{Name: "weighted_round_robin", Config: `{"errorUtilizationPenalty":0.5,"weightUpdatePeriod":"0.099s"}`},
		},
		{
			only(within(policy(leastRequest))),
			resource.Policy{Name: resource.PolicyWRRLocality, Child: &resource.Policy{Name: "least_request_experimental", Config: "{}"}},
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			d, err := decode.One(resource.TypeCluster, []byte(c.body), decode.Options{Origin: origin, Format: decode.FormatJSON})
			if err != nil || !reflect.DeepEqual(d.Cluster.Policy, c.want) {
				t.Errorf("%s: %+v, %v; want %+v", c.body, d, err, c.want)
			}
		}
	}
}

// TestFindingsOfPolicies: what a policy finds in its config stands where it was
// written, and counts for those who gRPC's rules have it count.
func TestFindingsOfPolicies(t *testing.T) {
	inValue := inPolicy + ".value"
	judge := func(member string, f resource.ConfigFinding) decode.Policies {
		return func(string) *resource.PolicyTraits {
			return &resource.PolicyTraits{Judge: func(config json.RawMessage) (string, []resource.ConfigFinding) {
				f.Member = member
				return string(config), []resource.ConfigFinding{f}
			}}
		}
	}
	invalid, warning := resource.ConfigFinding{Text: "is bad"}, resource.ConfigFinding{Kind: resource.FindingWarning, Text: "is dubious"}
	invalidByHand, warningByHand := invalid, warning
	invalidByHand.ByHand, warningByHand.ByHand = true, true
	for _, c := range []struct {
		name         string
		body         string
		member       string
		finding      resource.ConfigFinding
		hand, server string
		warned       bool
	}{
		{name: "a member", body: named("acme", `{}`), member: "x", finding: invalid, hand: inValue + ".x: is bad", server: inValue + ".x: is bad"},
		{name: "the whole", body: named("acme", `{}`), finding: invalid, hand: inValue + ": is bad", server: inValue + ": is bad"},
		{name: "a warning", body: named("acme", `{}`), member: "x", finding: warning, warned: true, hand: inValue + ".x: is dubious", server: inValue + ".x: is dubious"},
		{name: "by hand", body: named("acme", `{}`), member: "x", finding: invalidByHand, hand: inValue + ".x: is bad"},
		{name: "a warning by hand", body: named("acme", `{}`), member: "x", finding: warningByHand, warned: true, hand: inValue + ".x: is dubious"},
		{
			name: "a field of a proto", body: policy(leastRequest, `"choice_count":1`), member: "choiceCount", finding: invalid,
			hand: inPolicy + ".choice_count: is bad", server: inPolicy + ".choice_count: is bad",
		},
		{
			name: "the default of a field", body: policy(ringHash, `"hash_function":"XX_HASH"`), member: "minRingSize", finding: invalid,
			hand: inPolicy + ".minimum_ring_size: is bad", server: inPolicy + ".minimum_ring_size: is bad",
		},
		{name: "what the decoder filled in", body: policy(ringHash, `"hash_function":"XX_HASH"`), member: "maxRingSize", finding: warning, warned: true},
		{
			name: "an unknown member", body: named("acme", `{}`), member: "minRingSise",
			finding: resource.ConfigFinding{Kind: resource.FindingUnknown, Known: []string{"minRingSize"}},
			hand:    inValue + ".minRingSise: unknown field (did you mean minRingSize?)",
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			want := c.hand
			if origin == decode.FromServer {
				want = c.server
			}
			d, err := decode.One(resource.TypeCluster, []byte(only(c.body)), decode.Options{Origin: origin, Policies: judge(c.member, c.finding)})
			got := refusals(t, err, "Cluster/orders")
			if c.warned {
				got = lines(d.Warnings)
			}
			if c.finding.Kind == resource.FindingUnknown && origin == decode.FromServer {
				continue // a warning, as any unknown field
			}
			if strings.Join(got, "\n") != want {
				t.Errorf("%s from %d: %q, want %q", c.name, origin, got, want)
			}
		}
	}
}

func TestRingHashByHandHashesAsEnvoyDoes(t *testing.T) {
	d, err := decode.One(resource.TypeCluster, []byte(only(policy(ringHash))), decode.Options{})
	want := []string{inPolicy + ".hash_function: is DEFAULT_HASH, which gRPC rejects from a management server: taken as XX_HASH, as Envoy does; write hash_function: XX_HASH"}
	if err != nil || d.Cluster.Policy.Name != "ring_hash_experimental" || !reflect.DeepEqual(lines(d.Warnings), want) {
		t.Errorf("decoded %+v, %v", d, err)
	}
}

// What is stored can meet a daemon that has the policy no more.
func TestCustomPolicyThatIsGone(t *testing.T) {
	d := accept(t, resource.TypeCluster, only(named("acme", `{"a":1}`)), decode.Options{Policies: acme})
	_, err := decode.One(resource.TypeCluster, d.Raw, decode.Options{Format: decode.FormatProtobuf})
	want := []string{`load_balancing_policy: holds no supported policy, only TypedStruct "acme": ` + supports}
	expect(t, "refusals", refusals(t, err, "Cluster/orders"), want)
	bundled := []byte(bundle(typed(clusterType, only(named("acme", `{"a":1}`)))))
	if _, err := decode.All(bundled, decode.Options{}); err == nil {
		t.Error("a bundle takes what is not available")
	}
	b, err := decode.All(bundled, decode.Options{Policies: acme})
	if err != nil || !reflect.DeepEqual(b.Items[0].Cluster, d.Cluster) || !bytes.Equal(b.Items[0].Raw, d.Raw) {
		t.Errorf("bundle %+v, %v", b, err)
	}
}

// withPolicy is a Cluster in protobuf whose only policy is carried as it is.
func withPolicy(t *testing.T, a *anypb.Any) []byte {
	t.Helper()
	body, err := proto.Marshal(&clusterv3.Cluster{
		Name:                 "orders",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		LoadBalancingPolicy: &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "x", TypedConfig: a},
		}}},
	})
	noError(t, err)
	return body
}

func TestPeriodsFromServer(t *testing.T) {
	a, err := anypb.New(&weightedv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod:          &durationpb.Duration{Seconds: -1},
		WeightExpirationPeriod:  &durationpb.Duration{Seconds: 1 << 60},
		WeightUpdatePeriod:      &durationpb.Duration{Seconds: 1, Nanos: -1},
		ErrorUtilizationPenalty: wrapperspb.Float(0.1),
	})
	noError(t, err)
	o := decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf}
	d := accept(t, resource.TypeCluster, withPolicy(t, a), o)
	const want = `{"blackoutPeriod":"-1s","errorUtilizationPenalty":0.10000000149011612,` +
		`"weightExpirationPeriod":"9223372036.854775807s","weightUpdatePeriod":"0.999999999s"}`
	if d.Cluster.Policy.Config != want {
		t.Errorf("config %s, want %s", d.Cluster.Policy.Config, want)
	}
	o.Origin = decode.ByHand
	_, err = decode.One(resource.TypeCluster, withPolicy(t, a), o)
	got := refusals(t, err, "Cluster/orders")
	if len(got) != 2 || !strings.HasPrefix(got[0], inPolicy+".weight_expiration_period: is no duration: ") ||
		!strings.HasPrefix(got[1], inPolicy+".weight_update_period: is no duration: ") {
		t.Errorf("refusals %q", got)
	}
}

func TestPolicyUnderAnotherURL(t *testing.T) {
	a := &anypb.Any{TypeUrl: "example.com/envoy.extensions.load_balancing_policies." + roundRobin}
	o := decode.Options{Format: decode.FormatProtobuf}
	if _, err := decode.One(resource.TypeCluster, withPolicy(t, a), o); err != nil {
		t.Error(err)
	}
	o.Origin = decode.FromServer
	_, err := decode.One(resource.TypeCluster, withPolicy(t, a), o)
	if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, []string{"load_balancing_policy: holds no supported policy, only RoundRobin: " + supports}) {
		t.Errorf("refusals %q", got)
	}
}

func TestPoliciesThatAreNoMessagesOfTheirTypes(t *testing.T) {
	for _, name := range []string{
		"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct",
		"envoy.extensions.load_balancing_policies." + wrr,
		"envoy.extensions.load_balancing_policies." + weighted,
		"envoy.extensions.load_balancing_policies." + leastRequest,
		"envoy.extensions.load_balancing_policies." + ringHash,
		"envoy.extensions.load_balancing_policies." + pickFirst,
	} {
		body := withPolicy(t, &anypb.Any{TypeUrl: "type.googleapis.com/" + name, Value: []byte{0xff}})
		_, err := decode.One(resource.TypeCluster, body, decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf})
		got := refusals(t, err, "Cluster/orders")
		if len(got) != 1 || !strings.HasPrefix(got[0], inPolicy+": cannot be read as "+name+": ") {
			t.Errorf("refusals %q", got)
		}
	}
}

// A Struct in protobuf can hold what JSON cannot.
func TestConfigThatIsNoJSON(t *testing.T) {
	for _, value := range []*structpb.Value{{}, structpb.NewNumberValue(math.NaN())} {
		a, err := anypb.New(&xdsv3.TypedStruct{TypeUrl: "x/acme", Value: &structpb.Struct{Fields: map[string]*structpb.Value{"a": value}}})
		noError(t, err)
		_, err = decode.One(resource.TypeCluster, withPolicy(t, a), decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf, Policies: acme})
		want := []string{inPolicy + ".value: contains NaN, or a Value without a kind"}
		if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, want) {
			t.Errorf("refusals %q", got)
		}
	}
}
