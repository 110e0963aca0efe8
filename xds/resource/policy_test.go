package resource_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// acme makes two custom policies available: "acme", which refuses what is
// "bad", and "idle", which takes no config.
func acme(name string) (resource.ConfigJudge, bool) {
	return map[string]resource.ConfigJudge{"acme": acmeJudge}[name], name == "acme" || name == "idle"
}

func acmeJudge(config json.RawMessage) error {
	if strings.Contains(string(config), "bad") {
		return errors.New("acme wants no bad apples")
	}
	return nil
}

func ring(least, most uint64) resource.Policy {
	return resource.Policy{Name: resource.PolicyRingHash, RingHash: &resource.RingHash{MinSize: least, MaxSize: most}}
}

func least(n uint32) resource.Policy {
	return resource.Policy{Name: resource.PolicyLeastRequest, LeastRequest: &resource.LeastRequest{ChoiceCount: n}}
}

func weightedPolicy(blackout, expiration, update time.Duration, penalty float64) resource.Policy {
	return resource.Policy{Name: resource.PolicyWeightedRoundRobin, WeightedRoundRobin: &resource.WeightedRoundRobin{
		BlackoutPeriod: blackout, WeightExpirationPeriod: expiration, WeightUpdatePeriod: update, ErrorUtilizationPenalty: penalty,
	}}
}

func first(shuffle bool) resource.Policy {
	return resource.Policy{Name: resource.PolicyPickFirst, PickFirst: &resource.PickFirst{ShuffleAddressList: shuffle}}
}

func perLocality(p resource.Policy) resource.Policy {
	return resource.Policy{Name: resource.PolicyWRRLocality, Child: &p}
}

