package lb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestPolicyConfigRules decodes what is rejected.
func TestPolicyConfigRules(t *testing.T) {
	both := []decode.Origin{decode.ByHand, decode.FromServer}
	hand, server := both[:1], both[1:]
	inValue := inPolicy + ".value"
	for _, c := range []struct {
		name    string
		origins []decode.Origin
		body    string
		want    []string
	}{
		{
			"lb_policy ring hash of another function", both, edsCluster(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"hash_function":"MURMUR_HASH_2"}`),
			[]string{"ring_hash_lb_config.hash_function: MURMUR_HASH_2 is not supported: supported is XX_HASH"},
		},
		{
			"lb_policy ring hash upside down", both, edsCluster(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"maximum_ring_size":1023}`),
			[]string{"ring_hash_lb_config.minimum_ring_size: is 1024, more than the maximum, 1023"},
		},
		{
			"lb_policy ring hash too large", both, edsCluster(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":8388609,"maximum_ring_size":8388610}`),
			[]string{
				"ring_hash_lb_config.minimum_ring_size: is 8388609: it must be at most 8388608",
				"ring_hash_lb_config.maximum_ring_size: is 8388610: it must be at most 8388608",
			},
		},
		{
			"lb_policy least request of one", both, edsCluster(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":1}`),
			[]string{"least_request_lb_config.choice_count: is 1: it must be at least 2"},
		},
		{
			"lb_policy least request of none", both, edsCluster(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":0}`),
			[]string{"least_request_lb_config.choice_count: is 0: it must be at least 2"},
		},
		{"cluster provided", both, edsCluster(`"lb_policy":"CLUSTER_PROVIDED"`), []string{"lb_policy: CLUSTER_PROVIDED is not supported: " + "supported are ROUND_ROBIN, LEAST_REQUEST and RING_HASH"}},

		{"ring_hash of the default function", server, onlyPolicy(anyOf(protoRingHash)), []string{inPolicy + ".hash_function: DEFAULT_HASH is not supported: supported is XX_HASH"}},
		{
			"ring_hash of another function", both, onlyPolicy(anyOf(protoRingHash, `"hash_function":"MURMUR_HASH_2"`)),
			[]string{inPolicy + ".hash_function: MURMUR_HASH_2 is not supported: supported is XX_HASH"},
		},
		{
			"ring_hash upside down", both, onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH","minimum_ring_size":10,"maximum_ring_size":9`)),
			[]string{inPolicy + ".minimum_ring_size: is 10, more than the maximum, 9"},
		},
		{
			"ring_hash with a maximum of zero", both, onlyPolicy(anyOf(protoRingHash, `"hash_function":"XX_HASH","minimum_ring_size":4097,"maximum_ring_size":0`)),
			[]string{inPolicy + ".minimum_ring_size: is 4097, more than the maximum, 4096"},
		},
		{
			"ring_hash by name, too large", both, onlyPolicy(byName("ring_hash_experimental", `{"minRingSize":1,"maxRingSize":8388609}`)),
			[]string{inValue + ".maxRingSize: is 8388609: it must be at most 8388608"},
		},
		{
			"ring_hash by name, with nonsense", both, onlyPolicy(byName("ring_hash_experimental", `{"minRingSize":-1,"maxRingSize":"9","requestHashHeader":7}`)),
			[]string{
				inValue + `.maxRingSize: is "9": it must be a whole number of at least 0`,
				inValue + ".minRingSize: is -1: it must be a whole number of at least 0",
				inValue + ".requestHashHeader: is 7: it must be a string",
			},
		},
		{
			"ring_hash by a header that is none", both, onlyPolicy(byName("ring_hash_experimental", `{"requestHashHeader":"a b"}`)),
			[]string{inValue + `.requestHashHeader: is "a b", which cannot name a header`},
		},
		{
			"ring_hash by a binary header", both, onlyPolicy(byName("ring_hash_experimental", `{"requestHashHeader":"user-bin"}`)),
			[]string{inValue + `.requestHashHeader: is "user-bin": a binary header cannot be hashed`},
		},

		{"least_request of one", both, onlyPolicy(anyOf(protoLeastRequest, `"choice_count":1`)), []string{inPolicy + ".choice_count: is 1: it must be at least 2"}},
		{"least_request by name, of none", both, onlyPolicy(byName("least_request_experimental", `{"choiceCount":0}`)), []string{inValue + ".choiceCount: is 0: it must be at least 2"}},
		{
			"least_request by name, of a part", both, onlyPolicy(byName("least_request_experimental", `{"choiceCount":2.5}`)),
			[]string{inValue + ".choiceCount: is 2.5: it must be a whole number from 0 to 4294967295"},
		},
		{
			"pick_first by name, with nonsense", both, onlyPolicy(byName("pick_first", `{"shuffleAddressList":"yes"}`)),
			[]string{inValue + `.shuffleAddressList: is "yes": it must be true or false`},
		},

		{
			"a penalty below zero", both, onlyPolicy(anyOf(protoWeighted, `"error_utilization_penalty":-0.5`)),
			[]string{inPolicy + ".error_utilization_penalty: is -0.5: it must not be negative"},
		},
		{
			"a penalty without end", both, onlyPolicy(anyOf(protoWeighted, `"error_utilization_penalty":"Infinity"`)),
			[]string{inPolicy + ".error_utilization_penalty: is +Inf: it must be a finite number"},
		},
		{
			"periods below zero", hand, onlyPolicy(anyOf(protoWeighted, `"blackout_period":"-1s","weight_expiration_period":"-1s","weight_update_period":"-1s"`)),
			[]string{
				inPolicy + ".blackout_period: is negative",
				inPolicy + ".weight_expiration_period: is negative",
				inPolicy + ".weight_update_period: is negative",
			},
		},
		{
			"a penalty below zero, by name", both, onlyPolicy(byName("weighted_round_robin", `{"errorUtilizationPenalty":-1}`)),
			[]string{inValue + ".errorUtilizationPenalty: is -1: it must not be negative"},
		},
		{
			"weighted_round_robin by name, with nonsense", both, onlyPolicy(byName("weighted_round_robin", `{"blackoutPeriod":10,"weightExpirationPeriod":"1m",`+
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
		{"periods below zero, by name", hand, onlyPolicy(byName("weighted_round_robin", `{"blackoutPeriod":"-1s"}`)), []string{inValue + ".blackoutPeriod: is negative"}},

		{"wrr_locality by name, without child", both, onlyPolicy(byName("xds_wrr_locality_experimental", `{}`)), []string{inValue + ".childPolicy: holds no policy"}},
		{
			"wrr_locality by name, with nonsense", both, onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":7}`)),
			[]string{inValue + ".childPolicy: is 7: it must be a list of policies, each an object of its name and its config"},
		},
		{
			"wrr_locality by name, with two in one", both, onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":[{"pick_first":{},"round_robin":{}}]}`)),
			[]string{inValue + ".childPolicy[0]: names 2 policies: it must name one"},
		},
		{
			"wrr_locality by name, with what is not supported", both, onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":[{"x":{}},{"y":{}}]}`)),
			[]string{inValue + `.childPolicy: holds no supported policy, only "x", "y"`},
		},
		{
			"wrr_locality by name, with a child that is refused", both, onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":[{"pick_first":[]}]}`)),
			[]string{inValue + ".childPolicy[0].pick_first: is []: the config of pick_first must be an object"},
		},
		{
			"a custom policy that refuses its config", both, onlyPolicy(byName("acme", `{"apples":"bad"}`)),
			[]string{inValue + ": is rejected by acme: acme wants no bad apples"},
		},
		{
			"a custom policy that refuses its config, within a locality", both, onlyPolicy(inLocality(byName("acme", `{"apples":"bad"}`))),
			[]string{inPolicy + ".endpoint_picking_policy.policies[0].typed_extension_config.typed_config.value: is rejected by acme: acme wants no bad apples"},
		},
		{
			"a custom policy that refuses its config, by name", both,
			onlyPolicy(byName("xds_wrr_locality_experimental", `{"childPolicy":[{"acme":{"apples":"bad"}},{"pick_first":{}}]}`)),
			[]string{inValue + ".childPolicy[0].acme: is rejected by acme: acme wants no bad apples"},
		},
		{
			"only a policy that is not available", both, onlyPolicy(byName("other", `{}`)),
			[]string{`load_balancing_policy: holds no supported policy, only TypedStruct "other": ` + supports},
		},
		{
			"lb_policy least request beside load_balancing_policy", server,
			edsCluster(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":1}`, choosing(list(anyOf(protoRoundRobin)))),
			[]string{"least_request_lb_config.choice_count: is 1: it must be at least 2"},
		},
		{
			"an unknown field by name", hand, onlyPolicy(byName("ring_hash_experimental", `{"minRingSise":1}`)),
			[]string{inValue + ".minRingSise: unknown field (did you mean minRingSize?)"},
		},
	} {
		for _, origin := range c.origins {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				_, err := decode.One(resource.TypeCluster, []byte(c.body), decode.Options{Origin: origin, Policies: lb.PolicyTraits})
				invalid, _ := errors.AsType[*decode.InvalidError](err)
				if invalid == nil {
					t.Fatalf("decoded: %v", err)
				}
				var got []string
				for _, p := range invalid.Problems {
					got = append(got, p.String())
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("refusals:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		}
	}
}
