// One goroutine reads all this, and the race detector would make it slow for
// nothing.

//go:build !race

package decode_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestLargeIsNotTooLarge: the largest assignment of what is usual is read, and so
// is what is kept of it.
func TestLargeIsNotTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
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
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
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
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
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
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
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
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
	for f, most := range map[decode.Format]int{decode.FormatJSON: decode.MaxExtensionEntries/2 - 1, decode.FormatProtobuf: decode.MaxExtensionEntries} {
		for n, want := range map[int]string{most: "", most + 1: "has more than 524288 entries"} {
			_, err := decode.One(resource.TypeAssignment, []byte(withExtension(n, f)), decode.Options{Format: f})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d messages as %s: %v, want %q", n, f, err, want)
			}
		}
	}
}

// TestYAMLIsBoundedBeforeItIsRead: a tree of YAML takes a hundred times its text.
func TestYAMLIsBoundedBeforeItIsRead(t *testing.T) {
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
	quoted := func(n int) string { return `cluster_name: "` + strings.Repeat(",", n) + `"` } // one entry, and n
	for name, c := range map[string]struct {
		body string
		want string // empty where it is read, and is wrong otherwise
	}{
		"as many bytes":    {strings.Repeat(" ", text.MaxYAMLBytes), ""},
		"one byte more":    {strings.Repeat(" ", text.MaxYAMLBytes+1), "8388609 bytes"},
		"as many entries":  {quoted(text.MaxYAMLEntries - 1), ""},
		"one entry more":   {quoted(text.MaxYAMLEntries), "524289 entries"},
		"mappings":         {"[" + strings.Repeat("{},", text.MaxYAMLEntries/2) + "]", "524289 entries"},
		"lists":            {strings.Repeat("-\n", text.MaxYAMLEntries+1), "524289 entries"},
		"pairs":            {"[" + strings.Repeat("a: 1,", text.MaxYAMLEntries/2) + "]", "524289 entries"},
		"keys in quotes":   {strings.Repeat("\"a\":1\n", text.MaxYAMLEntries+1), "524289 entries"},
		"keys of a block":  {strings.Repeat("a:\n", text.MaxYAMLEntries+1), "524289 entries"},
		"keys with a mark": {strings.Repeat("? a\n", text.MaxYAMLEntries+1), "524289 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			o := decode.Options{Format: decode.FormatYAML}
			_, err := decode.One(resource.TypeAssignment, []byte(c.body), o)
			_, ofBundle := decode.All([]byte(c.body), o)
			for _, err := range []error{err, ofBundle} {
				tooLarge, ok := errors.AsType[*decode.SizeError](err)
				if ok != (c.want != "") || ok && !strings.Contains(tooLarge.Error(), c.want) || err == nil {
					t.Errorf("err = %v, want %q", err, c.want)
				}
			}
		})
	}
}

