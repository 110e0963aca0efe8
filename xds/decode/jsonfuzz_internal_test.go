package decode

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// compareTexts compares the decoders on two versions of an assignment as JSON.
func compareTexts(t *testing.T, before, after []byte, o Options) {
	t.Helper()
	o.Format = FormatJSON
	compareVersions(t, before, after, o)
	o.Bare = true
	got, err := All(after, o)
	o.reflective = true
	want, wantErr := All(after, o)
	if o.Stored && got != nil && want != nil && len(want.Items) > 0 {
		want.Items[0].Shareable = got.Items[0].Shareable
	}
	if !reflect.DeepEqual(outcome{got, err}, outcome{want, wantErr}) {
		t.Fatalf("%q as a bundle with %+v:\none pass:   %+v, %v\nreflective: %+v, %v", after, o, got, err, want, wantErr)
	}
}

// textMutation changes JSON at random.
type textMutation struct{ *rand.Rand }

// change changes a value, or one in it.
func (m textMutation) change(value []byte, depth int) []byte {
	members := text.Members(value)
	if len(members) == 0 {
		return m.value()
	}
	i, k := m.IntN(len(members)), m.IntN(len(members))
	if m.IntN(10) < 8 && len(members[i].Value) > 0 && depth < 20 {
		members[i].Value = m.change(members[i].Value, depth+1)
		return assemble(value[0], members)
	}
	switch m.IntN(7) {
	case 0:
		members = slices.Delete(members, i, i+1)
	case 1:
		members = slices.Insert(members, k, members[i])
	case 2:
		members[i], members[k] = members[k], members[i]
	case 3:
		members[i].Value = m.value()
	case 4:
		members[i].Value = members[k].Value
	case 5:
		members[i].Quoted = []byte(oddNames[m.IntN(len(oddNames))])
	default:
		members = slices.Insert(members, k, text.Member{Quoted: []byte(oddNames[m.IntN(len(oddNames))]), Value: m.value()})
	}
	return assemble(value[0], members)
}

func assemble(open byte, members text.Object) []byte {
	out := []byte{open}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		if open == '{' {
			out = append(append(out, m.Quoted...), ':')
		}
		out = append(out, m.Value...)
	}
	return append(out, open+2)
}

func (m textMutation) value() []byte { return []byte(oddValues[m.IntN(len(oddValues))]) }

var oddNames = strings.Fields(`"" "a" "@type" "type" "resources" "cluster_name" "clusterName" "name" "endpoints" "lb_endpoints" "lbEndpoints" "locality"
	"priority" "load_balancing_weight" "loadBalancingWeight" "health_status" "healthStatus" "hostname" "address" "socket_address" "port_value"
	"portValue" "named_port" "protocol" "metadata" "filter_metadata" "typed_filter_metadata" "envoy.lb" "lbd" "hash_key" "ttl" "policy"
	"drop_overloads" "endpoint_name" "additional_addresses" "additionalAddresses" "region" "zone" "sub_zone" "port\u005fvalue" "\ud800" "é"`)

var oddValues = strings.Split(`null true false 0 1 -1 80 080 80.0 8e1 80.5 -0 1e400 4294967295 4294967296 99999999999 "80" "" "a" "10.0.0.1" "10.0.0.2" "::1" "::0001"
 "Host" "a b" "é" "\u00e9" "\ud83d\ude00" "\ud800" "\ufffd" "\/" "\x" "\n" "30s" "1ms" "HEALTHY" "DRAINING" "healthy" "TCP" "UDP" "MILLION" [] {} [null] [{}] {"a":null} {"b":1,"a":[0,{}]}
 {"b":{"d":"","c":-1.5e-3}} {"region":"r"} {"value":1} {"numerator":5} {"@type":"a"} [1,2] "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" tru nul {"a":1 ] " 1.`+
	` {"endpoint":{"address":{"socket_address":{"address":"10.1.2.3","port_value":80,"protocol":"TCP"}}}} {"filter_metadata":{"lbd":{"ttl":"30s"}}}`, " ")

// compareTextSeries compares the decoders on some changes of an assignment as JSON, one after the other.
func compareTextSeries(t *testing.T, body []byte, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	o := rules[random.IntN(len(rules))]
	for range 1 + random.IntN(3) {
		var changed []byte
		if random.IntN(8) == 0 {
			changed = mutation{random}.bytes(slices.Clone(body))
		} else {
			changed = textMutation{random}.change(bytes.TrimSpace(body), 0)
		}
		compareTexts(t, body, changed, o)
		body = changed
	}
}

