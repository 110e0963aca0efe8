// One goroutine reads all this, and the race detector would make it slow for
// nothing.

//go:build !race

package decode_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// realistic is an assignment as JSON whose endpoints bear what those of a
// service registry do.
func realistic(name string, endpoints int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"@type":%q,"cluster_name":%q,"endpoints":[{"locality":{"region":"r","zone":"a"},"load_balancing_weight":1,"lb_endpoints":[`, assignmentType, name)
	for i := range endpoints {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"endpoint":{"address":{"socket_address":{"address":"10.%d.%d.%d","port_value":8080}},`+
			`"hostname":"host-%d.example.com","health_check_config":{"port_value":9000}},"health_status":"HEALTHY",`+
			`"metadata":{"filter_metadata":{"envoy.lb":{"version":"1.2","canary":false}}},"load_balancing_weight":1}`, i>>16, i>>8&255, i&255, i)
	}
	b.WriteString("]}]}")
	return b.String()
}

// TestLargeIsNotTooLarge: the largest assignment of what is usual is read, and so
// is what is kept of it.
func TestLargeIsNotTooLarge(t *testing.T) {
	d, err := decode.One(resource.TypeAssignment, []byte(realistic("orders", decode.MaxEndpoints)), decode.Options{})
	noError(t, err)
	again, err := decode.One(resource.TypeAssignment, d.Raw, decode.Options{Format: decode.FormatProtobuf})
	noError(t, err)
	for _, a := range []*resource.Assignment{d.Assignment, again.Assignment} {
		if n := len(a.Localities[0].Endpoints); n != decode.MaxEndpoints {
			t.Errorf("%d endpoints", n)
		}
	}
}

func TestLargeBundleIsNotTooLarge(t *testing.T) {
	for _, c := range []struct{ clusters, endpoints int }{{1000, 100}, {10_000, 10}} {
		t.Run(fmt.Sprintf("%dx%d", c.clusters, c.endpoints), func(t *testing.T) {
			var list []string
			for i := range c.clusters {
				name := fmt.Sprintf("c%d", i)
				list = append(list, fmt.Sprintf(`{"@type":%q,"name":%q,"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}}}`, clusterType, name), realistic(name, c.endpoints))
			}
			text := []byte(`{"resources":[` + strings.Join(list, ",") + `]}`)
			b, err := decode.All(text, decode.Options{})
			noError(t, err)
			parts, err := decode.RenderBundle("1", b.Items, decode.FormatProtobuf, nil)
			noError(t, err)
			b, err = decode.All(slices.Concat(parts...), decode.Options{Format: decode.FormatProtobuf})
			if err != nil || len(b.Items) != 2*c.clusters {
				t.Errorf("as protobuf: %v", err)
			}
		})
	}
}

// bytesField is a field of a message, whose value is bytes.
func bytesField(num protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), value))
}

