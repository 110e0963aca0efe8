package resource_test

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// serving decodes a RouteConfiguration that is written for a test.
func serving(tb testing.TB, body string) *resource.RouteConfiguration {
	tb.Helper()
	d, err := decode.One(resource.TypeRoutes, []byte(body), decode.Options{Origin: decode.FromServer})
	noError(tb, err)
	return d.Routes
}

func TestVirtualHostsAreChosenByTheBestDomain(t *testing.T) {
	host := func(name string, domains ...string) string {
		return fmt.Sprintf(`{"name":%q,"domains":["%s"]}`, name, strings.Join(domains, `","`))
	}
	all := []string{
		host("all", "*"), host("prefix", "foo.*"), host("longer prefix", "foo.bar.*"), host("suffix", "*.com"),
		host("longer suffix", "*.bar.com"), host("exact", "foo.bar.com", "x"), host("exact again", "foo.bar.com"),
	}
	for _, c := range []struct {
		hosts     []string
		authority string
		want      string
	}{
		{all, "foo.bar.com", "exact"},
		{all, "x", "exact"},
		{all, "X", "all"},
		{all, "baz.bar.com", "longer suffix"},
		{all, "foo.com", "suffix"},
		{all, "foo.bar.org", "longer prefix"},
		{all, "foo.org", "prefix"},
		{all, ".com", "suffix"},
		{all, "", "all"},
		{[]string{host("first", "*"), host("second", "*")}, "a", "first"},
		{[]string{host("a", "a.*"), host("other", "b")}, "c", ""},
		{[]string{host("none")}, "a", ""},
		{nil, "a", ""},
		{[]string{host("good", "a"), host("bad", "a*b")}, "a", ""},
		{[]string{host("good", "a"), host("bad", "")}, "a", ""},
	} {
		name := ""
		if h := serving(t, hosts(c.hosts...)).VirtualHost(c.authority); h != nil {
			name = h.Name
		}
		if name != c.want {
			t.Errorf("%q of %v: %q, want %q", c.authority, c.hosts, name, c.want)
		}
	}
}

