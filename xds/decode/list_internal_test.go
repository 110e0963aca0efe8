package decode

import (
	"strings"
	"testing"

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
		"escapes and characters": {
			`["\u0031\u0030.0.0.1:1 \u0065u\u002fa","10.0.0.2:1\tü/é"]`, "10.0.0.1:1 eu/a\n10.0.0.2:1 ü/é",
			`[{"locality": {"region": "eu", "zone": "a"}, "lb_endpoints": [` + endpoint("10.0.0.1", "1", "") + `]},
				{"locality": {"region": "ü", "zone": "é"}, "lb_endpoints": [` + endpoint("10.0.0.2", "1", "") + `]}]`,
		},
		"none": {`[]`, "", `[]`},
	} {
		o := Options{Origin: ByHand, Name: "orders"}
		want, err := One(resource.TypeAssignment, []byte(`{"endpoints": `+tt.want+`}`), o)
		if err != nil {
			t.Fatal(name, err)
		}
		bodies := map[Format]string{FormatJSON: tt.list, FormatYAML: tt.list, FormatText: tt.text}
		if tt.text == "" {
			delete(bodies, FormatText)
		}
		for o.Format, tt.list = range bodies {
			for _, o.reflective = range []bool{false, true} {
				got, err := One(resource.TypeAssignment, []byte(tt.list), o)
				if err != nil {
					t.Errorf("%s, %v: %v", name, o.Format, err)
				} else if string(got.Raw) != string(want.Raw) {
					t.Errorf("%s, %v: %v, want %v", name, o.Format, got.Assignment, want.Assignment)
				}
			}
		}
	}
}

// TestOnePassReadsLists: what has to be reported is for the other reader.
func TestOnePassReadsLists(t *testing.T) {
	for body, want := range map[string]bool{
		`[]`: true, ` [ "10.0.0.7:8080" , "h:1 2 eu\/a" ] `: true, `["\u0068:1"]`: true,
		``: false, `[`: false, `["h:1"`: false, `["h:1",]`: false, `["h:1"] []`: false, `["h:1" "h:2"]`: false, `["h"]`: false, `[""]`: false, `[1]`: false, `[null]`: false, `[["h:1"]]`: false,
		`["h:1\x"]`: false, `["h:1 eu/\ud800"]`: false, "[\"h:1 eu/\xff\"]": false,
	} {
		l := endpointList{report: Options{}.begin(resource.Key{Type: resource.TypeAssignment})}
		if l.scanJSON([]byte(body)) != want {
			t.Errorf("%s: read is %v", body, !want)
		}
	}
}

// TestLongListsEnd: the reading of a list ends with the most entries that JSON may have.
func TestLongListsEnd(t *testing.T) {
	const more = 1 << 16
	l := endpointList{report: Options{}.begin(resource.Key{Type: resource.TypeAssignment})}
	if l.scanJSON([]byte(`[":1"`+strings.Repeat(`,":1"`, MaxJSONEntries+more)+"]")) || l.entries > MaxJSONEntries {
		t.Errorf("%d entries were read", l.entries)
	}
}

// FuzzLists compares the decoders on lists.
func FuzzLists(f *testing.F) {
	formats := []Format{FormatJSON, FormatYAML, FormatText}
	for i, body := range []string{
		`["10.0.0.7:8080","[::1]:80 3","h:1 2 eu\/a/b"," \u0068:2\teu/a "]`, "- 10.0.0.7:8080\n- '[::1]:80 3'\n- h:1 2 eu/a/b\n", "# two\n\n10.0.0.7:8080\n[::1]:80 3 eu/a\r\n",
	} {
		f.Add([]byte(body), uint8(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, format uint8) {
		compareDecoders(t, body, Options{Format: formats[int(format)%len(formats)], Name: "orders"})
	})
}
