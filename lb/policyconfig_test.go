package lb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// These tests decode clusters with the policies that lbd has, so that a policy's
// config, its rules and its proto converter are held together.

const (
	protoRoundRobin   = "round_robin.v3.RoundRobin"
	protoWRRLocality  = "wrr_locality.v3.WrrLocality"
	protoRingHash     = "ring_hash.v3.RingHash"
	protoWeighted     = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
	protoLeastRequest = "least_request.v3.LeastRequest"
	protoPickFirst    = "pick_first.v3.PickFirst"
	supports          = "supported are RoundRobin, ClientSideWeightedRoundRobin, LeastRequest, RingHash and PickFirst of " +
		"envoy.extensions.load_balancing_policies, alone or as the endpoint_picking_policy of its WrrLocality, " +
		"and a TypedStruct of a policy that is there by gRPC's name"
	// inPolicy is where the config of the only policy stands.
	inPolicy = "load_balancing_policy.policies[0].typed_extension_config.typed_config"
)

// edsCluster is the JSON of a Cluster with more fields.
func edsCluster(more ...string) string {
	fields := append([]string{`"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}}`}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

// list is the JSON of load_balancing_policy's list, with these typed_configs.
func list(configs ...string) string {
	for i, c := range configs {
		configs[i] = `{"typed_extension_config":{"name":"x","typed_config":` + c + `}}`
	}
	return `{"policies":[` + strings.Join(configs, ",") + `]}`
}

// anyOf is the JSON of an Any with a policy.
func anyOf(name string, more ...string) string {
	fields := append([]string{`"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.` + name + `"`}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

func choosing(list string) string { return `"load_balancing_policy":` + list }

// byName is the JSON of a policy by gRPC's name, with its config.
func byName(name, config string) string {
	return `{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"type.googleapis.com/` + name + `","value":` + config + `}`
}

// onlyPolicy is a cluster with this policy alone.
func onlyPolicy(config string) string { return edsCluster(choosing(list(config))) }

// inLocality is wrr_locality with this policy alone.
func inLocality(config string) string {
	return anyOf(protoWRRLocality, `"endpoint_picking_policy":`+list(config))
}

// custom is a policy in grpc's registry.
type custom struct {
	balancer.Builder

	name string
}

func (c custom) Name() string { return c.name }

// acme is one that rejects what is "bad".
type acme struct{ custom }

func (acme) ParseConfig(config json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if strings.Contains(string(config), "bad") {
		return nil, errors.New("acme wants no bad apples")
	}
	return nil, nil
}

func init() {
	balancer.Register(acme{custom{name: "acme"}})
	balancer.Register(custom{name: "idle"}) // takes no config
}

func ringOf(least, most uint64) resource.Policy {
	return resource.Policy{Name: ringhash.Name, Config: fmt.Sprintf(`{"maxRingSize":%d,"minRingSize":%d}`, most, least)}
}

func leastOf(n uint32) resource.Policy {
	return resource.Policy{Name: leastrequest.Name, Config: fmt.Sprintf(`{"choiceCount":%d}`, n)}
}

func weightedOf(blackout, expiration, update string, penalty float64) resource.Policy {
	return resource.Policy{
		Name: weightedroundrobin.Name,
		Config: fmt.Sprintf(`{"blackoutPeriod":%q,"errorUtilizationPenalty":%v,"weightExpirationPeriod":%q,"weightUpdatePeriod":%q}`,
			blackout, penalty, expiration, update),
	}
}

func firstOf(shuffle bool) resource.Policy {
	return resource.Policy{Name: pickfirst.Name, Config: fmt.Sprintf(`{"shuffleAddressList":%t}`, shuffle)}
}

// spell writes a policy with its child.
func spell(p resource.Policy) string {
	if p.Child != nil {
		return fmt.Sprintf("%s %q (%s)", p.Name, p.Config, spell(*p.Child))
	}
	return fmt.Sprintf("%s %q", p.Name, p.Config)
}

func wordsOf(problems []decode.Problem) (words []string) {
	for _, p := range problems {
		words = append(words, p.String())
	}
	slices.Sort(words)
	return words
}

// TestPolicyConfigs decodes what is accepted.
func TestPolicyConfigs(t *testing.T) {
	var (
		robin    = resource.Policy{Name: resource.PolicyRoundRobin}
		standard = weightedOf("10s", "180s", "1s", 1)
		inValue  = inPolicy + ".value"
	)
	for _, c := range []struct {
		name, body string
		want       resource.Policy
		byHand     []string // warnings by hand alone
		both       []string // warnings for every source
	}{
		{name: "lb_policy ring hash", body: edsCluster(`"lb_policy":"RING_HASH"`), want: ringOf(1024, 4096)},
		{
			name: "lb_policy ring hash with sizes", body: edsCluster(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":7,"maximum_ring_size":9}`),
			want: ringOf(7, 9),
		},
		{
			name: "lb_policy least request", body: edsCluster(`"lb_policy":"LEAST_REQUEST"`), want: leastOf(2),
		},
		{
			name: "lb_policy least request with choices", body: edsCluster(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":3,"slow_start_config":{}}`),
			want: leastOf(3), byHand: []string{"least_request_lb_config.slow_start_config: is not applied"},
		},
		{
			name: "the config of another lb_policy", body: edsCluster(`"least_request_lb_config":{"choice_count":1}`), want: resource.RoundRobinPolicy(),
			byHand: []string{"least_request_lb_config: is not applied: it belongs to another lb_policy"},
		},
		{
			name: "the config of an lb_policy that does not count", body: edsCluster(`"lb_policy":"RING_HASH","ring_hash_lb_config":{}`, choosing(list(anyOf(protoRoundRobin)))),
			want: robin, byHand: []string{"lb_policy: RING_HASH is not applied: load_balancing_policy counts", "ring_hash_lb_config: is not applied: it belongs to another lb_policy"},
		},

		{
			name: "round_robin", body: onlyPolicy(anyOf(protoRoundRobin, `"slow_start_config":{}`)), want: robin,
			byHand: []string{inPolicy + ".slow_start_config: is not applied"},
		},
		{name: "round_robin by name", body: onlyPolicy(byName("round_robin", `{}`)), want: robin},
		{
			name: "round_robin by name, with what it does not have", body: edsCluster(choosing(list(byName("round_robin", `{"a":1}`)))), want: robin,
			byHand: []string{inValue + ".a: unknown field of round_robin: ignored"},
		},

		{name: "ring_hash", body: onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH"`)), want: ringOf(1024, 4096)},
		{name: "ring_hash as large as can be", body: onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH","minimum_ring_size":4096`)), want: ringOf(4096, 4096)},
		{
			name: "ring_hash beyond the cap", body: onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH","minimum_ring_size":8388608,"maximum_ring_size":"8388608","use_hostname_for_hashing":true`)),
			want: ringOf(4096, 4096),
			byHand: []string{
				inPolicy + ".use_hostname_for_hashing: is not applied",
				inPolicy + ".minimum_ring_size: is 8388608: reduced to 4096, the maximum",
				inPolicy + ".maximum_ring_size: is 8388608: reduced to 4096, the maximum",
			},
		},
		{name: "ring_hash of zeros", body: onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH","minimum_ring_size":0,"maximum_ring_size":0`)), want: ringOf(1024, 4096)},
		{name: "ring_hash by name", body: onlyPolicy(byName("ring_hash_experimental", `{}`)), want: ringOf(1024, 4096)},
		{name: "ring_hash by name, with sizes", body: onlyPolicy(byName("ring_hash_experimental", `{"minRingSize":5,"MAXRINGSIZE":6,"requestHashHeader":null}`)), want: ringOf(5, 6)},
		{
			name: "ring_hash by name, with a header", body: onlyPolicy(byName("ring_hash_experimental", `{"requestHashHeader":"X-User"}`)), want: ringOf(1024, 4096),
			both: []string{inValue + ".requestHashHeader: is not applied: the hash is the pick's own"},
		},

		{name: "least_request", body: onlyPolicy(anyOf(protoLeastRequest)), want: leastOf(2)},
		{name: "least_request of ten", body: onlyPolicy(anyOf(protoLeastRequest, `"choice_count":10`)), want: leastOf(10)},
		{
			name: "least_request of more", body: onlyPolicy(anyOf(protoLeastRequest, `"choice_count":11,"enable_full_scan":true`)), want: leastOf(10),
			byHand: []string{
				inPolicy + ".choice_count: is 11: reduced to 10, the maximum",
				inPolicy + ".enable_full_scan: is not applied",
			},
		},
		{
			name: "least_request of none", body: onlyPolicy(anyOf(protoLeastRequest, `"choice_count":0`)), want: leastOf(2),
			byHand: []string{inPolicy + ".choice_count: 0 means the default (2), as in gRPC"},
		},
		{name: "least_request by name", body: onlyPolicy(byName("least_request_experimental", `{"choiceCount":4}`)), want: leastOf(4)},

		{name: "pick_first", body: onlyPolicy(anyOf(protoPickFirst)), want: firstOf(false)},
		{name: "pick_first, shuffled", body: onlyPolicy(anyOf(protoPickFirst, `"shuffle_address_list":true`)), want: firstOf(true)},
		{name: "pick_first by name", body: onlyPolicy(byName("pick_first", `{"shuffleAddressList":true}`)), want: firstOf(true)},
		{
			name: "pick_first by name, without a config", want: firstOf(false),
			body: onlyPolicy(`{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct","type_url":"pick_first"}`),
		},

		{name: "weighted_round_robin", body: onlyPolicy(anyOf(protoWeighted)), want: standard},
		{
			name: "weighted_round_robin in all", want: weightedOf("1s", "2s", "3s", 0.5),
			body:   onlyPolicy(anyOf(protoWeighted, `"blackout_period":"1s","weight_expiration_period":"2s","weight_update_period":"3s","error_utilization_penalty":0.5,"oob_reporting_period":"1s"`)),
			byHand: []string{inPolicy + ".oob_reporting_period: is not applied: loads are those that are reported with the outcomes of picks"},
		},
		{
			name: "weighted_round_robin of zeros", want: standard,
			body: onlyPolicy(anyOf(protoWeighted, `"blackout_period":"0s","weight_expiration_period":"0s","weight_update_period":"0s","error_utilization_penalty":0`)),
			byHand: []string{
				inPolicy + ".blackout_period: 0s means the default (10s), as in gRPC",
				inPolicy + ".weight_expiration_period: 0s means the default (3m0s), as in gRPC",
				inPolicy + ".weight_update_period: 0s means the default (1s), as in gRPC",
				inPolicy + ".error_utilization_penalty: 0 means the default (1), as in gRPC",
			},
		},
		{
			name: "weighted_round_robin updated too often", want: weightedOf("10s", "180s", "0.100s", 1),
			body:   onlyPolicy(anyOf(protoWeighted, `"weight_update_period":"0.099s","enable_oob_load_report":true,"slow_start_config":{}`)),
			byHand: []string{inPolicy + ".enable_oob_load_report: is not applied: loads are those that are reported with the outcomes of picks", inPolicy + ".weight_update_period: is 99ms: raised to 100ms, the minimum", inPolicy + ".slow_start_config: is not applied"},
		},
		{name: "weighted_round_robin by name", body: onlyPolicy(byName("weighted_round_robin", `{}`)), want: standard},
		{
			name: "weighted_round_robin by name, in all", want: weightedOf("0s", "2.500s", "0.100s", 0),
			body: onlyPolicy(byName("weighted_round_robin", `{"enableOobLoadReport":true,"oobReportingPeriod":"1s","blackoutPeriod":"0s",`+
				`"weightExpirationPeriod":"2.5s","weightUpdatePeriod":"0s","errorUtilizationPenalty":0}`)),
			byHand: []string{inValue + ".weightUpdatePeriod: is 0s: raised to 100ms, the minimum"},
			both:   []string{inValue + ".enableOobLoadReport: is not applied: loads are those that are reported with the outcomes of picks"},
		},

		{name: "wrr_locality of ring_hash", body: onlyPolicy(inLocality(anyOf(protoRingHash, `"hash_function":"XX_HASH"`))), want: within(ringOf(1024, 4096))},
		{name: "wrr_locality of least_request", body: onlyPolicy(inLocality(anyOf(protoLeastRequest))), want: within(leastOf(2))},
		{name: "wrr_locality of pick_first", body: onlyPolicy(inLocality(anyOf(protoPickFirst))), want: within(firstOf(false))},
		{name: "wrr_locality of weighted_round_robin", body: onlyPolicy(inLocality(anyOf(protoWeighted))), want: within(standard)},
		{name: "wrr_locality of a policy by name", body: onlyPolicy(inLocality(byName("least_request_experimental", `{}`))), want: within(leastOf(2))},
		{
			name: "wrr_locality by name", want: within(leastOf(3)),
			body: onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":[{"none":{}},{"least_request_experimental":{"choiceCount":3}},{"a":1,"b":2}]}`)),
			both: []string{inValue + `.childPolicy: "none": not supported, and skipped`},
		},

		{
			name: "a custom policy", body: onlyPolicy(byName("acme", `{"b":[1,"<x>"],"a":{"c":null}}`)),
			want: resource.Policy{Name: "acme", Config: `{"a":{"c":null},"b":[1,"\u003cx\u003e"]}`},
		},
		{
			name: "a custom policy without a config", want: resource.Policy{Name: "acme", Config: "null"},
			body: onlyPolicy(`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"a/b/acme"}`),
		},
		{
			name: "a custom policy within a locality", body: onlyPolicy(inLocality(byName("acme", `{}`))),
			want: within(resource.Policy{Name: "acme", Config: "{}"}),
		},
		{
			name: "a custom policy that takes no config", body: onlyPolicy(byName("idle", `{}`)),
			want: resource.Policy{Name: "idle", Config: "{}"},
		},
		{
			name: "a custom policy that takes no config, and has none", want: resource.Policy{Name: "idle", Config: "null"},
			body: onlyPolicy(`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"a/b/idle"}`),
		},
		{
			name: "a custom policy that takes no config, with one", body: onlyPolicy(byName("idle", `{"a":1}`)),
			want: resource.Policy{Name: "idle", Config: `{"a":1}`},
			both: []string{inValue + ": is ignored: idle takes no config"},
		},
		{
			name: "ring_hash by name, with an unknown field", body: onlyPolicy(byName("ring_hash_experimental", `{"minRingSise":1}`)), want: ringOf(1024, 4096),
			both: []string{inValue + ".minRingSise: unknown field (did you mean minRingSize?): ignored"},
		},
		{
			name: "a name that differs in case is another", want: robin,
			body: edsCluster(choosing(list(byName("ACME", `{}`), byName("Round_Robin", `{}`), byName("", `{}`), anyOf(protoRoundRobin)))),
			both: []string{`load_balancing_policy: TypedStruct "ACME", TypedStruct "Round_Robin", TypedStruct "": not supported, and skipped`},
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				o := decode.Options{Origin: origin, Policies: lb.PolicyTraits, Lenient: true}
				d, err := decode.One(resource.TypeCluster, []byte(c.body), o)
				noError(t, err)
				if spell(d.Cluster.Policy) != spell(c.want) {
					t.Errorf("policy %s, want %s", spell(d.Cluster.Policy), spell(c.want))
				}
				want := slices.Clone(c.both)
				if origin == decode.ByHand {
					want = append(want, c.byHand...)
				}
				slices.Sort(want)
				if got := wordsOf(d.Warnings); !slices.Equal(got, want) {
					t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				o.Format = decode.FormatProtobuf
				again, err := decode.One(resource.TypeCluster, d.Raw, o)
				if err != nil || !reflect.DeepEqual(again.Cluster, d.Cluster) || !bytes.Equal(again.Raw, d.Raw) {
					t.Errorf("raw: %+v, %v", again, err)
				}
			})
		}
	}
}