func TestRoutesMatch(t *testing.T) {
	onHeader := func(condition string) string {
		return matching(`"prefix":""`, `"headers":[{"name":"X",`+condition+`}]`)
	}
	with := func(values ...string) (headers []resource.Header) {
		for _, v := range values {
			headers = append(headers, resource.Header{Name: "w", Value: "other"}, resource.Header{Name: "x", Value: v})
		}
		return headers
	}
	const path = "/a.B/C"
	for _, c := range []struct {
		route   string
		path    string
		headers []resource.Header
		want    string // why not; empty for a match
	}{
		{matching(`"prefix":""`), path, nil, ""},
		{matching(`"prefix":"/a."`), path, nil, ""},
		{matching(`"prefix":"/a.B/C"`), path, nil, ""},
		{matching(`"prefix":"/A."`), path, nil, `the path does not match prefix "/A."`},
		{matching(`"prefix":"/a.B/C/"`), path, nil, `the path does not match prefix "/a.B/C/"`},
		{matching(`"prefix":"/A.b"`, `"case_sensitive":false`), path, nil, ""},
		{matching(`"prefix":"/A.c"`, `"case_sensitive":false`), path, nil, `the path does not match prefix "/A.c", whatever its case`},
		{matching(`"prefix":"/ä"`, `"case_sensitive":false`), "/Ä/b", nil, ""},
		{matching(`"path":"/a.B/C"`), path, nil, ""},
		{matching(`"path":"/a.B/"`), path, nil, `the path does not match path "/a.B/"`},
		{matching(`"path":"/A.b/c"`, `"case_sensitive":false`), path, nil, ""},
		{matching(`"path":"/A.b/"`, `"case_sensitive":false`), path, nil, `the path does not match path "/A.b/", whatever its case`},
		{matching(`"path":"/ä"`, `"case_sensitive":false`), "/Ä", nil, ""},
		{matching(`"path":"/ſ"`, `"case_sensitive":false`), "/S", nil, ""},
		{matching(`"path":"/K"`, `"case_sensitive":false`), "/\u212a", nil, `the path does not match path "/K", whatever its case`},
		{matching(`"path":"/ab"`, `"case_sensitive":false`), "/A", nil, `the path does not match path "/ab", whatever its case`},
		{matching(`"safe_regex":{"regex":"/a..|/b"}`), "/a.B", nil, ""},
		{matching(`"safe_regex":{"regex":"/a..|/b"}`), path, nil, `the path does not match safe_regex "/a..|/b"`},

		{onHeader(`"exact_match":"v"`), path, with("v"), ""},
		{onHeader(`"exact_match":"v"`), path, with("V"), `header x is "V": wanted exact "v"`},
		{onHeader(`"exact_match":"v"`), path, nil, `header x is absent: wanted exact "v"`},
		{onHeader(`"exact_match":""`), path, with(""), ""},
		{onHeader(`"exact_match":"v","invert_match":true`), path, with("V"), ""},
		{onHeader(`"exact_match":"v","invert_match":true`), path, nil, `header x is absent: wanted anything but exact "v"`},
		{onHeader(`"exact_match":"a,b,"`), path, with("a", "b", ""), ""},
		{onHeader(`"prefix_match":"v"`), path, with("vw"), ""},
		{onHeader(`"prefix_match":"v"`), path, with("wv"), `header x is "wv": wanted prefix "v"`},
		{onHeader(`"suffix_match":"v"`), path, with("wv"), ""},
		{onHeader(`"suffix_match":"v"`), path, with("vw"), `header x is "vw": wanted suffix "v"`},
		{onHeader(`"contains_match":"v"`), path, with("wvw"), ""},
		{onHeader(`"contains_match":"v"`), path, with("w"), `header x is "w": wanted contains "v"`},
		{onHeader(`"safe_regex_match":{"regex":"a|b"}`), path, with("b"), ""},
		{onHeader(`"safe_regex_match":{"regex":"a|b"}`), path, with("bb"), `header x is "bb": wanted safe_regex "a|b"`},
		{onHeader(`"string_match":{"exact":"Vé","ignore_case":true}`), path, with("vÉ"), ""},
		{onHeader(`"string_match":{"contains":"V","ignore_case":true}`), path, with("w"), `header x is "w": wanted contains "v", whatever its case`},
		{onHeader(`"range_match":{"start":-3,"end":7}`), path, with("-3"), ""},
		{onHeader(`"range_match":{"start":-3,"end":7}`), path, with("7"), `header x is "7": wanted range [-3, 7)`},
		{onHeader(`"range_match":{"start":-3,"end":7}`), path, with("1.0"), `header x is "1.0": wanted range [-3, 7)`},
		{onHeader(`"range_match":{"start":-3,"end":7},"invert_match":true`), path, with("none"), ""},
		{onHeader(`"range_match":{"start":-3,"end":7},"invert_match":true`), path, nil, `header x is absent: wanted anything but range [-3, 7)`},
		{onHeader(`"range_match":{"start":0,"end":7}`), path, with("1", "2"), `header x is "1,2": wanted range [0, 7)`},
		{onHeader(`"present_match":true`), path, with("v"), ""},
		{onHeader(`"present_match":true`), path, with(""), `header x is "": wanted present`},
		{onHeader(`"present_match":true`), path, with("", ""), ""},
		{onHeader(`"present_match":true`), path, nil, `header x is absent: wanted present`},
		{onHeader(`"present_match":true,"invert_match":true`), path, nil, ""},
		{onHeader(`"present_match":false`), path, with("v"), `header x is "v": wanted absent`},
		{onHeader(`"present_match":false,"invert_match":true`), path, with("v"), ""},

		{matching(`"prefix":""`, `"headers":[{"name":"x-bin","present_match":true}]`), path, []resource.Header{{Name: "x-bin", Value: "v"}}, "header x-bin is absent: wanted present"},
		{matching(`"prefix":""`, `"headers":[{"name":"content-type","exact_match":"application/grpc"}]`), path, nil, ""},
		{matching(`"prefix":""`, `"headers":[{"name":"content-type","exact_match":"text/plain"}]`), path, []resource.Header{{Name: "content-type", Value: "text/plain"}}, ""},
		{
			matching(`"prefix":""`, `"headers":[{"name":"w","exact_match":"other"},{"name":"x","exact_match":"v"}]`), path, with("u"),
			`header x is "u": wanted exact "v"`,
		},
	} {
		host := serving(t, routes(c.route)).VirtualHosts[0]
		trace := &resource.RouteTrace{}
		got := host.Route(&resource.Request{Path: c.path, Headers: c.headers, Trace: trace})
		if (got != nil) != (c.want == "") || trace.Routes[0].Mismatch != c.want {
			t.Errorf("%s, %s %v: %v, %q, want %q", c.route, c.path, c.headers, got, trace.Routes[0].Mismatch, c.want)
		}
		if again := host.Route(&resource.Request{Path: c.path, Headers: c.headers}); again != got {
			t.Errorf("%s: another without a trace", c.route)
		}
	}
}

