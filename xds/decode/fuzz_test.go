package decode_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// fuzzDecoder fuzzes a decoder in all formats and of both origins: what it accepts can be
// decoded again from Raw, with the same result, and passes check.
func fuzzDecoder(f *testing.F, kind resource.Type, check func(t *testing.T, origin decode.Origin, v, again resource.Item), bodies ...string) {
	for _, body := range bodies {
		raw := []byte(body)
		if d, err := decode.One(kind, raw, decode.Options{Format: decode.FormatYAML, Name: nameFor(body), Policies: acme, Lenient: true}); err == nil {
			raw = d.Raw
		}
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			f.Add([]byte(body), uint8(decode.FormatJSON), uint8(origin))
			f.Add([]byte(body), uint8(decode.FormatYAML), uint8(origin))
			f.Add([]byte(body), uint8(decode.FormatText), uint8(origin))
			f.Add(raw, uint8(decode.FormatProtobuf), uint8(origin))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, format, origin uint8) {
		o := decode.Options{Format: decode.Format(format % 4), Origin: decode.Origin(origin % 2), Name: "orders", Policies: acme, Lenient: origin&2 != 0}
		d, err := decode.One(kind, body, o)
		if err != nil {
			expected(t, err)
			o.Name = ""
			if d, err = decode.One(kind, body, o); err != nil {
				expected(t, err)
				return
			}
		}
		again, err := decode.One(kind, d.Raw, decode.Options{Format: decode.FormatProtobuf, Origin: o.Origin, Policies: acme})
		if err == nil {
			again.Shareable = d.Shareable // unknown fields of JSON are not in Raw
		}
		if err != nil || !reflect.DeepEqual(again.Item, d.Item) {
			t.Fatalf("raw of %q: %+v, %v, want %+v", body, again, err, d)
		}
		check(t, o.Origin, d.Item, again.Item)
	})
}

func FuzzDecodeAssignment(f *testing.F) {
	fuzzDecoder(f, resource.TypeAssignment, func(t *testing.T, _ decode.Origin, i, again resource.Item) {
		a := i.Assignment
		if again.Assignment.Reuse(a) != a {
			t.Fatalf("%+v: the same again is not the same", a)
		}
		sum := 0
		for _, l := range a.Localities {
			if l.Weight == 0 {
				t.Fatalf("%+v: a locality of weight 0", a)
			}
			for _, e := range l.Endpoints {
				if len(e.Addresses) == 0 || e.Weight == 0 || e.Locality != l.ID {
					t.Fatalf("endpoint %+v", e)
				}
				if e.Usable() {
					sum++
				}
			}
		}
		if sum != a.Usable() {
			t.Fatalf("%+v: %d usable endpoints, counted %d", a, sum, a.Usable())
		}
	}, envoyFile, handwritten, "{}",
		localities(locality("a", 0, 3, endpoint("h", 80), also("i", "j")), locality("b", 1, 1)),
		`["10.0.0.1:80 2 eu/a", "[::1]:80"]`, "10.0.0.1:80 2 eu/a\n# us\n[::1]:80",
		drop("throttle", 7, `"MILLION"`),
		`{"resources":[{"@type":"`+assignmentType+`","cluster_name":"orders","foo":1}]}`,
	)
}

