package decode_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// endpoint is the JSON of an LbEndpoint with an address and further fields.
func endpoint(address string, port int, more ...string) string {
	fields := append([]string{fmt.Sprintf(
		`"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%d}}}`, address, port)}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

// also is the JSON of an LbEndpoint with an additional address.
func also(address, additional string) string {
	return fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}},`+
		`"additional_addresses":[{"address":{"socket_address":{"address":%q,"port_value":80}}}]}}`, address, additional)
}

// locality is the JSON of a LocalityLbEndpoints in a zone.
func locality(zone string, priority, weight int, endpoints ...string) string {
	return fmt.Sprintf(`{"locality":{"zone":%q},"priority":%d,"load_balancing_weight":%d,"lb_endpoints":[%s]}`,
		zone, priority, weight, strings.Join(endpoints, ","))
}

// bare is the JSON of a LocalityLbEndpoints as people write it.
func bare(endpoints ...string) string {
	return `{"lb_endpoints":[` + strings.Join(endpoints, ",") + `]}`
}

// localities is the JSON of a ClusterLoadAssignment.
func localities(l ...string) string {
	return `{"cluster_name":"orders","endpoints":[` + strings.Join(l, ",") + `]}`
}

// one is localities with one locality that has one endpoint.
func one(endpoint string) string {
	return localities(locality("a", 0, 1, endpoint))
}

// drop is the JSON of a ClusterLoadAssignment with one drop category.
func drop(category string, numerator uint32, denominator string) string {
	return fmt.Sprintf(`{"cluster_name":"orders","policy":{"drop_overloads":[%s]}}`, overload(category, numerator, denominator))
}

func overload(category string, numerator uint32, denominator string) string {
	return fmt.Sprintf(`{"category":%q,"drop_percentage":{"numerator":%d,"denominator":%s}}`, category, numerator, denominator)
}

// accept decodes a body that must be valid.
func accept[B string | []byte](tb testing.TB, kind resource.Type, body B, o decode.Options) *decode.Decoded {
	tb.Helper()
	d, err := decode.One(kind, []byte(body), o)
	noError(tb, err)
	return d
}

// sameSet reports whether two lists have the same elements, in any order.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// expect compares two lists of texts, in any order.
func expect(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	if !sameSet(got, want) {
		tb.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lines writes problems as "field: reason".
func lines(problems []decode.Problem) []string {
	var l []string
	for _, p := range problems {
		l = append(l, p.String())
	}
	return l
}

// noted marks notes, to list them after warnings.
func noted(notes []decode.Problem) []string {
	l := lines(notes)
	for i := range l {
		l[i] = "note: " + l[i]
	}
	return l
}

// refusals returns the broken rules in err, which must be an InvalidError or nil.
func refusals(t *testing.T, err error, key string) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var invalid *decode.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("err = %v, want an InvalidError", err)
	}
	for _, p := range invalid.Problems {
		if p.Resource != key {
			t.Errorf("problem of %q, want %q", p.Resource, key)
		}
	}
	return lines(invalid.Problems)
}

type assignmentCase struct {
	name string
	body string
	want []string // "field: reason", all of them
}

func TestRulesOfAssignmentsForAll(t *testing.T) {
	const most = 1<<32 - 1
	cases := []assignmentCase{
		{"empty", `{"cluster_name":"orders"}`, nil},
		{"two priorities", localities(locality("a", 0, 1, endpoint("h", 80)), locality("a", 1, 1, endpoint("i", 80))), nil},
		{
			"endpoint of weight 0", one(endpoint("h", 80, `"load_balancing_weight":0`)),
			[]string{"endpoints[0].lb_endpoints[0].load_balancing_weight: is 0: it must be at least 1, or absent, which is 1"},
		},
		{
			"endpoint weights sum to the most there is",
			localities(locality("a", 0, 1, endpoint("h", 80), endpoint("i", 80, `"load_balancing_weight":4294967294`))), nil,
		},
		{
			"endpoint weights sum to one more",
			localities(locality("a", 0, 1, endpoint("h", 80), endpoint("i", 80, `"load_balancing_weight":4294967295`))),
			[]string{"endpoints[0].lb_endpoints: their load_balancing_weights sum to 4294967296, which exceeds 4294967295"},
		},
		{"locality weights sum to the most there is", localities(locality("a", 0, most-1), locality("b", 0, 1), locality("c", 1, most)), nil},
		{
			"locality weights sum to one more",
			localities(locality("a", 0, most), locality("b", 0, 1), locality("c", 0, 1)),
			[]string{"endpoints[1].load_balancing_weight: makes the sum of the localities' weights in priority 0 exceed 4294967295"},
		},
		{
			"an address twice in a locality", localities(locality("a", 0, 1, endpoint("h", 80), endpoint("h", 81), endpoint("h", 80))),
			[]string{"endpoints[0].lb_endpoints[2].endpoint.address: is h:80, which endpoints[0].lb_endpoints[0] has already"},
		},
		{
			"an address in two priorities", localities(locality("a", 0, 1, endpoint("h", 80)), locality("a", 1, 1, endpoint("h", 80))),
			[]string{"endpoints[1].lb_endpoints[0].endpoint.address: is h:80, which endpoints[0].lb_endpoints[0] has already"},
		},
		{
			"an additional address that is the endpoint's own", one(also("h", "h")),
			[]string{"endpoints[0].lb_endpoints[0].endpoint.additional_addresses[0].address: is h:80, which the same endpoint has already"},
		},
		{
			"an additional address that is another's own", localities(locality("a", 0, 1, endpoint("h", 80)), locality("b", 0, 1, also("i", "h"))),
			[]string{"endpoints[1].lb_endpoints[0].endpoint.additional_addresses[0].address: is h:80, which endpoints[0].lb_endpoints[0] has already"},
		},
		{
			"an own address that is another's additional one", localities(locality("a", 0, 1, also("h", "i"), endpoint("i", 80))),
			[]string{"endpoints[0].lb_endpoints[1].endpoint.address: is i:80, which endpoints[0].lb_endpoints[0] has already"},
		},
		{
			"a locality twice in a priority", localities(locality("a", 0, 1), locality("b", 0, 1), locality("a", 0, 1)),
			[]string{"endpoints[2].locality: /a/ is in priority 0 twice: endpoints[0] is the first"},
		},
		{
			"the empty locality twice in a priority", localities(
				`{"locality":{},"load_balancing_weight":1}`, `{"locality":{},"load_balancing_weight":1}`),
			[]string{"endpoints[1].locality: is the empty locality in priority 0, as endpoints[0] is: join their lb_endpoints, or give each a locality of its own"},
		},
		{
			"no priority 0", localities(locality("a", 1, 1)),
			[]string{"endpoints[0].priority: is 1, and no locality with a weight has priority 0: priorities must begin at 0 and leave none out"},
		},
		{
			"two gaps", localities(locality("a", 9, 1), locality("b", 0, 1), locality("c", 2, 1)),
			[]string{
				"endpoints[2].priority: is 2, and no locality with a weight has priority 1: priorities must begin at 0 and leave none out",
				"endpoints[0].priority: is 9, and no locality with a weight has priorities 3 to 8: priorities must begin at 0 and leave none out",
			},
		},
		{
			"a gap that a left-out locality leaves", localities(locality("a", 0, 1), locality("b", 1, 0), locality("c", 2, 1)),
			[]string{"endpoints[2].priority: is 2, and no locality with a weight has priority 1: priorities must begin at 0 and leave none out"},
		},
		{
			"the highest priority alone", localities(locality("a", most, 1)),
			[]string{"endpoints[0].priority: is 4294967295, and no locality with a weight has priorities 0 to 4294967294: priorities must begin at 0 and leave none out"},
		},
		{
			"the highest priority after 0", localities(locality("a", 0, 1), locality("b", most, 1)),
			[]string{"endpoints[1].priority: is 4294967295, and no locality with a weight has priorities 1 to 4294967294: priorities must begin at 0 and leave none out"},
		},
		{
			"a left-out locality is not judged", localities(locality("a", 0, 1),
				locality("a", 0, 0, endpoint("h", 80, `"load_balancing_weight":0`), endpoint("h", 80), endpoint("", 0))), nil,
		},
		{
			"an unknown denominator", drop("throttle", 1, "7"),
			[]string{"policy.drop_overloads[0].drop_percentage.denominator: is 7, which is none of HUNDRED, TEN_THOUSAND, MILLION"},
		},
		{
			"an unknown denominator by name", drop("throttle", 1, `"BILLION"`),
			[]string{`policy.drop_overloads[0].drop_percentage.denominator: is "BILLION", which is none of HUNDRED, TEN_THOUSAND, MILLION`},
		},
		{
			"every rule is listed", localities(
				locality("a", 0, 1, endpoint("h", 80, `"load_balancing_weight":0`), endpoint("h", 80)),
				locality("a", 0, 1), locality("b", 2, 1)),
			[]string{
				"endpoints[0].lb_endpoints[0].load_balancing_weight: is 0: it must be at least 1, or absent, which is 1",
				"endpoints[0].lb_endpoints[1].endpoint.address: is h:80, which endpoints[0].lb_endpoints[0] has already",
				"endpoints[1].locality: /a/ is in priority 0 twice: endpoints[0] is the first",
				"endpoints[2].priority: is 2, and no locality with a weight has priority 1: priorities must begin at 0 and leave none out",
			},
		},
	}
	for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				_, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{Origin: origin})
				expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), c.want)
			})
		}
	}
}

func TestRulesOfAssignmentsByHand(t *testing.T) {
	const at = "endpoints[0].lb_endpoints[0].endpoint"
	const write = "{socket_address: {address: 10.0.0.1, port_value: 8080}}"
	with := func(address string) string { return one(`{"endpoint":{"address":` + address + `}}`) }
	for _, c := range []assignmentCase{
		{"a host name", one(endpoint("orders-7.example", 80)), nil},
		{"a host name with a last dot", one(endpoint("orders_7.example.", 80)), nil},
		{"an IPv6 address", one(endpoint("2001:db8::1", 80)), nil},
		{"an IPv6 address with zone", one(endpoint("fe80::1%eth0", 80)), nil},
		{"the highest port", one(endpoint("h", 65535)), nil},
		{"empty address", one(endpoint("", 80)), []string{at + ".address.socket_address.address: is empty: it must be an IP address or a host name"}},
		{"port in the address", one(endpoint("h:1", 80)), []string{at + `.address.socket_address.address: is "h:1": the port belongs in port_value`}},
		{"brackets", one(endpoint("[::1]", 80)), []string{at + `.address.socket_address.address: is "[::1]": an IPv6 address has no brackets here`}},
		{"no IPv4 address", one(endpoint("10.0.0.256", 80)), []string{at + `.address.socket_address.address: is "10.0.0.256", which is neither an IP address nor a host name`}},
		{"a URL", one(endpoint("http://h/", 80)), []string{at + `.address.socket_address.address: is "http://h/", which is neither an IP address nor a host name`}},
		{"an empty label", one(endpoint("a..b", 80)), []string{at + `.address.socket_address.address: is "a..b", which is neither an IP address nor a host name`}},
		{"port 0", one(endpoint("h", 0)), []string{at + ".address.socket_address.port_value: is 0: it must be from 1 to 65535"}},
		{"port 65536", one(endpoint("h", 65536)), []string{at + ".address.socket_address.port_value: is 65536: it must be from 1 to 65535"}},
		{"no port", with(`{"socket_address":{"address":"h"}}`), []string{at + ".address.socket_address.port_value: is absent: it must be from 1 to 65535"}},
		{"named port", with(`{"socket_address":{"address":"h","named_port":"http"}}`), []string{at + ".address.socket_address.named_port: is not supported: write the number in port_value"}},
		{"pipe", with(`{"pipe":{"path":"/run/orders"}}`), []string{at + ".address.pipe: is not supported: write " + write}},
		{"internal address", with(`{"envoy_internal_address":{"server_listener_name":"x"}}`), []string{at + ".address.envoy_internal_address: is not supported: write " + write}},
		{"no socket address", with(`{}`), []string{at + ".address.socket_address: is absent: write address: " + write}},
		{"no address", one(`{"endpoint":{}}`), []string{at + ".address.socket_address: is absent: write address: " + write}},
		{"no endpoint", one(`{}`), []string{at + ": is absent: write endpoint: {address: " + write + "}"}},
		{"endpoint by name", one(`{"endpoint_name":"x"}`), []string{"endpoints[0].lb_endpoints[0].endpoint_name: is not supported: write the endpoint itself, endpoint: {address: " + write + "}"}},
		{
			"additional addresses that cannot connect", one(`{"endpoint":{"address":{"socket_address":{"address":"h","port_value":80}},` +
				`"additional_addresses":[{"address":{"socket_address":{"address":"i","port_value":80}}},{"address":{"pipe":{"path":"p"}}},{}]}}`),
			[]string{
				at + ".additional_addresses[1].address.pipe: is not supported: write " + write,
				at + ".additional_addresses[2].address.socket_address: is absent: write address: " + write,
			},
		},
		{
			"17 additional addresses", one(`{"endpoint":{"additional_addresses":[` + strings.Repeat("{},", 16) + `{}]}}`),
			[]string{at + ".additional_addresses: holds 17 addresses, of at most 16"},
		},
		{"an unknown health status", one(endpoint("h", 80, `"health_status":9`)), []string{"endpoints[0].lb_endpoints[0].health_status: is 9, which is no health status"}},
		{
			"an unknown health status by name", one(endpoint("h", 80, `"health_status":"HEALTY"`)),
			[]string{`endpoints[0].lb_endpoints[0].health_status: is "HEALTY", which is none of UNKNOWN, HEALTHY, UNHEALTHY, DRAINING, TIMEOUT, DEGRADED`},
		},
		{
			"two groups without locality", localities(bare(endpoint("h", 80)), bare(endpoint("i", 80))),
			[]string{"endpoints[1].locality: is the empty locality in priority 0, as endpoints[0] is: join their lb_endpoints, or give each a locality of its own"},
		},
		{
			"endpoints of other kinds", localities(`{"load_balancing_weight":1,"load_balancer_endpoints":{}}`,
				`{"locality":{"zone":"a"},"load_balancing_weight":1,"leds_cluster_locality_config":{}}`),
			[]string{
				"endpoints[0].load_balancer_endpoints: is not supported: write lb_endpoints",
				"endpoints[1].leds_cluster_locality_config: is not supported: write lb_endpoints",
			},
		},
		{"a drop without category", drop("", 1, "0"), []string{"policy.drop_overloads[0].category: required: drops are counted by category"}},
		{"a category of 256 bytes", drop(strings.Repeat("x", 256), 1, "0"), nil},
		{"a category of 257 bytes", drop(strings.Repeat("x", 257), 1, "0"), []string{"policy.drop_overloads[0].category: is 257 bytes long, of at most 256"}},
		{"a category with a line break", `{"cluster_name":"orders","policy":{"drop_overloads":[{"category":"a\nb"}]}}`, []string{"policy.drop_overloads[0].category: holds the character U+000A, which cannot be printed"}},
		{"101 categories", `{"cluster_name":"orders","policy":{"drop_overloads":[` + strings.Repeat("{},", 100) + `{}]}}`, []string{"policy.drop_overloads: holds 101 categories, of at most 100"}},
		{"100,001 endpoints", localities(bare(strings.Repeat("{},", 100_000) + "{}")), []string{"endpoints: holds 100001 endpoints, of at most 100000"}},
		{"10,001 localities", localities(strings.Repeat("{},", 10_000) + "{}"), []string{"endpoints: holds 10001 localities, of at most 10000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{})
			expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), c.want)
		})
	}
}

func TestHostnameLimits(t *testing.T) {
	with := func(hostname string) string {
		return one(fmt.Sprintf(`{"endpoint":{"hostname":%s,"address":{"socket_address":{"address":"h","port_value":80}}}}`, hostname))
	}
	const field = "endpoints[0].lb_endpoints[0].endpoint.hostname: "
	for hostname, want := range map[string][]string{
		`"` + strings.Repeat("x", 255) + `"`: nil,
		`"` + strings.Repeat("x", 256) + `"`: {field + "is 256 bytes long, of at most 255"},
		`"a\u0000b"`:                         {field + "holds the character U+0000, which cannot be printed"},
	} {
		_, err := decode.One(resource.TypeAssignment, []byte(with(hostname)), decode.Options{})
		expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), want)
	}
}

func TestLocalityLimits(t *testing.T) {
	with := func(name string) []byte {
		return []byte(localities(`{"locality":{` + name + `},"load_balancing_weight":1,"lb_endpoints":[` + endpoint("h", 80) + `]}`))
	}
	const field = "endpoints[0].locality."
	for name, want := range map[string][]string{
		`"zone":"` + strings.Repeat("x", 256) + `"`: nil,
		`"zone":"` + strings.Repeat("x", 257) + `"`: {field + "zone: is 257 bytes long, of at most 256"},
		`"region":"a\nb","sub_zone":"a\u0000b"`: {
			field + "region: holds the character U+000A, which cannot be printed",
			field + "sub_zone: holds the character U+0000, which cannot be printed",
		},
	} {
		_, err := decode.One(resource.TypeAssignment, with(name), decode.Options{})
		expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), want)
		if _, err := decode.One(resource.TypeAssignment, with(name), decode.Options{Origin: decode.FromServer}); err != nil {
			t.Errorf("a server is not judged by it: %v", err)
		}
	}
}

// What a server sends is taken as gRPC takes it, and fails to connect.
func TestServersMaySendWhatCannotConnect(t *testing.T) {
	body := localities(locality("a", 0, 1,
		endpoint("", 0), endpoint("h", 70000), `{"endpoint":{"address":{"pipe":{"path":"p"}},"hostname":"a\nb"},"health_status":256}`))
	_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Origin: decode.FromServer})
	if got, want := refusals(t, err, "ClusterLoadAssignment/orders"), []string{
		"endpoints[0].lb_endpoints[2].endpoint.address: is :0, which endpoints[0].lb_endpoints[0] has already",
	}; !reflect.DeepEqual(got, want) {
		t.Fatalf("refusals %q, want %q", got, want)
	}
	body = strings.Replace(body, endpoint("", 0)+",", "", 1)
	d := accept(t, resource.TypeAssignment, body, decode.Options{Origin: decode.FromServer})
	if got := d.Assignment.Localities[0].Endpoints[0].Addresses[0]; got != "h:70000" {
		t.Errorf("address %q", got)
	}
	if e := d.Assignment.Localities[0].Endpoints[1]; e.Addresses[0] != ":0" || e.Usable() || e.Health.String() != "UNRECOGNIZED" {
		t.Errorf("endpoint %+v, want the address :0, and an unknown health that is not usable", e)
	}
	if len(d.Warnings) != 0 {
		t.Errorf("warnings %q", lines(d.Warnings))
	}
}

func TestServersMustNameLocalities(t *testing.T) {
	body := localities(
		`{"load_balancing_weight":1,"lb_endpoints":[`+endpoint("h", 80)+`]}`,
		`{"load_balancing_weight":1}`,
		`{}`) // without weight: left out before it is judged
	_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Origin: decode.FromServer})
	want := []string{"endpoints[0].locality: is absent", "endpoints[1].locality: is absent"}
	expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), want)
}

func TestNamesOfAssignments(t *testing.T) {
	for _, c := range []struct {
		name        string
		own         string
		options     decode.Options
		want, warns []string
	}{
		{"absent", "", decode.Options{}, []string{"cluster_name: is empty"}, nil},
		{"absent, set by options", "", decode.Options{Name: "orders"}, nil, []string{`note: cluster_name: is absent: taken as "orders"`}},
		{"same as in options", "orders", decode.Options{Name: "orders"}, nil, nil},
		{"other than in options", "billing", decode.Options{Name: "orders"}, []string{`cluster_name: is "billing", and should be "orders" or absent`}, nil},
		{"odd but printable", "/a:b%2F é", decode.Options{}, nil, nil},
		{"of 512 bytes", strings.Repeat("x", 512), decode.Options{}, nil, nil},
		{"of 513 bytes", strings.Repeat("x", 513), decode.Options{}, []string{"cluster_name: is 513 bytes long, of at most 512"}, nil},
		{"with a line break", "a\nb", decode.Options{}, []string{"cluster_name: holds the character U+000A, which cannot be printed"}, nil},
		{"reserved", "_other", decode.Options{}, []string{`cluster_name: is "_other", which is reserved: metrics use it for the clusters without series of their own`}, nil},
		{"reserved, from a server", "_other", decode.Options{Origin: decode.FromServer}, nil, nil},
		{"set by options, invalid UTF-8", "", decode.Options{Name: "\xff"}, []string{"cluster_name: is not valid UTF-8"}, nil},
		{"absent, from a server", "", decode.Options{Origin: decode.FromServer, Name: "orders"}, []string{"cluster_name: is empty"}, nil},
		{"with a line break, from a server", "a\nb", decode.Options{Origin: decode.FromServer, Name: "orders"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := decode.One(resource.TypeAssignment, fmt.Appendf(nil, `{"cluster_name":%q,"policy":{}}`, c.own), c.options)
			if invalid, ok := errors.AsType[*decode.InvalidError](err); ok {
				expect(t, "refusals", lines(invalid.Problems), c.want)
				return
			}
			if err != nil || c.want != nil {
				t.Fatalf("err = %v, want %q", err, c.want)
			}
			want := c.own
			if want == "" {
				want = c.options.Name
			}
			if d.Assignment.Name != want {
				t.Errorf("name %q, want %q", d.Assignment.Name, want)
			}
			expect(t, "warnings", append(lines(d.Warnings), noted(d.Notes)...), c.warns)
		})
	}
}