func TestLimitsOfRoutes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
	host := func(i int) string {
		return fmt.Sprintf(`{"domains":["d%d"],"routes":[%s]}`, i, acting(`"cluster":"a"`))
	}
	domains := func(n int) string { return `{"domains":["d"` + strings.Repeat(`,"d"`, n-1) + `]}` }
	const one = `{"match":{"prefix":""},"redirect":{}}`
	repeat := func(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	var many []string
	for i := range decode.MaxVirtualHosts + 1 {
		many = append(many, host(i))
	}
	for name, c := range map[string]struct {
		body string
		want string // the one problem; empty where it is accepted
	}{
		"virtual hosts":          {hosts(many[:decode.MaxVirtualHosts]...), ""},
		"one virtual host more":  {hosts(many...), "virtual_hosts: holds 10001 virtual hosts, of at most 10000"},
		"one domain more":        {hosts(domains(decode.MaxDomains + 1)), "virtual_hosts: holds 100001 domains, of at most 100000"},
		"one route more":         {routes(repeat(one, decode.MaxRoutes+1)), "virtual_hosts: holds 100001 routes, of at most 100000"},
		"clusters":               {routes(acting(`"weighted_clusters":{"clusters":[` + repeat(`{"name":"a","weight":1}`, decode.MaxWeightedClusters) + `]}`)), ""},
		"one cluster more":       {routes(acting(`"weighted_clusters":{"clusters":[` + repeat(`{"name":"a","weight":1}`, decode.MaxWeightedClusters+1) + `]}`)), "virtual_hosts[0].routes[0].route.weighted_clusters.clusters: holds 1001 clusters, of at most 1000"},
		"one hash policy more":   {routes(acting(`"cluster":"a"`, `"hash_policy":[`+repeat(`{"header":{"header_name":"x"}}`, decode.MaxHashPolicies+1)+`]`)), "virtual_hosts[0].routes[0].route.hash_policy: holds 101 policies, of at most 100"},
		"a long regex":           {routes(matching(`"safe_regex":{"regex":"` + strings.Repeat("a", decode.MaxRegexBytes) + `"}`)), ""},
		"a regex of a byte more": {routes(matching(`"safe_regex":{"regex":"` + strings.Repeat("a", decode.MaxRegexBytes+1) + `"}`)), "virtual_hosts[0].routes[0].match.safe_regex.regex: is 4097 bytes long, of at most 4096"},
		"large regexes":          {routes(repeat(matching(`"safe_regex":{"regex":"(?:a{1000})"}`), 1000)), ""},
		"a large regex": {
			routes(repeat(matching(`"safe_regex":{"regex":"(?:`+strings.Repeat("a", 100)+`){1000}"}`), 11)),
			"virtual_hosts[0].routes[10].match.safe_regex.regex: makes the regular expressions exceed 1048576 instructions: repeat less, as in {1,1000}",
		},
	} {
		d, err := decode.One(resource.TypeRoutes, []byte(c.body), decode.Options{})
		got := ""
		if err != nil {
			got = strings.Join(reported(d, err), "\n")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if d, err := decode.One(resource.TypeRoutes, []byte(c.body), decode.Options{Origin: decode.FromServer}); err != nil {
			t.Errorf("%s from a server: %+v, %v", name, d, err)
		}
	}
}

func TestBundlesHoldAHundredThousandResources(t *testing.T) {
	one := []byte(`{"@type":"` + secretType + `"},`)
	for _, c := range []struct {
		n    int
		want string
	}{
		{100_000, "DiscoveryResponse |  | and 99900 more like these"},
		{100_001, "DiscoveryResponse | resources | holds 100001 resources, of at most 100000"},
	} {
		body := append([]byte(`{"resources":[`), bytes.Repeat(one, c.n)...)
		body = append(body[:len(body)-1], "]}"...)
		_, err := decode.All(body, decode.Options{})
		if got := broken(t, err); len(got) > decode.MaxProblems+1 || got[len(got)-1] != c.want {
			t.Errorf("%d problems, the last %s; want %s", len(got), got[len(got)-1], c.want)
		}
	}
}

// TestAllocatedBytesGrowWithTheInput: eight times the input takes about eight times the memory. make test-slope
// measures many more shapes, and time.
func TestAllocatedBytesGrowWithTheInput(t *testing.T) {
	for name, body := range map[string]func(n int) string{
		"one key many times":   func(n int) string { return strings.Repeat("a: 1\n", n) },
		"a mapping as key":     func(n int) string { return "? {" + strings.Repeat("a: 1, ", n) + "}\n: 1\n" },
		"a merged list":        func(n int) string { return "x: &a {b: 1}\ny: {<<: [" + strings.Repeat("*a, ", n) + "]}\n" },
		"members of a mapping": func(n int) string { return "endpoints: [{" + strings.Repeat("a, ", n) + "}]\n" },
	} {
		allocated := func(n int) float64 {
			text := []byte(body(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := decode.All(text, decode.Options{Format: decode.FormatYAML, Bare: true}); err == nil {
				t.Errorf("%s: no error", name)
			}
			runtime.ReadMemStats(&after)
			return float64(after.TotalAlloc - before.TotalAlloc)
		}
		allocated(1)
		if growth := allocated(8000) / allocated(1000); growth > 12 {
			t.Errorf("%s: eight times the input allocates %.1f times as much", name, growth)
		}
	}
}