// asJSON returns an assignment as JSON, in one of the forms that programs write.
func asJSON(tb testing.TB, raw []byte, form int) []byte {
	tb.Helper()
	m := &endpointv3.ClusterLoadAssignment{}
	noError(tb, proto.Unmarshal(raw, m))
	body, err := protojson.MarshalOptions{UseProtoNames: form&1 > 0, Multiline: form&2 > 0}.Marshal(m)
	noError(tb, err)
	return body
}

func FuzzOnePassJSON(f *testing.F) {
	for i, c := range ordinary(f) {
		for seed := range 4 {
			f.Add(asJSON(f, c.body, seed), uint64(4*i+seed))
		}
	}
	f.Fuzz(compareTextSeries)
}

// TestOrdinaryJSONTakesOnePass: the result is that of the reflective decoder, which takes many times as long.
func TestOrdinaryJSONTakesOnePass(t *testing.T) {
	bodies := map[string]string{}
	for _, c := range ordinary(t) {
		bodies[c.name+" with names of the proto"] = string(asJSON(t, c.body, 1))
		bodies[c.name+" in lines"] = string(asJSON(t, c.body, 2))
	}
	const socket = `"address":{"socket_address":{"protocol":"TCP","port_value":80,"address":"10.0.0.1"}}`
	for name, endpoint := range map[string]string{
		"another order":      `{"load_balancing_weight":2,"metadata":{"filter_metadata":{"b":{"z":1,"a":{"y":1,"x":2}},"a":{}}},"health_status":"UNKNOWN","endpoint":{"hostname":"a",` + socket + `}}`,
		"nulls and defaults": `{"load_balancing_weight":null,"metadata":null,"health_status":null,"endpoint":{"hostname":"","additional_addresses":[],` + socket + `}}`,
		"escapes":            `{"metadata":{"filter_metadata":{"a\/b":{"\"":"\u00e9\ud83d\ude00é"}}},"endpoint":{` + socket + `}}`,
		"long metadata":      `{"metadata":{"filter_metadata":{"a":{"b":"` + strings.Repeat("x", 300) + `","c":[` + strings.Repeat("1.5e-3,", 300) + `-0]}}},"endpoint":{` + socket + `}}`,
	} {
		bodies[name] = `{"endpoints":[{"priority":0,"lb_endpoints":[` + endpoint + `],"locality":{"zone":""}}],"policy":null}`
	}
	bodies["a type"] = `{"@type":"` + resource.TypeAssignment.URL() + `","cluster_name":"orders"}`
	bodies["a policy in another order"] = `{"policy":{"overprovisioningFactor":200,"drop_overloads":[{"drop_percentage":{"denominator":"HUNDRED","numerator":5},"category":"a"},{"category":"b"}]}}`
	bodies["a mark of the order of bytes"] = "\ufeff {}\n"
	for name, body := range bodies {
		for _, o := range rules {
			t.Run(name, func(t *testing.T) {
				o.Format = FormatJSON
				reflective := o
				reflective.reflective = true
				_, err := One(resource.TypeAssignment, []byte(body), reflective)
				r := o.begin(resource.Key{Type: resource.TypeAssignment})
				if raw, ok := assignmentJSON(r, []byte(body)); !ok || err == nil && !readAssignment(r, &resource.Item{}, raw) {
					t.Errorf("%.1000s: gave up", body)
				}
				compareTexts(t, []byte(body), []byte(body), o)
			})
		}
	}
}