func TestPolicies(t *testing.T) {
	var (
		robin    = resource.Policy{Name: resource.PolicyRoundRobin}
		standard = weightedPolicy(10*time.Second, 3*time.Minute, time.Second, 1)
		inValue  = inPolicy + ".value"
	)
	for _, c := range []struct {
		name, body string
		want       resource.Policy
		byHand     []string // warnings by hand alone
		both       []string // warnings whoever wrote it
	}{
		{name: "lb_policy ring hash", body: eds(`"lb_policy":"RING_HASH"`), want: ring(1024, 4096)},
		{
			name: "lb_policy ring hash with sizes", body: eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":7,"maximum_ring_size":9}`),
			want: ring(7, 9),
		},
		{
			name: "lb_policy least request", body: eds(`"lb_policy":"LEAST_REQUEST"`), want: least(2),
		},
		{
			name: "lb_policy least request with choices", body: eds(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":3,"slow_start_config":{}}`),
			want: least(3), byHand: []string{"least_request_lb_config.slow_start_config: is not applied"},
		},
		{
			name: "the config of another lb_policy", body: eds(`"least_request_lb_config":{"choice_count":1}`), want: resource.RoundRobinPolicy(),
			byHand: []string{"least_request_lb_config: is not applied: it belongs to another lb_policy"},
		},
		{
			name: "the config of an lb_policy that does not count", body: eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{}`, choose(policies(policy(roundRobin)))),
			want: robin, byHand: []string{"lb_policy: RING_HASH is not applied: load_balancing_policy counts", "ring_hash_lb_config: is not applied: it belongs to another lb_policy"},
		},

		{
			name: "round_robin", body: only(policy(roundRobin, `"slow_start_config":{}`)), want: robin,
			byHand: []string{inPolicy + ".slow_start_config: is not applied"},
		},
		{name: "round_robin by name", body: only(named("round_robin", `{}`)), want: robin},
		{
			name: "round_robin by name, with what it does not have", body: eds(choose(policies(named("round_robin", `{"a":1}`)))), want: robin,
			byHand: []string{inValue + ".a: unknown field of round_robin: ignored"},
		},

		{name: "ring_hash", body: only(policy(ringHash, `"hash_function":"XX_HASH"`)), want: ring(1024, 4096)},
		{name: "ring_hash as large as can be", body: only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":4096`)), want: ring(4096, 4096)},
		{
			name: "ring_hash beyond the cap", body: only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":8388608,"maximum_ring_size":"8388608","use_hostname_for_hashing":true`)),
			want: ring(4096, 4096),
			byHand: []string{
				inPolicy + ".use_hostname_for_hashing: is not applied",
				inPolicy + ".minimum_ring_size: is 8388608: taken as 4096, the most entries that a ring has",
				inPolicy + ".maximum_ring_size: is 8388608: taken as 4096, the most entries that a ring has",
			},
		},
		{name: "ring_hash of zeros", body: only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":0,"maximum_ring_size":0`)), want: ring(1024, 4096)},
		{name: "ring_hash by name", body: only(named("ring_hash_experimental", `{}`)), want: ring(1024, 4096)},
		{name: "ring_hash by name, with sizes", body: only(named("ring_hash_experimental", `{"minRingSize":5,"MAXRINGSIZE":6,"requestHashHeader":null}`)), want: ring(5, 6)},
		{
			name: "ring_hash by name, with a header", body: only(named("ring_hash_experimental", `{"requestHashHeader":"X-User"}`)), want: ring(1024, 4096),
			both: []string{inValue + ".requestHashHeader: is not applied: the hash is the pick's own"},
		},

		{name: "least_request", body: only(policy(leastRequest)), want: least(2)},
		{name: "least_request of ten", body: only(policy(leastRequest, `"choice_count":10`)), want: least(10)},
		{
			name: "least_request of more", body: only(policy(leastRequest, `"choice_count":11,"enable_full_scan":true`)), want: least(10),
			byHand: []string{
				inPolicy + ".choice_count: is 11: taken as 10, the most that are drawn",
				inPolicy + ".enable_full_scan: is not applied",
			},
		},
		{
			name: "least_request of none", body: only(policy(leastRequest, `"choice_count":0`)), want: least(2),
			byHand: []string{inPolicy + ".choice_count: is 0, which means the default here, as in gRPC: taken as 2"},
		},
		{name: "least_request by name", body: only(named("least_request_experimental", `{"choiceCount":4}`)), want: least(4)},

		{name: "pick_first", body: only(policy(pickFirst)), want: first(false)},
		{name: "pick_first, shuffled", body: only(policy(pickFirst, `"shuffle_address_list":true`)), want: first(true)},
		{name: "pick_first by name", body: only(named("pick_first", `{"shuffleAddressList":true}`)), want: first(true)},
		{
			name: "pick_first by name, without a config", want: first(false),
			body: only(`{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct","type_url":"pick_first"}`),
		},

		{name: "weighted_round_robin", body: only(policy(weighted)), want: standard},
		{
			name: "weighted_round_robin in all", want: weightedPolicy(time.Second, 2*time.Second, 3*time.Second, 0.5),
			body:   only(policy(weighted, `"blackout_period":"1s","weight_expiration_period":"2s","weight_update_period":"3s","error_utilization_penalty":0.5,"oob_reporting_period":"1s"`)),
			byHand: []string{inPolicy + ".oob_reporting_period: is not applied: loads are those that are reported with the outcomes of picks"},
		},
		{
			name: "weighted_round_robin of zeros", want: standard,
			body: only(policy(weighted, `"blackout_period":"0s","weight_expiration_period":"0s","weight_update_period":"0s","error_utilization_penalty":0`)),
			byHand: []string{
				inPolicy + ".blackout_period: is 0s, which means the default here, as in gRPC: taken as 10s",
				inPolicy + ".weight_expiration_period: is 0s, which means the default here, as in gRPC: taken as 3m0s",
				inPolicy + ".weight_update_period: is 0s, which means the default here, as in gRPC: taken as 1s",
				inPolicy + ".error_utilization_penalty: is 0, which means the default here, as in gRPC: taken as 1",
			},
		},
		{
			name: "weighted_round_robin updated too often", want: weightedPolicy(10*time.Second, 3*time.Minute, 100*time.Millisecond, 1),
			body:   only(policy(weighted, `"weight_update_period":"0.099s","enable_oob_load_report":true,"slow_start_config":{}`)),
			byHand: []string{inPolicy + ".enable_oob_load_report: is not applied: loads are those that are reported with the outcomes of picks", inPolicy + ".weight_update_period: is 99ms: taken as 100ms, the shortest there is", inPolicy + ".slow_start_config: is not applied"},
		},
		{name: "weighted_round_robin by name", body: only(named("weighted_round_robin", `{}`)), want: standard},
		{
			name: "weighted_round_robin by name, in all", want: weightedPolicy(0, 2500*time.Millisecond, 100*time.Millisecond, 0),
			body: only(named("weighted_round_robin", `{"enableOobLoadReport":true,"oobReportingPeriod":"1s","blackoutPeriod":"0s",`+
				`"weightExpirationPeriod":"2.5s","weightUpdatePeriod":"0s","errorUtilizationPenalty":0}`)),
			byHand: []string{inValue + ".weightUpdatePeriod: is 0s: taken as 100ms, the shortest there is"},
			both:   []string{inValue + ".enableOobLoadReport: is not applied: loads are those that are reported with the outcomes of picks"},
		},

		{name: "wrr_locality of ring_hash", body: only(within(policy(ringHash, `"hash_function":"XX_HASH"`))), want: perLocality(ring(1024, 4096))},
		{name: "wrr_locality of least_request", body: only(within(policy(leastRequest))), want: perLocality(least(2))},
		{name: "wrr_locality of pick_first", body: only(within(policy(pickFirst))), want: perLocality(first(false))},
		{name: "wrr_locality of weighted_round_robin", body: only(within(policy(weighted))), want: perLocality(standard)},
		{name: "wrr_locality of a policy by name", body: only(within(named("least_request_experimental", `{}`))), want: perLocality(least(2))},
		{
			name: "wrr_locality by name", want: perLocality(least(3)),
			body: only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"none":{}},{"least_request_experimental":{"choiceCount":3}},{"a":1,"b":2}]}`)),
			both: []string{inValue + `.childPolicy: "none": not supported, and skipped`},
		},

		{
			name: "a custom policy", body: only(named("acme", `{"b":[1,"<x>"],"a":{"c":null}}`)),
			want: resource.Policy{Name: "acme", Custom: `{"a":{"c":null},"b":[1,"\u003cx\u003e"]}`},
		},
		{
			name: "a custom policy without a config", want: resource.Policy{Name: "acme", Custom: "null"},
			body: only(`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"a/b/acme"}`),
		},
		{
			name: "a custom policy within a locality", body: only(within(named("acme", `{}`))),
			want: perLocality(resource.Policy{Name: "acme", Custom: "{}"}),
		},
		{
			name: "a custom policy that takes no config", body: only(named("idle", `{}`)),
			want: resource.Policy{Name: "idle", Custom: "{}"},
		},
		{
			name: "a custom policy that takes no config, and has none", want: resource.Policy{Name: "idle", Custom: "null"},
			body: only(`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"a/b/idle"}`),
		},
		{
			name: "a custom policy that takes no config, with one", body: only(named("idle", `{"a":1}`)),
			want: resource.Policy{Name: "idle", Custom: `{"a":1}`},
			both: []string{inValue + ": is not heeded: idle takes no config"},
		},
		{
			name: "a name that differs in case is another", want: robin,
			body: eds(choose(policies(named("ACME", `{}`), named("Round_Robin", `{}`), named("", `{}`), policy(roundRobin)))),
			both: []string{`load_balancing_policy: TypedStruct "ACME", TypedStruct "Round_Robin", TypedStruct "": not supported, and skipped`},
		},
	} {
		for _, origin := range []resource.Origin{resource.ByHand, resource.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				o := resource.Options{Origin: origin, Custom: acme, Lenient: true}
				d, err := resource.DecodeCluster([]byte(c.body), o)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(d.Value.Policy, c.want) {
					t.Errorf("policy %s, want %s", spell(d.Value.Policy), spell(c.want))
				}
				want := c.both
				if origin == resource.ByHand {
					want = slices.Concat(want, c.byHand)
				}
				if got := lines(d.Warnings); !sameSet(got, want) {
					t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				o.Format = resource.FormatProtobuf
				again, err := resource.DecodeCluster(d.Raw, o)
				if err != nil || !reflect.DeepEqual(again.Value, d.Value) || !bytes.Equal(again.Raw, d.Raw) {
					t.Errorf("raw: %+v, %v", again, err)
				}
			})
		}
	}
}

// spell writes a policy with all that it points to.
func spell(p resource.Policy) string {
	s := fmt.Sprintf("%s %+v %+v %+v %+v %q", p.Name, p.WeightedRoundRobin, p.LeastRequest, p.RingHash, p.PickFirst, p.Custom)
	if p.Child != nil {
		s += " (" + spell(*p.Child) + ")"
	}
	return s
}

func TestRulesOfPolicies(t *testing.T) {
	both := []resource.Origin{resource.ByHand, resource.FromServer}
	hand, server := both[:1], both[1:]
	inValue := inPolicy + ".value"
	for _, c := range []struct {
		name    string
		origins []resource.Origin
		body    string
		want    []string
	}{
		{
			"lb_policy ring hash of another function", both, eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"hash_function":"MURMUR_HASH_2"}`),
			[]string{"ring_hash_lb_config.hash_function: MURMUR_HASH_2 is not supported: supported is XX_HASH"},
		},
		{
			"lb_policy ring hash upside down", both, eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"maximum_ring_size":1023}`),
			[]string{"ring_hash_lb_config.minimum_ring_size: is 1024, more than the maximum, 1023"},
		},
		{
			"lb_policy ring hash too large", both, eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":8388609,"maximum_ring_size":8388610}`),
			[]string{
				"ring_hash_lb_config.minimum_ring_size: is 8388609: it must be at most 8388608",
				"ring_hash_lb_config.maximum_ring_size: is 8388610: it must be at most 8388608",
			},
		},
		{
			"lb_policy least request of one", both, eds(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":1}`),
			[]string{"least_request_lb_config.choice_count: is 1: it must be at least 2"},
		},
		{
			"lb_policy least request of none", both, eds(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":0}`),
			[]string{"least_request_lb_config.choice_count: is 0: it must be at least 2"},
		},
		{"cluster provided", both, eds(`"lb_policy":"CLUSTER_PROVIDED"`), []string{"lb_policy: CLUSTER_PROVIDED is not supported: " + lbPolicies}},

		{"ring_hash of the default function", server, only(policy(ringHash)), []string{inPolicy + ".hash_function: DEFAULT_HASH is not supported: supported is XX_HASH"}},
		{
			"ring_hash of another function", both, only(policy(ringHash, `"hash_function":"MURMUR_HASH_2"`)),
			[]string{inPolicy + ".hash_function: MURMUR_HASH_2 is not supported: supported is XX_HASH"},
		},
		{
			"ring_hash upside down", both, only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":10,"maximum_ring_size":9`)),
			[]string{inPolicy + ".minimum_ring_size: is 10, more than the maximum, 9"},
		},
		{
			"ring_hash with a maximum of zero", both, only(policy(ringHash, `"hash_function":"XX_HASH","minimum_ring_size":4097,"maximum_ring_size":0`)),
			[]string{inPolicy + ".minimum_ring_size: is 4097, more than the maximum, 4096"},
		},
		{
			"ring_hash by name, too large", both, only(named("ring_hash_experimental", `{"minRingSize":1,"maxRingSize":8388609}`)),
			[]string{inValue + ".maxRingSize: is 8388609: it must be at most 8388608"},
		},
		{
			"ring_hash by name, with nonsense", both, only(named("ring_hash_experimental", `{"minRingSize":-1,"maxRingSize":"9","requestHashHeader":7}`)),
			[]string{
				inValue + `.maxRingSize: is "9": it must be a whole number of at least 0`,
				inValue + ".minRingSize: is -1: it must be a whole number of at least 0",
				inValue + ".requestHashHeader: is 7: it must be a string",
			},
		},
		{
			"ring_hash by a header that is none", both, only(named("ring_hash_experimental", `{"requestHashHeader":"a b"}`)),
			[]string{inValue + `.requestHashHeader: is "a b", which cannot name a header`},
		},
		{
			"ring_hash by a binary header", both, only(named("ring_hash_experimental", `{"requestHashHeader":"user-bin"}`)),
			[]string{inValue + `.requestHashHeader: is "user-bin": a binary header cannot be hashed`},
		},

		{"least_request of one", both, only(policy(leastRequest, `"choice_count":1`)), []string{inPolicy + ".choice_count: is 1: it must be at least 2"}},
		{"least_request by name, of none", both, only(named("least_request_experimental", `{"choiceCount":0}`)), []string{inValue + ".choiceCount: is 0: it must be at least 2"}},
		{
			"least_request by name, of a part", both, only(named("least_request_experimental", `{"choiceCount":2.5}`)),
			[]string{inValue + ".choiceCount: is 2.5: it must be a whole number from 0 to 4294967295"},
		},
		{
			"pick_first by name, with nonsense", both, only(named("pick_first", `{"shuffleAddressList":"yes"}`)),
			[]string{inValue + `.shuffleAddressList: is "yes": it must be true or false`},
		},

		{
			"a penalty below zero", both, only(policy(weighted, `"error_utilization_penalty":-0.5`)),
			[]string{inPolicy + ".error_utilization_penalty: is -0.5: it must not be negative"},
		},
		{
			"a penalty without end", both, only(policy(weighted, `"error_utilization_penalty":"Infinity"`)),
			[]string{inPolicy + ".error_utilization_penalty: is +Inf: it must be a finite number"},
		},
		{
			"periods below zero", hand, only(policy(weighted, `"blackout_period":"-1s","weight_expiration_period":"-1s","weight_update_period":"-1s"`)),
			[]string{
				inPolicy + ".blackout_period: is negative",
				inPolicy + ".weight_expiration_period: is negative",
				inPolicy + ".weight_update_period: is negative",
			},
		},
		{
			"a penalty below zero, by name", both, only(named("weighted_round_robin", `{"errorUtilizationPenalty":-1}`)),
			[]string{inValue + ".errorUtilizationPenalty: is -1: it must not be negative"},
		},
		{
			"weighted_round_robin by name, with nonsense", both, only(named("weighted_round_robin", `{"blackoutPeriod":10,"weightExpirationPeriod":"1m",`+
				`"weightUpdatePeriod":null,"oobReportingPeriod":"s","errorUtilizationPenalty":"1","enableOobLoadReport":1}`)),
			[]string{
				inValue + `.blackoutPeriod: is 10: it must be a duration in seconds, such as "1.5s"`,
				inValue + `.enableOobLoadReport: is 1: it must be true or false`,
				inValue + `.errorUtilizationPenalty: is "1": it must be a number`,
				inValue + `.oobReportingPeriod: is "s": it must be a duration in seconds, such as "1.5s"`,
				inValue + `.weightExpirationPeriod: is "1m": it must be a duration in seconds, such as "1.5s"`,
				inValue + `.weightUpdatePeriod: is null: it must be a duration in seconds, such as "1.5s"`,
			},
		},
		{"periods below zero, by name", hand, only(named("weighted_round_robin", `{"blackoutPeriod":"-1s"}`)), []string{inValue + ".blackoutPeriod: is negative"}},

		{"wrr_locality by name, without child", both, only(named("xds_wrr_locality_experimental", `{}`)), []string{inValue + ".childPolicy: holds no policy"}},
		{
			"wrr_locality by name, with nonsense", both, only(named("xds_wrr_locality_experimental", `{"childPolicy":7}`)),
			[]string{inValue + ".childPolicy: is 7: it must be a list of policies, each an object of its name and its config"},
		},
		{
			"wrr_locality by name, with two in one", both, only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"pick_first":{},"round_robin":{}}]}`)),
			[]string{inValue + ".childPolicy[0]: names 2 policies: it must name one"},
		},
		{
			"wrr_locality by name, with what is not supported", both, only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"x":{}},{"y":{}}]}`)),
			[]string{inValue + `.childPolicy: holds no supported policy, only "x", "y"`},
		},
		{
			"wrr_locality by name, with a child that is refused", both, only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"pick_first":[]}]}`)),
			[]string{inValue + ".childPolicy[0].pick_first: is []: the config of pick_first must be an object"},
		},
		{
			"a custom policy that refuses its config", both, only(named("acme", `{"apples":"bad"}`)),
			[]string{inValue + ": is refused by acme: acme wants no bad apples"},
		},
		{
			"a custom policy that refuses its config, within a locality", both, only(within(named("acme", `{"apples":"bad"}`))),
			[]string{inPolicy + ".endpoint_picking_policy.policies[0].typed_extension_config.typed_config.value: is refused by acme: acme wants no bad apples"},
		},
		{
			"a custom policy that refuses its config, by name", both,
			only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"acme":{"apples":"bad"}},{"pick_first":{}}]}`)),
			[]string{inValue + ".childPolicy[0].acme: is refused by acme: acme wants no bad apples"},
		},
		{
			"only a policy that is not available", both, only(named("other", `{}`)),
			[]string{`load_balancing_policy: holds no supported policy, only TypedStruct "other": ` + supports},
		},
	} {
		for _, origin := range c.origins {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				_, err := resource.DecodeCluster([]byte(c.body), resource.Options{Origin: origin, Custom: acme})
				if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, c.want) {
					t.Errorf("refusals:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		}
	}
}

func TestRingHashByHandHashesAsEnvoyDoes(t *testing.T) {
	d, err := resource.DecodeCluster([]byte(only(policy(ringHash))), resource.Options{})
	want := []string{inPolicy + ".hash_function: is DEFAULT_HASH, which gRPC rejects from a management server: taken as XX_HASH, as Envoy does; write hash_function: XX_HASH"}
	if err != nil || !reflect.DeepEqual(d.Value.Policy, ring(1024, 4096)) || !reflect.DeepEqual(lines(d.Warnings), want) {
		t.Errorf("decoded %+v, %v", d, err)
	}
}

// An unknown field of a JSON config is one of the resource.
func TestUnknownFieldsOfPoliciesByName(t *testing.T) {
	body := []byte(only(named("ring_hash_experimental", `{"minRingSise":1}`)))
	const words = inPolicy + ".value.minRingSise: unknown field (did you mean minRingSize?)"
	d, err := resource.DecodeCluster(body, resource.Options{Lenient: true})
	if err != nil || !reflect.DeepEqual(lines(d.Warnings), []string{words + ": ignored"}) {
		t.Errorf("decoded %+v, %v", d, err)
	}
	_, err = resource.DecodeCluster(body, resource.Options{})
	if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, []string{words}) {
		t.Errorf("refusals %q", got)
	}
}