func FuzzDecodeCluster(f *testing.F) {
	fuzzDecoder(f, resource.TypeCluster, func(t *testing.T, _ decode.Origin, i, _ resource.Item) {
		c := i.Cluster
		for p := &c.Policy; p != nil; p = p.Child {
			if p.Name == "" || c.Name == "" {
				t.Fatalf("%+v", c)
			}
		}
	},
		eds(), eds(choose(policies(policy(wrr, `"endpoint_picking_policy":`+policies(policy(roundRobin))), policy(ringHash)))),
		eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"none"}}}`, `"circuit_breakers":{"thresholds":[{"max_requests":7}]}`),
		eds(`"outlier_detection":{"interval":"1s"}`, `"lrs_server":{"self":{}}`, `"foo":1`),
		eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":7}`, `"outlier_detection":{"enforcing_failure_percentage":9,"max_ejection_time":"3s"}`),
		eds(`"lb_policy":"LEAST_REQUEST","least_request_lb_config":{"choice_count":3}`),
		dnsSocket(`{"address":"::1","port_value":80}`), aggregate(`["a","b","a"]`),
		only(policy(weighted, `"blackout_period":"1s","error_utilization_penalty":0.5`)), only(within(policy(leastRequest, `"choice_count":3`))),
		only(named("weighted_round_robin", `{"blackoutPeriod":"1.5s"}`)), only(named("ring_hash_experimental", `{"minRingSize":7,"requestHashHeader":"x"}`)),
		only(named("xds_wrr_locality_experimental", `{"childPolicy":[{"x":{}},{"pick_first":{"shuffleAddressList":true}}]}`)), only(named("acme", `{"a":[1,null]}`)),
	)
}

// expected takes the two errors that a body may be refused with.
func expected(t *testing.T, err error) {
	t.Helper()
	var syntax *decode.SyntaxError
	var invalid *decode.InvalidError
	switch {
	case errors.As(err, &syntax):
		if syntax.Reason == "" {
			t.Fatal("a SyntaxError without reason")
		}
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			if p.Reason == "" || p.Resource == "" || strings.Contains(p.Reason, "panicked") {
				t.Fatalf("problem %+v", p)
			}
		}
		if len(invalid.Problems) == 0 || len(invalid.Problems) > decode.MaxProblems+1 {
			t.Fatalf("%d problems", len(invalid.Problems))
		}
	default:
		t.Fatalf("err = %v", err)
	}
}

func FuzzDecodeBundle(f *testing.F) {
	for _, format := range []decode.Format{decode.FormatJSON, decode.FormatYAML} {
		for _, body := range []string{
			someBundle, envoyClusters, envoyFile, eds(), handwritten, typed(clusterType, eds()), `{"resources":[]}`,
			typed(responseType, someBundle), bundle(`{"@type":"` + wrapperType + `","resource":` + typed(clusterType, eds(`"foo":1`)) + `}`),
			api(rds), routes(acting(`"cluster":"a"`)), bundle(typed(listenerType, api(rds, filters(routed))), typed(routesType, routes(matching(`"path":"/a"`)))),
			bundle(typed(listenerType, `{"name":"l"}`), typed(clusterType, `{"type":7}`), "7", `{}`),
		} {
			f.Add([]byte(body), uint8(format), true, false)
			f.Add([]byte(body), uint8(format), false, true)
		}
	}
	f.Add(someBinary(f), uint8(decode.FormatProtobuf), true, true)
	f.Fuzz(func(t *testing.T, body []byte, format uint8, bare, strict bool) {
		o := decode.Options{Format: decode.Format(format % 3), Bare: bare, Lenient: strict, Policies: acme}
		b, err := decode.All(body, o)
		if err != nil {
			expected(t, err)
			if invalid, ok := errors.AsType[*decode.InvalidError](err); ok {
				decode.Place(body, o.Format, false, invalid.Problems)
			}
			return
		}
		keys := map[resource.Key]bool{}
		for _, i := range b.Items {
			if keys[i.Key] || i.Key.Name == "" {
				t.Fatalf("%q: key %v", body, i.Key)
			}
			keys[i.Key] = true
			again, err := decode.Resource(i.Key.Type, &anypb.Any{TypeUrl: i.Key.Type.URL(), Value: i.Raw}, decode.Options{Policies: acme})
			again.Field, again.Unapplied, again.Shareable = i.Field, nil, i.Shareable
			if err != nil || !reflect.DeepEqual(again, i) {
				t.Fatalf("raw of %q: %+v, %v, want %+v", body, again, err, i)
			}
		}
	})
}