// TestOnePassGivesUpOnJSON: what has to be reported, and rare forms, are for the reflective decoder.
func TestOnePassGivesUpOnJSON(t *testing.T) {
	const socket = `"socket_address":{"address":"10.0.0.1","port_value":80}`
	endpoint := func(fields string) string { return `{"endpoints":[{"lb_endpoints":[{` + fields + `}]}]}` }
	at := func(address string) string { return endpoint(`"endpoint":{"address":{` + address + `}}`) }
	metadata := func(fields string) string {
		return endpoint(`"metadata":{"filter_metadata":{` + fields + `}},"endpoint":{"address":{` + socket + `}}`)
	}
	typed := `{"@type":"` + resource.TypeAssignment.URL() + `"`
	for _, body := range []string{
		"", "{", "{} {}", "[]", "null", `{"endpoints":{}}`, `{"endpoints":[{}],}`, `{"a":1}`, `{"cluster_name":"a","clusterName":"a"}`, `{"cluster_name":7}`, `{"\u0063luster_name":"a"}`,
		`{"named_endpoints":{}}`, `{"policy":{"a":1}}`, `{"policy":7}`, `{"policy":{"drop_overloads":[null]}}`, `{"policy":{"drop_overloads":[{"drop_percentage":{"denominator":"MANY"}}]}}`, `{"policy":{"endpoint_stale_after":"1s"}}`, `{"endpoints":[null]}`, `{"endpoints":[{"priority":0,"priority":0}]}`, `{"endpoints":[{"priority":-1}]}`, `{"endpoints":[{"priority":"0"}]}`, `{"endpoints":[{"priority":0.0}]}`,
		`{"endpoints":[{"priority":00}]}`, `{"endpoints":[{"priority":4294967296}]}`, `{"endpoints":[{"priority":99999999999}]}`, `{"endpoints":[{"metadata":{}}]}`,
		at(``), at(`"socket_address":{}`), at(`"socket_address":{"address":"10.0.0.1"}`), at(`"socket_address":{"port_value":80}`), at(`"socket_address":{"address":"10.0.0.1","port_value":0}`),
		at(`"socket_address":{"address":"10.0.0.1","port_value":80,"protocol":"UDP"}`), at(`"socket_address":{"address":"10.0.0.1","port_value":80,"resolver_name":""}`), at(socket + `,` + socket), at(`"pipe":{}`),
		endpoint(`"endpoint_name":"a"`), endpoint(`"health_status":"healthy"`), endpoint(`"health_status":1`), endpoint(`"endpoint":{"health_check_config":{}}`),
		metadata(`"a":null`), metadata(`"a":{"b":1},"a":{}`), metadata(`"a":{"b":1,"b":2}`), metadata(`"a":{"@type":"b"}`), metadata(`"a":{"b":1e400}`), metadata(`"a":{"b":01}`), metadata(`"a":{"b":+1}`), metadata(`"a":{"b":1.}`),
		metadata(`"a":{"b":.5}`), metadata(`"a":{"b":1e}`), metadata(`"a":{"b":-}`), metadata(`"a":{"b":"\ud800"}`), metadata(`"a":{"b":"\x"}`), metadata(`"a":{"b":"` + "\n" + `"}`), metadata(`"a":{"b":"` + "\xff" + `"}`), metadata(`"a":{"b":tru}`),
		metadata(`"a":{"b":[1 2]}`), metadata(`"a":{"b":[1,]}`), metadata(`"a":{"b"}`), metadata(`"a":{"b":}`), metadata(`"a":{"b":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`),
		`{"resources":[]}`, `{"resources":[{}]}`, `{"resources":[` + typed + `}]}`, `{"cluster_name":"a","resources":[` + typed + `}]}`, typed + `,"resources":[]}`,
		`{"@type":"a"}`, `{"@type":"` + resource.TypeCluster.URL() + `"}`, `{"@type":null}`, `{"@type":null,"cluster_name":"orders"}`, `{"cluster_name":"orders","@type":null}`,
	} {
		r := rules[0].begin(resource.Key{Type: resource.TypeAssignment})
		if raw, ok := assignmentJSON(r, []byte(body)); ok && readAssignment(r, &resource.Item{}, raw) {
			t.Errorf("%s: read in one pass", body)
		}
		for _, o := range rules {
			compareTexts(t, []byte(body), []byte(body), o)
		}
	}
}

// TestOnePassJSONReuses: an endpoint is that of the previous version though its metadata is in another order.
func TestOnePassJSONReuses(t *testing.T) {
	body := func(port, metadata string) []byte {
		const address = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":%s}}}`
		return []byte(`{"endpoints":[{"lb_endpoints":[` + strings.Replace(address, "%s", port, 1) + `},` + strings.Replace(address, "%s", "9", 1) + `,"metadata":{"filter_metadata":{"a":{` + metadata + `}}}}]}]}`)
	}
	before, err := One(resource.TypeAssignment, body("1", `"b":1,"a":2`), Options{Name: "orders"})
	noError(t, err)
	after, err := One(resource.TypeAssignment, body("2", `"a":2,"b":1`), Options{Name: "orders", Previous: func(resource.Key) resource.Item { return before.Item }})
	noError(t, err)
	if was, is := before.Assignment.Localities[0].Endpoints, after.Assignment.Localities[0].Endpoints; was[0] == is[0] || was[1] != is[1] {
		t.Errorf("%v became %v", was, is)
	}
	again, err := One(resource.TypeAssignment, body("2", `"b":1,"a":2`), Options{Name: "orders", Previous: func(resource.Key) resource.Item { return after.Item }})
	noError(t, err)
	if again.Assignment.Localities[0] != after.Assignment.Localities[0] {
		t.Error("the same locality is another one")
	}
}