func TestTheFirstRouteThatMatchesIsTaken(t *testing.T) {
	host := serving(t, routes(
		matching(`"prefix":"/b"`),
		matching(`"prefix":"/"`, `"query_parameters":[{"name":"q"}]`),
		matching(`"prefix":"/a"`, `"headers":[{"name":"x","exact_match":"1"}]`),
		`{"match":{"prefix":"/a"},"redirect":{}}`,
		matching(`"prefix":"/"`),
	)).VirtualHosts[0]
	trace := &resource.RouteTrace{}
	got := host.Route(&resource.Request{Path: "/a", Trace: trace})
	if got != host.Routes[2] || got.Index != 3 || got.Unsupported != "redirect" || len(trace.Routes) != 3 || trace.Routes[2].Route != got {
		t.Errorf("took %+v, tried %+v", got, trace.Routes)
	}
	if none := host.Route(&resource.Request{Path: "a"}); none != nil {
		t.Errorf("took %+v", none)
	}
}

func TestFractionsAreDrawn(t *testing.T) {
	// chance is 64 bits that stand for n of a million.
	chance := func(n uint64) uint64 {
		q, _ := bits.Div64(n, 0, 1_000_000)
		return q + 1<<20
	}
	for _, c := range []struct {
		fraction string
		draw     uint64
		want     bool
	}{
		{`{"numerator":0}`, 0, false},
		{`{"numerator":100}`, math.MaxUint64, true},
		{`{"numerator":25}`, chance(249_999), true},
		{`{"numerator":25}`, chance(250_000), false},
		{`{"numerator":1,"denominator":"MILLION"}`, chance(0), true},
		{`{"numerator":1,"denominator":"MILLION"}`, chance(1), false},
		{`{"numerator":7,"denominator":9}`, chance(6), true},
		{`{"numerator":7,"denominator":9}`, chance(7), false},
		{`{"numerator":4294967295}`, math.MaxUint64, true},
		{`{}`, 0, false},
	} {
		host := serving(t, routes(matching(`"prefix":"/"`, `"runtime_fraction":{"default_value":`+c.fraction+`}`))).VirtualHosts[0]
		draws := 0
		trace := &resource.RouteTrace{}
		r := &resource.Request{Path: "/", Draw: func() uint64 { draws++; return c.draw }, Trace: trace}
		if got := host.Route(r) != nil; got != c.want || draws != 1 {
			t.Errorf("%s: drawn %d times, %v, want %v", c.fraction, draws, got, c.want)
		}
		hi, _ := bits.Mul64(c.draw, 1_000_000)
		if look := trace.Routes[0]; !look.HasDraw || uint64(look.Draw) != hi || (look.Mismatch == "") != c.want {
			t.Errorf("%s: trace %+v", c.fraction, look)
		}
		// What does not match otherwise is not drawn for.
		if r.Path = ""; host.Route(r) != nil || draws != 1 {
			t.Errorf("%s: drawn %d times", c.fraction, draws)
		}
	}
}

