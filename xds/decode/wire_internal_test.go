package decode

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/resource"
)

// ordinaryAssignment is an assignment as control planes and people write it.
type ordinaryAssignment struct {
	name string
	body []byte
}

func ordinary(tb testing.TB) []ordinaryAssignment {
	tb.Helper()
	const (
		plain    = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":8080}}}}`
		full     = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.2","port_value":8080}},"hostname":"a.example.com"},"health_status":"HEALTHY","load_balancing_weight":3}`
		draining = `{"endpoint":{"address":{"socket_address":{"address":"host-3.example.com","port_value":65535}}},"health_status":"DRAINING"}`
		more     = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.4","port_value":80}},"additional_addresses":[` +
			`{"address":{"socket_address":{"address":"2001:db8::4","port_value":80}}},{"address":{"socket_address":{"address":"::1","port_value":81}}}]}}`
		metadata = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.5","port_value":80}}},"metadata":{"filter_metadata":{` +
			`"envoy.lb":{"hash_key":"key-5","version":"1.2","canary":false,"rank":3.5,"none":null,"list":[1,"",{"a":{}}]},"istio":{"workload":"w;ns;app"},"lbd":{"ttl":"30s"}}}}`
		all    = plain + "," + full + "," + draining + "," + more + "," + metadata
		placed = `"locality":{"region":"r","zone":"a","sub_zone":"s"},"load_balancing_weight":100,`
	)
	var list []ordinaryAssignment
	for _, c := range []struct{ name, text string }{
		{"empty", `{}`},
		{"one endpoint", `{"endpoints":[{` + placed + `"lb_endpoints":[` + plain + `]}]}`},
		{"all fields", `{"endpoints":[{` + placed + `"lb_endpoints":[` + all + `]}]}`},
		{"by hand", `{"endpoints":[{"lb_endpoints":[` + all + `]}]}`},
		{"priorities", `{"endpoints":[{` + placed + `"lb_endpoints":[` + plain + `]},{"locality":{"zone":"b"},"priority":1,"load_balancing_weight":1,"lb_endpoints":[` + full + `]}]}`},
		{"without endpoints", `{"endpoints":[{` + placed + `"lb_endpoints":[]}]}`},
		{"left out", `{"endpoints":[{` + placed + `"lb_endpoints":[` + plain + `]},{"locality":{"zone":"b"},"load_balancing_weight":0,"lb_endpoints":[` + plain + "," + full + `]}]}`},
		{"drops", `{"endpoints":[{` + placed + `"lb_endpoints":[` + plain + `]}],"policy":{"drop_overloads":[` +
			`{"category":"lb","drop_percentage":{"numerator":5}},{"category":"throttle","drop_percentage":{"numerator":7,"denominator":"MILLION"}}]}}`},
		{"Envoy's factor", `{"endpoints":[{` + placed + `"lb_endpoints":[` + plain + `]}],"policy":{"overprovisioning_factor":140}}`},
	} {
		d, err := One(resource.TypeAssignment, []byte(c.text), Options{Name: "orders", reflective: true})
		if err != nil {
			tb.Fatalf("%s: %v", c.name, err)
		}
		list = append(list, ordinaryAssignment{c.name, d.Raw})
	}
	return list
}

// TestOrdinaryAssignmentsTakeOnePass: the reflective decoder would have the same result,
// and take many times as long.
func TestOrdinaryAssignmentsTakeOnePass(t *testing.T) {
	for _, c := range append(ordinary(t), ordinaryAssignment{"another order", anotherOrder()}) {
		for _, o := range rules {
			if c.name == "by hand" && o.Origin == FromServer { // rejected: the locality has no name
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				r := o.begin(resource.Key{Type: resource.TypeAssignment})
				if !readAssignment(r, &resource.Item{}, c.body) {
					t.Errorf("gave up with %+v", o)
				}
				d := compareDecoders(t, c.body, o)
				if d == nil {
					t.Errorf("rejected with %+v", o)
				} else if bytes.Equal(d.Raw, c.body) != (c.name != "another order") {
					t.Errorf("Raw = %q, want %q", d.Raw, c.body)
				}
			})
		}
	}
}