// What is stored can meet a daemon that has the policy no more.
func TestCustomPolicyThatIsGone(t *testing.T) {
	d, err := resource.DecodeCluster([]byte(only(named("acme", `{"a":1}`))), resource.Options{Custom: acme})
	if err != nil {
		t.Fatal(err)
	}
	_, err = resource.DecodeCluster(d.Raw, resource.Options{Format: resource.FormatProtobuf})
	want := []string{`load_balancing_policy: holds no supported policy, only TypedStruct "acme": ` + supports}
	if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, want) {
		t.Errorf("refusals %q, want %q", got, want)
	}
	bundled := []byte(bundle(typed(clusterType, only(named("acme", `{"a":1}`)))))
	if _, err := resource.DecodeBundle(bundled, resource.Options{}); err == nil {
		t.Error("a bundle takes what is not available")
	}
	b, err := resource.DecodeBundle(bundled, resource.Options{Custom: acme})
	if err != nil || !reflect.DeepEqual(b.Items[0].Cluster, d.Value) || !bytes.Equal(b.Items[0].Raw, d.Raw) {
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
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestPeriodsFromServer(t *testing.T) {
	a, err := anypb.New(&weightedv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod:          &durationpb.Duration{Seconds: -1},
		WeightExpirationPeriod:  &durationpb.Duration{Seconds: 1 << 60},
		WeightUpdatePeriod:      &durationpb.Duration{Seconds: 1, Nanos: -1},
		ErrorUtilizationPenalty: wrapperspb.Float(0.1),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := resource.Options{Origin: resource.FromServer, Format: resource.FormatProtobuf}
	d, err := resource.DecodeCluster(withPolicy(t, a), o)
	if err != nil {
		t.Fatal(err)
	}
	want := weightedPolicy(-time.Second, 1<<63-1, time.Second-1, float64(float32(0.1)))
	if !reflect.DeepEqual(d.Value.Policy, want) {
		t.Errorf("policy %s, want %s", spell(d.Value.Policy), spell(want))
	}
	o.Origin = resource.ByHand
	_, err = resource.DecodeCluster(withPolicy(t, a), o)
	got := refusals(t, err, "Cluster/orders")
	if len(got) != 3 || !strings.HasPrefix(got[0], inPolicy+".weight_expiration_period: is no duration: ") ||
		!strings.HasPrefix(got[1], inPolicy+".weight_update_period: is no duration: ") || got[2] != inPolicy+".blackout_period: is negative" {
		t.Errorf("refusals %q", got)
	}
}

func TestPolicyUnderAnotherURL(t *testing.T) {
	a := &anypb.Any{TypeUrl: "example.com/envoy.extensions.load_balancing_policies." + roundRobin}
	o := resource.Options{Format: resource.FormatProtobuf}
	if _, err := resource.DecodeCluster(withPolicy(t, a), o); err != nil {
		t.Error(err)
	}
	o.Origin = resource.FromServer
	_, err := resource.DecodeCluster(withPolicy(t, a), o)
	if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, []string{"load_balancing_policy: holds no supported policy, only RoundRobin: " + supports}) {
		t.Errorf("refusals %q", got)
	}
}

func TestPoliciesThatAreNoMessagesOfTheirTypes(t *testing.T) {
	for _, name := range []string{
		"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct",
		"envoy.extensions.load_balancing_policies." + weighted,
		"envoy.extensions.load_balancing_policies." + leastRequest,
		"envoy.extensions.load_balancing_policies." + ringHash,
		"envoy.extensions.load_balancing_policies." + pickFirst,
	} {
		body := withPolicy(t, &anypb.Any{TypeUrl: "type.googleapis.com/" + name, Value: []byte{0xff}})
		_, err := resource.DecodeCluster(body, resource.Options{Origin: resource.FromServer, Format: resource.FormatProtobuf})
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
		if err != nil {
			t.Fatal(err)
		}
		_, err = resource.DecodeCluster(withPolicy(t, a), resource.Options{Origin: resource.FromServer, Format: resource.FormatProtobuf, Custom: acme})
		want := []string{inPolicy + ".value: cannot be written as JSON: it holds a number that is none, or a value that is absent"}
		if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, want) {
			t.Errorf("refusals %q", got)
		}
	}
}