func TestClustersAreDrawnByWeight(t *testing.T) {
	route := serving(t, routes(acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":2},{"name":"c","weight":5}]}`))).VirtualHosts[0].Routes[0]
	count := map[string]int{}
	const n = 8000
	for i := range uint64(n) {
		name, _, _ := route.Cluster(i * (math.MaxUint64 / n))
		count[name]++
	}
	for name, want := range map[string]int{"a": n / 8, "b": n / 4, "c": n * 5 / 8} {
		if d := count[name] - want; d < -1 || d > 1 {
			t.Errorf("%s: %d of %d, want %d", name, count[name], n, want)
		}
	}
	if last, _, _ := route.Cluster(math.MaxUint64); last != "c" || len(count) != 3 {
		t.Errorf("the last is %q of %v", last, count)
	}
	if none, _, _ := (&resource.Route{}).Cluster(7); none != "" {
		t.Errorf("a route without clusters has %q", none)
	}
}

func TestRequestsAreHashed(t *testing.T) {
	const channel = 0x0123456789abcdef
	sum := xxhash.Sum64String
	both := func(hashes ...uint64) uint64 {
		var all uint64
		for _, h := range hashes {
			all = bits.RotateLeft64(all, 1) ^ h
		}
		return all
	}
	const x, y, id = `{"header":{"header_name":"X"}}`, `{"header":{"header_name":"y"}}`, `{"filter_state":{"key":"io.grpc.channel_id"}}`
	last := func(policy string) string { return `{"terminal":true,` + policy[1:] }
	headers := []resource.Header{{Name: "x", Value: "1"}, {Name: "z", Value: "a"}, {Name: "x", Value: "2"}, {Name: "z-bin", Value: "1"}}
	for _, c := range []struct {
		policies string
		want     uint64
		ok       bool
		asked    int
	}{
		{"", 0, false, 0},
		{x, sum("1,2"), true, 1},
		{y, 0, false, 1},
		{`{"header":{"header_name":"z-bin"}}`, 0, false, 1},
		{`{"header":{"header_name":"content-type"}}`, sum("application/grpc"), true, 1},
		{id, channel, true, 1},
		{x + "," + id, both(sum("1,2"), channel), true, 2},
		{x + "," + x, both(sum("1,2"), sum("1,2")), true, 2},
		{y + "," + x, sum("1,2"), true, 2},
		{last(x) + "," + id, sum("1,2"), true, 1},
		{last(y) + "," + id, channel, true, 2},
		{x + "," + last(y) + "," + id, both(sum("1,2"), channel), true, 3},
		{last(id) + "," + x, channel, true, 1},
		{y + "," + last(x) + "," + id, sum("1,2"), true, 2},
		{`{"header":{"header_name":"z","regex_rewrite":{"pattern":{"regex":"(a)"},"substitution":"${1}b"}}}`, sum("ab"), true, 1},
		{`{"cookie":{"name":"c"}},` + x, sum("1,2"), true, 1},
	} {
		route := serving(t, routes(acting(`"cluster":"a"`, `"hash_policy":[`+c.policies+`]`))).VirtualHosts[0].Routes[0]
		trace := &resource.RouteTrace{}
		hash, ok := route.RequestHash(&resource.Request{Headers: headers, Trace: trace}, channel)
		if hash != c.want || ok != c.ok || len(trace.Hash) != c.asked {
			t.Errorf("%s: %x, %v, %+v; want %x, %v, %d asked", c.policies, hash, ok, trace.Hash, c.want, c.ok, c.asked)
		}
	}
}

// manyRoutes is the JSON of a RouteConfiguration with n routes, none for the same
// path.
func manyRoutes(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"route-%d","match":{"prefix":"/package.Service%d/","headers":[{"name":"x-tenant","string_match":{"exact":"t"}}]},`+
			`"route":{"weighted_clusters":{"clusters":[{"name":"a-%d","weight":90},{"name":"b-%d","weight":10}]},"hash_policy":[{"header":{"header_name":"x-user"}}]}}`, i, i, i, i)
	}
	return routes(list...)
}

func BenchmarkDecodeRoutes(b *testing.B) {
	d, err := decode.One(resource.TypeRoutes, []byte(manyRoutes(10_000)), decode.Options{})
	noError(b, err)
	for _, f := range []decode.Format{decode.FormatProtobuf, decode.FormatJSON} {
		for name, origin := range map[string]decode.Origin{"by hand": decode.ByHand, "from a server": decode.FromServer} {
			b.Run(f.String()+" "+name, func(b *testing.B) {
				body, err := decode.Render(resource.TypeRoutes, d.Raw, f)
				noError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := decode.One(resource.TypeRoutes, body, decode.Options{Format: f, Origin: origin}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			host := serving(b, manyRoutes(n)).VirtualHosts[0]
			r := &resource.Request{
				Path:    fmt.Sprintf("/package.Service%d/Method", n-1),
				Headers: []resource.Header{{Name: "x-user", Value: "u"}, {Name: "x-tenant", Value: "t"}},
			}
			b.ReportAllocs()
			for b.Loop() {
				route := host.Route(r)
				hash, ok := route.RequestHash(r, 1)
				if name, _, _ := route.Cluster(hash); !ok || name == "" {
					b.Fatal("no cluster")
				}
			}
		})
	}
}