// readPausing is assignmentJSON whose Pause returns an error from a call on, and counts the calls.
func readPausing(body string, from int) (ok bool, calls int, err error) {
	r := Options{Pause: func() error {
		if calls++; calls >= from {
			return errors.New("stop")
		}
		return nil
	}}.begin(resource.Key{Type: resource.TypeAssignment})
	defer rejectPanic(r.key, &err)
	_, ok = assignmentJSON(r, []byte(body))
	return ok, calls, nil
}

const withMetadata = `{"endpoints":[{"lb_endpoints":[{"metadata":{"filter_metadata":`

// TestOnePassJSONStops: a caller can end the reading of a long body.
func TestOnePassJSONStops(t *testing.T) {
	for name, body := range map[string]string{
		"endpoints":     `{"endpoints":[{"lb_endpoints":[{}` + strings.Repeat(",{}", 2*jsonPauseEntries) + `]}]}`,
		"localities":    `{"endpoints":[{}` + strings.Repeat(",{}", 2*jsonPauseEntries) + `]}`,
		"drops":         `{"policy":{"drop_overloads":[{}` + strings.Repeat(",{}", 2*jsonPauseEntries) + `]}}`,
		"metadata":      withMetadata + `{"a":{"b":[0` + strings.Repeat(",0", 2*jsonPauseEntries) + `]}}}}]}]}`,
		"maps to sort":  withMetadata + `{"b":{},"a":{}}}}]}]}`,
		"nested Struct": withMetadata + `{"a":{"b":{}}}}}]}]}`,
		"nested list":   withMetadata + `{"a":{"b":[]}}}}]}]}`,
	} {
		if ok, calls, err := readPausing(body, 2); ok || calls != 2 || !errors.As(err, new(*StoppedError)) {
			t.Errorf("%s: %v, %d calls of Pause, %v", name, ok, calls, err)
		}
		if ok, _, err := readPausing(body, math.MaxInt); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

// TestOnePassJSONGivesUpEarly: it does not go on to read, or to move, what is of no use.
func TestOnePassJSONGivesUpEarly(t *testing.T) {
	const more, elements = 10 * jsonPauseEntries, 2*jsonElements/jsonPauseEntries + 2
	for name, c := range map[string]struct {
		body  string
		calls int
	}{
		"two of a name":  {withMetadata + `{"b":{},"a":{},"a":{}}}}` + strings.Repeat(",{}", more) + `]}]}`, 2},
		"many elements":  {`{"endpoints":[{"lb_endpoints":[{}` + strings.Repeat(",{}", jsonElements+more) + `]}]}`, elements},
		"many drops":     {`{"policy":{"drop_overloads":[{}` + strings.Repeat(",{}", jsonElements+more) + `]}}`, elements},
		"nested Structs": {withMetadata + `{"a":{"b":` + strings.Repeat(`{"c":`, maxStructDepth+1) + "[0" + strings.Repeat(",0", more) + "]" + strings.Repeat("}", maxStructDepth+1) + `}}}}]}]}`, maxStructDepth + 2},
	} {
		if ok, calls, err := readPausing(c.body, math.MaxInt); ok || calls > c.calls || err != nil {
			t.Errorf("%s: %v, %d calls of Pause, of at most %d, %v", name, ok, calls, c.calls, err)
		}
	}
	for depth, want := range map[int]bool{maxStructDepth: true, maxStructDepth + 1: false} {
		body := withMetadata + `{"a":{"b":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}}},"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":1}}}}]}]}`
		r := rules[0].begin(resource.Key{Type: resource.TypeAssignment})
		raw, ok := assignmentJSON(r, []byte(body))
		if ok != want || ok && !readAssignment(r, &resource.Item{}, raw) {
			t.Errorf("%d lists in lists: read is %v", depth, ok)
		}
	}
}
