package decode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

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
