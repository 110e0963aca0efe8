package decode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestLists: a list of endpoints is the same resource as the assignment that it stands for.
func TestLists(t *testing.T) {
	endpoint := func(host, port, more string) string {
		return `{"endpoint": {"address": {"socket_address": {"address": "` + host + `", "port_value": ` + port + `}}}` + more + `}`
	}
	for name, tt := range map[string]struct{ list, text, want string }{
		"one": {`["10.0.0.7:8080"]`, "10.0.0.7:8080", `[{"lb_endpoints": [` + endpoint("10.0.0.7", "8080", "") + `]}]`},
		"IPv6, and a weight": {
			`["[::1]:80 3"]`, "[::1]:80 3", `[{"lb_endpoints": [` + endpoint("::1", "80", `, "load_balancing_weight": 3`) + `]}]`,
		},
		"localities in the order of their first endpoints": {
			`["10.0.0.1:1 eu/a", "10.0.0.2:1 2 us/b/c", " 10.0.0.3:1   1  eu/a "]`,
			"# three\n\n10.0.0.1:1 eu/a\r\n10.0.0.2:1\t2 us/b/c\r\n  10.0.0.3:1   1  eu/a \n",
			`[{"locality": {"region": "eu", "zone": "a"}, "lb_endpoints": [` + endpoint("10.0.0.1", "1", "") + `, ` + endpoint("10.0.0.3", "1", `, "load_balancing_weight": 1`) + `]},
				{"locality": {"region": "us", "zone": "b", "sub_zone": "c"}, "lb_endpoints": [` + endpoint("10.0.0.2", "1", `, "load_balancing_weight": 2`) + `]}]`,
		},
		"none": {`[]`, "", `[]`},
	} {
		o := decode.Options{Origin: decode.ByHand, Name: "orders"}
		want, err := decode.One(resource.TypeAssignment, []byte(`{"endpoints": `+tt.want+`}`), o)
		if err != nil {
			t.Fatal(name, err)
		}
		bodies := map[decode.Format]string{decode.FormatJSON: tt.list, decode.FormatYAML: tt.list, decode.FormatText: tt.text}
		if tt.text == "" {
			delete(bodies, decode.FormatText)
		}
		for o.Format, tt.list = range bodies {
			got, err := decode.One(resource.TypeAssignment, []byte(tt.list), o)
			if err != nil {
				t.Errorf("%s, %v: %v", name, o.Format, err)
			} else if string(got.Raw) != string(want.Raw) {
				t.Errorf("%s, %v: %v, want %v", name, o.Format, got.Assignment, want.Assignment)
			}
		}
	}
}

// TestListsThatAreRejected names the entry, and what to write.
func TestListsThatAreRejected(t *testing.T) {
	for _, tt := range []struct {
		f    decode.Format
		of   resource.Type
		body string
		want string
	}{
		{decode.FormatText, resource.TypeAssignment, "# none\n\n", "the list is empty"},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1\n10.0.0.2", `line 2: "10.0.0.2" is no address: write ADDRESS:PORT`},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:http", "no valid port"},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:65536", "no valid port"},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1 0", `"0" is no weight`},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1 heavy", `"heavy" is no weight`},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1 4294967296", "is no weight"},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1 eu/a/b/c", "is no locality"},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1 1 eu/a x", `"x" is too much`},
		{decode.FormatText, resource.TypeAssignment, "10.0.0.1:1\n10.0.0.1:1", "10.0.0.1:1, which"},
		{decode.FormatText, resource.TypeAssignment, "h:1\n\xff:1", "line 2: is not valid UTF-8"},
		{decode.FormatJSON, resource.TypeAssignment, "[\"\xff:1\"]", "neither an IP address nor a host name"},
		{decode.FormatText, resource.TypeCluster, "10.0.0.1:1", "only valid for the endpoints of a cluster"},
		{decode.FormatJSON, resource.TypeCluster, `["10.0.0.1:1"]`, "only valid for the endpoints of a cluster"},
		{decode.FormatJSON, resource.TypeAssignment, `["10.0.0.1:1", 2]`, `[1]: is no string`},
		{decode.FormatJSON, resource.TypeAssignment, `["10.0.0.1:1", ""]`, `[1]: is empty`},
		{decode.FormatJSON, resource.TypeAssignment, `["10.0.0.1:1"`, "unexpected"},
		{decode.FormatYAML, resource.TypeAssignment, "- 10.0.0.1:1\n- x\n", `[1]: "x" is no address`},
	} {
		_, err := decode.One(tt.of, []byte(tt.body), decode.Options{Origin: decode.ByHand, Format: tt.f, Name: "orders"})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v %q: %v, want %q", tt.f, tt.body, err, tt.want)
		}
	}
	if _, err := decode.One(resource.TypeAssignment, []byte(`["10.0.0.1:1"]`), decode.Options{Origin: decode.FromServer}); err == nil {
		t.Error("a management server may send a list")
	}
	for f, body := range map[decode.Format]string{
		decode.FormatText: "10.0.0.1:1\n", decode.FormatJSON: `["10.0.0.1:1"]`, decode.FormatYAML: "- 10.0.0.1:1\n",
	} { // a file
		b, err := decode.All([]byte(body), decode.Options{Format: f, Bare: true, Name: "orders"})
		if err != nil || b.Items[0].Key.String() != "ClusterLoadAssignment/orders" || b.Items[0].Assignment.Usable() != 1 {
			t.Errorf("%v: %v, %v", f, b, err)
		}
	}
	_, err := decode.All([]byte("10.0.0.1:1"), decode.Options{Origin: decode.ByHand, Format: decode.FormatText})
	if syntax, ok := errors.AsType[*decode.SyntaxError](err); !ok || !strings.Contains(syntax.Reason, "only valid for the endpoints") {
		t.Errorf("a snapshot: %v", err)
	}
}