// TestOnePassGivesUp: the reflective decoder reads what is not in canonical form, or has to
// be reported.
func TestOnePassGivesUp(t *testing.T) {
	metadata := func(entries ...string) string { return hosted(field(3, entries...)) }
	value := func(v string) string { return metadata(entry("envoy.lb", entry("hash_key", v))) }
	nested := field(3, "key")
	for range 2 * maxStructDepth {
		nested = field(5, entry("a", nested))
	}
	for _, c := range []struct{ name, endpoint string }{
		{"an unknown enum value", value("\x08\x80\x80\x80\x80\x08")},
		{"a number that is cut short", value("\x11\x00\x00")},
		{"a bool of 2", value("\x20\x02")},
		{"two values", value(field(3, "a") + field(3, "b"))},
		{"deep nesting", value(nested)},
		{"a key twice", metadata(entry("a", ""), entry("a", ""))},
		{"a key twice, apart", metadata(entry("b", ""), entry("a", ""), entry("b", ""))},
		{"an entry without a value", metadata(field(1, field(1, "a")))},
		{"an entry without a key", metadata(field(1, field(2, "")))},
		{"invalid UTF-8", metadata(entry("\xff", ""))},
		{"typed metadata", hosted(field(3, field(2, field(1, "a"), field(2, ""))))},
		{"a long varint", hosted("\x10\x81\x00")},
		{"the default", hosted("\x10\x00")},
		{"an unknown health", hosted("\x10\x06")},
		{"a weight of 0", hosted(field(4, ""))},
		{"a health twice", hosted("\x10\x01\x10\x01")},
		{"an unknown field", hosted(field(15, ""))},
		{"a group", hosted("\x7b\x7c")},
		{"an endpoint name", field(5, "a")},
		{"a hostname that cannot be printed, by hand", field(1, field(1, field(1, field(2, "10.0.0.1"), "\x18\x50")), field(3, "\x00"))},
		{"no port", field(1, field(1, field(1, field(2, "10.0.0.1"))))},
		{"no host", field(1, field(1, field(1, "\x18\x50")))},
		{"a port that is too large, by hand", field(1, field(1, field(1, field(2, "10.0.0.1"), "\x18\x80\x80\x04")))},
		{"a hash_key that is no string, by hand", value("\x20\x01")},
		{"other metadata of lbd, by hand", metadata(entry("lbd", entry("a", field(3, "b"))))},
		{"a health check", field(1, field(1, field(1, field(2, "10.0.0.1"), "\x18\x50")), field(2, ""))},
	} {
		body := []byte(field(1, "orders") + field(2, field(1, field(2, "zone")), field(2, c.endpoint), field(3, "\x08\x01")))
		for _, o := range rules {
			r := o.begin(resource.Key{Type: resource.TypeAssignment})
			strict := r.byHand || !strings.HasSuffix(c.name, "by hand")
			if readAssignment(r, &resource.Item{}, body) && strict {
				t.Errorf("%s: read in one pass with %+v", c.name, o)
			}
			compareDecoders(t, body, o)
		}
	}
}

// field returns a field with bytes.
func field(num protowire.Number, values ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), strings.Join(values, "")))
}

// entry returns an entry of a map.
func entry(key, value string) string { return field(1, field(1, key), field(2, value)) }

// hosted returns an LbEndpoint with an address and other fields.
func hosted(fields string) string {
	return fields + field(1, field(1, field(1, field(2, "10.0.0.1"), "\x18\x50")))
}

// anotherOrder returns an assignment whose endpoint comes before its metadata, with maps
// whose keys are in descending order.
func anotherOrder() []byte {
	lb := entry("version", field(3, "1")) + entry("hash_key", field(3, "key")) +
		entry("a", field(5, entry("y", field(3, "1")), entry("x", field(3, "2"))))
	return []byte(field(1, "orders") + field(2, field(1, field(2, "zone")),
		field(2, hosted("")+field(3, entry("z", ""), entry("envoy.lb", lb), entry("", ""))), field(3, "\x08\x01")))
}
