package decode_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestMisspelledFieldsAreSuggested: what a problem about an unknown field suggests.
func TestMisspelledFieldsAreSuggested(t *testing.T) {
	const socket = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
	for _, c := range []struct{ name, body, want string }{
		{"two letters swapped", `{"policy":{"drop_overlaods":[]}}`, "policy.drop_overlaods: unknown field (did you mean drop_overloads?)"},
		{"a letter missing", `{"enpoints":[]}`, "enpoints: unknown field (did you mean endpoints?)"},
		{"in lowerCamelCase", `{"clusterNmae":"orders"}`, "clusterNmae: unknown field (did you mean clusterName?)"},
		{"hyphens", `{"named-endpoints":{}}`, "named-endpoints: unknown field (did you mean named_endpoints?)"},
		{"capitals", `{"ClusterName":"orders"}`, "ClusterName: unknown field (did you mean clusterName?)"},
		{"the first word", `{"policy":{"drop":[]}}`, "policy.drop: unknown field (did you mean drop_overloads?)"},
		{"the first word of several", `{"policy":{"disable":[]}}`, "policy.disable: unknown field of Policy"},
		{"what belongs into a field", `{"policy":{},"drop_overloads":[]}`, "drop_overloads: unknown field (did you mean policy.drop_overloads?)"},
		{"nothing like it", `{"colour":"red"}`, "colour: unknown field of ClusterLoadAssignment"},
		{"two letters", `{"id":"x"}`, "id: unknown field of ClusterLoadAssignment"},
		{"much too long", `{"` + strings.Repeat("endpoint", 100) + `":1}`, strings.Repeat("endpoint", 100) + ": unknown field of ClusterLoadAssignment"},
		{"the port", localities(locality("a", 0, 1, `{"endpoint":{"address":{"socket_address":{"address":"h","port_value":1,"port_valeu":8080}}}}`)), socket + ".port_valeu: unknown field (did you mean port_value?)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			if !strings.Contains(body, "cluster_name") {
				body = `{"cluster_name":"orders",` + body[1:]
			}
			_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{})
			if got := refusals(t, err, "ClusterLoadAssignment/orders"); !reflect.DeepEqual(got, []string{c.want}) {
				t.Errorf("refusals %q, want %q", got, c.want)
			}
		})
	}
}

// An unknown field is listed before the problem that it causes, with its place,
// whether or not it is an error by itself.
func TestUnknownFieldsAreListedWithWhatTheyCause(t *testing.T) {
	const body = `cluster_name: orders
endpoints:
- lb_endpoints:
  - endpoint:
      address: {socket_address: {address: 10.0.0.1, port_valeu: 8080}}
`
	bundled := "resources:\n- \"@type\": " + assignmentType + "\n  " + strings.ReplaceAll(body, "\n", "\n  ")
	const socket = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
	for _, lenient := range []bool{false, true} {
		o := decode.Options{Format: decode.FormatYAML, Lenient: lenient}
		_, alone := decode.One(resource.TypeAssignment, []byte(body), o)
		_, enveloped := decode.One(resource.TypeAssignment, []byte(bundled), o)
		_, among := decode.All([]byte(bundled), o)
		for at, err := range map[string]error{"": alone, "resources[0].": among, " ": enveloped} {
			lines := 5
			if at != "" {
				lines = 7
			}
			at = strings.TrimSpace(at)
			invalid, ok := err.(*decode.InvalidError) //nolint:errorlint // it is not wrapped
			if !ok || len(invalid.Problems) != 2 {
				t.Fatalf("lenient %v: refused with %v", lenient, err)
			}
			cause, effect := invalid.Problems[0], invalid.Problems[1]
			if cause.String() != at+socket+".port_valeu: unknown field (did you mean port_value?)" || !cause.UnknownField() || effect.UnknownField() {
				t.Errorf("lenient %v: the first problem is %q", lenient, cause)
			}
			if !strings.HasPrefix(effect.String(), at+socket+".port_value: is absent") {
				t.Errorf("lenient %v: the second problem is %q", lenient, effect)
			}
			if cause.Line != lines || effect.Line != lines || cause.Column <= effect.Column {
				t.Errorf("lenient %v: they stand at %d:%d and %d:%d", lenient, cause.Line, cause.Column, effect.Line, effect.Column)
			}
		}
	}
}

func FuzzSuggestions(f *testing.F) {
	for _, name := range []string{"port_valeu", "endpoints", "é", "lb-endpoints", "", "_", "cluster_name"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		body := strings.ToValidUTF8(name, "")
		if strings.ContainsAny(body, "\"\\") || strings.ContainsFunc(body, func(r rune) bool { return r < ' ' }) {
			return
		}
		_, err := decode.One(resource.TypeAssignment, []byte(`{"cluster_name":"orders","`+body+`":{}}`), decode.Options{})
		if err != nil {
			expected(t, err)
		}
	})
}