// TestEntriesAreCountedBeforeTheyAreRead: what takes two bytes of text takes a
// hundred once it is read.
func TestEntriesAreCountedBeforeTheyAreRead(t *testing.T) {
	const text, binary = decode.FormatJSON, decode.FormatProtobuf
	empty := func(n int) string { return strings.Repeat("\x12\x00", n) } // localities
	list := func(n int) string { return `{"endpoints":[` + strings.Repeat(`,`, n-2) + `]}` }
	carried := func(n int) string { // a response with three fields and n more
		return bytesField(2, bytesField(1, assignmentType)+bytesField(2, empty(n)))
	}
	const broken = "\xff" // only who reads it all sees it
	const jsonSays, binarySays = "has 2097153 entries, of at most 2097152", "has more than 4194304 entries"
	const ofBundle, ofBinaryBundle = "has 4194305 entries, of at most 4194304", "has more than 8388608 entries"
	single := func(body string, f decode.Format) error {
		_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Format: f})
		return err
	}
	bundle := func(body string, f decode.Format) error {
		_, err := decode.All([]byte(body), decode.Options{Format: f, Bare: true})
		return err
	}
	for _, c := range []struct {
		name   string
		decode func(string, decode.Format) error
		format decode.Format
		body   string
		want   string // empty where it is read, and is wrong otherwise
	}{
		{"JSON: as many", single, text, list(decode.MaxJSONEntries), ""},
		{"JSON: one more", single, text, list(decode.MaxJSONEntries + 1), jsonSays},
		{"JSON: objects", single, text, strings.Repeat("{}", decode.MaxJSONEntries+1), jsonSays},
		{"JSON: lists", single, text, strings.Repeat("[]", decode.MaxJSONEntries+1), jsonSays},
		{"JSON: in a string", single, text, `{"cluster_name":"` + strings.Repeat(",[{", decode.MaxJSONEntries) + `"}`, ""},
		{"protobuf: as many", single, binary, empty(decode.MaxProtobufEntries), ""},
		{"protobuf: one more", single, binary, empty(decode.MaxProtobufEntries+1) + broken, binarySays},
		{"protobuf: further down", single, binary, bytesField(2, empty(decode.MaxProtobufEntries)), binarySays},
		{"protobuf: in an envelope, as many", single, binary, carried(decode.MaxProtobufEntries - 3), ""},
		{"protobuf: in an envelope", single, binary, carried(decode.MaxProtobufEntries - 2), binarySays},
		{"a bundle as JSON: as many", bundle, text, list(2 * decode.MaxJSONEntries), ""},
		{"a bundle as JSON: one more", bundle, text, list(2*decode.MaxJSONEntries + 1), ofBundle},
		{"a resource in it", bundle, text, `{"resources":[{"@type":"` + assignmentType + `","endpoints":[{}` + strings.Repeat(",{}", decode.MaxJSONEntries/2-1) + `]}]}`, "has 2097154 entries, of at most 2097152"},
		{"a resource that is the body", bundle, text, `{"cluster_name":"a","endpoints":[{}` + strings.Repeat(",{}", decode.MaxJSONEntries/2-1) + `]}`, "has 2097154 entries, of at most 2097152"},
		{"a bundle as protobuf: one more", bundle, binary, carried(2*decode.MaxProtobufEntries - 2), ofBinaryBundle},
		{"a resource in it as protobuf", bundle, binary, bytesField(2, bytesField(1, assignmentType)+bytesField(2, empty(decode.MaxProtobufEntries+1)+broken)), binarySays},
		{"a resource in it, as many", bundle, binary, carried(decode.MaxProtobufEntries), ""},
		{"a resource that is the body, as protobuf", bundle, binary, empty(decode.MaxProtobufEntries+1) + broken, binarySays},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.decode(c.body, c.format)
			tooLarge, ok := errors.AsType[*decode.SizeError](err)
			if ok != (c.want != "") || ok && !strings.Contains(tooLarge.Error(), c.want) || err == nil {
				t.Errorf("err = %.300v, want %q", err, c.want)
			}
		})
	}
}

// TestWhatIsKeptCanBeReadAgain: an object in a list of metadata is two entries as
// JSON, and six as protobuf.
func TestWhatIsKeptCanBeReadAgain(t *testing.T) {
	const objects = decode.MaxProtobufEntries/6 + 1
	body := fmt.Appendf(nil, `{"@type":%q,"cluster_name":"orders","endpoints":[{"locality":{"region":"r"},"metadata":{"filter_metadata":{"a":{"b":[{"c":1}%s]}}}}]}`,
		assignmentType, strings.Repeat(`,{"c":1}`, objects-1))
	_, err := decode.One(resource.TypeAssignment, body, decode.Options{})
	_, ofBundle := decode.All(body, decode.Options{Bare: true})
	for _, err := range []error{err, ofBundle} {
		if _, ok := errors.AsType[*decode.SizeError](err); !ok {
			t.Errorf("err = %.300v", err)
		}
	}
}

// withExtension is an Assignment with a message of an extension that has n empty messages.
func withExtension(n int, f decode.Format) string {
	const url = "type.googleapis.com/envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy"
	if f == decode.FormatJSON {
		return `{"cluster_name":"a","endpoints":[{"metadata":{"typed_filter_metadata":{"a":{"\u0040type":"` + url + `","thrift_filters":[{}` +
			strings.Repeat(",{}", n-1) + `]}}}}]}`
	}
	carried := bytesField(1, url) + bytesField(2, strings.Repeat("\x2a\x00", n))
	return bytesField(1, "a") + bytesField(2, bytesField(9, bytesField(2, bytesField(1, "a")+bytesField(2, carried))))
}

// Messages of extensions take more memory than those of linked types.
func TestExtensionsHaveALimit(t *testing.T) {
	for f, most := range map[decode.Format]int{decode.FormatJSON: decode.MaxExtensionEntries/2 - 1, decode.FormatProtobuf: decode.MaxExtensionEntries} {
		for n, want := range map[int]string{most: "", most + 1: "has more than 524288 entries"} {
			_, err := decode.One(resource.TypeAssignment, []byte(withExtension(n, f)), decode.Options{Format: f})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d messages as %s: %v, want %q", n, f, err, want)
			}
		}
	}
}
