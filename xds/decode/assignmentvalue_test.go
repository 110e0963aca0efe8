package decode_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// weights are the localities of an assignment as "zone@priority=weight".
func weights(a *resource.Assignment) string {
	var parts []string
	for _, l := range a.Localities {
		parts = append(parts, l.ID.Zone+"@"+string(rune('0'+l.Priority))+"="+string(rune('0'+l.Weight)))
	}
	return strings.Join(parts, " ")
}

const envoyDefaults = "endpoints: hold 2 priorities, and a priority is used until it fails as a whole: " +
	"Envoy's defaults, an overprovisioning factor of 1.4 and a panic threshold of 50 %, are not applied"

const countsEndpoints = "note: endpoints: no locality has a load_balancing_weight: using the number of usable endpoints as the weight of each locality"

func TestWeightsOfLocalities(t *testing.T) {
	const (
		down     = `"health_status":"UNHEALTHY"`
		draining = `"health_status":"DRAINING"`
		healthy  = `"health_status":"HEALTHY"`
	)
	zone := func(name, priority string, endpoints ...string) string {
		return `{"locality":{"zone":"` + name + `"},"priority":` + priority + `,"lb_endpoints":[` + strings.Join(endpoints, ",") + `]}`
	}
	for _, c := range []struct {
		name     string
		body     string
		byHand   string
		server   string
		warnings []string // by hand
	}{
		{
			name:   "as written",
			body:   localities(locality("a", 0, 3, endpoint("h", 80)), locality("b", 0, 5)),
			byHand: "a@0=3 b@0=5", server: "a@0=3 b@0=5",
		},
		{
			name: "none bears one",
			body: localities(
				zone("a", "0", endpoint("h", 80), endpoint("i", 80, healthy), endpoint("j", 80, down)),
				zone("b", "0", endpoint("k", 80, draining)),
				zone("c", "1", endpoint("l", 80))),
			byHand: "a@0=2 b@0=1 c@1=1", server: "",
			warnings: []string{
				"endpoints[1]: has no usable endpoint: it weighs 1, and nothing is picked from it",
				envoyDefaults,
				countsEndpoints,
			},
		},
		{
			name:   "a priority that is all down is still there",
			body:   localities(zone("a", "0", endpoint("h", 80, down)), zone("b", "1", endpoint("i", 80))),
			byHand: "a@0=1 b@1=1", server: "",
			warnings: []string{
				"endpoints[0]: has no usable endpoint: it weighs 1, and nothing is picked from it",
				envoyDefaults,
				countsEndpoints,
			},
		},
		{
			name:   "one bears one",
			body:   localities(locality("a", 0, 3, endpoint("h", 80)), zone("b", "0", endpoint("i", 80)), locality("c", 0, 0)),
			byHand: "a@0=3", server: "a@0=3",
			warnings: []string{
				"endpoints[1].load_balancing_weight: is absent: the locality and its endpoints are left out",
				"endpoints[2].load_balancing_weight: is 0: the locality and its endpoints are left out",
			},
		},
		{
			name:   "one bears 0, which asks for no load",
			body:   localities(locality("a", 0, 0, endpoint("h", 80)), zone("b", "0", endpoint("i", 80), endpoint("j", 80))),
			byHand: "b@0=2", server: "",
			warnings: []string{
				"endpoints[0].load_balancing_weight: is 0: the locality and its endpoints are left out",
				countsEndpoints,
			},
		},
		{
			name:   "all bear 0",
			body:   localities(locality("a", 0, 0, endpoint("h", 80))),
			byHand: "", server: "",
			warnings: []string{"endpoints[0].load_balancing_weight: is 0: the locality and its endpoints are left out"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := accept(t, resource.TypeAssignment, c.body, decode.Options{})
			if got := weights(d.Assignment); got != c.byHand {
				t.Errorf("by hand: %s, want %s", got, c.byHand)
			}
			expect(t, "warnings", append(lines(d.Warnings), noted(d.Notes)...), c.warnings)
			d = accept(t, resource.TypeAssignment, c.body, decode.Options{Origin: decode.FromServer})
			if got := weights(d.Assignment); got != c.server || len(d.Warnings) != 0 {
				t.Errorf("from a server: %s, want %s; warnings %q", got, c.server, lines(d.Warnings))
			}
		})
	}
}

func TestDropsInPartsPerMillion(t *testing.T) {
	const field = "policy.drop_overloads[0].drop_percentage.numerator: "
	for _, c := range []struct {
		numerator   uint32
		denominator string
		want        uint64
		warnings    []string
	}{
		{0, `"HUNDRED"`, 0, nil},
		{7, `"HUNDRED"`, 70_000, nil},
		{7, `"TEN_THOUSAND"`, 700, nil},
		{7, `"MILLION"`, 7, nil},
		{100, `"HUNDRED"`, 1_000_000, nil},
		{101, `"HUNDRED"`, 1_000_000, []string{field + "is 101 of 100: taken as all of them"}},
		{1_000_001, `"MILLION"`, 1_000_000, []string{field + "is 1000001 of 1000000: taken as all of them"}},
		// Times ten thousand this is 4,295, had uint32 held it.
		{430_000, `"HUNDRED"`, 1_000_000, []string{field + "is 430000 of 100: taken as all of them"}},
		{4_294_967_295, `"HUNDRED"`, 1_000_000, []string{field + "is 4294967295 of 100: taken as all of them"}},
	} {
		body := []byte(drop("throttle", c.numerator, c.denominator))
		d := accept(t, resource.TypeAssignment, body, decode.Options{})
		if want := []resource.Drop{{Category: "throttle", PerMillion: c.want}}; !reflect.DeepEqual(d.Assignment.Drops, want) {
			t.Errorf("%d of %s: %+v, want %+v", c.numerator, c.denominator, d.Assignment.Drops, want)
		}
		expect(t, "%d of %s", lines(d.Warnings), c.warnings)
		d, err := decode.One(resource.TypeAssignment, body, decode.Options{Origin: decode.FromServer})
		if err != nil || d.Assignment.Drops[0].PerMillion != c.want || len(d.Warnings) != 0 {
			t.Errorf("from a server: %d of %s: %+v, %v", c.numerator, c.denominator, d, err)
		}
	}
}

func hashKey(value string) string {
	return `"metadata":{"filter_metadata":{"envoy.lb":{"hash_key":` + value + `}}}`
}

func TestWarningsOfAssignments(t *testing.T) {
	for _, c := range []assignmentCase{
		{"nothing odd", localities(locality("a", 0, 1, endpoint("h", 80))), nil},
		{"nothing at all", `{"cluster_name":"orders"}`, nil},
		{
			"endpoints that differ in weight", localities(locality("a", 0, 1,
				endpoint("h", 80), endpoint("i", 80, `"load_balancing_weight":2`), endpoint("j", 80, `"load_balancing_weight":3`))),
			[]string{"endpoints: endpoints differ in load_balancing_weight: round_robin ignores it"},
		},
		{
			"endpoints of the same weight", localities(locality("a", 0, 1,
				endpoint("h", 80, `"load_balancing_weight":2`), endpoint("i", 80, `"load_balancing_weight":2`))), nil,
		},
		{
			"a category twice", `{"cluster_name":"orders","policy":{"drop_overloads":[` +
				overload("a", 1, "0") + "," + overload("b", 1, "0") + "," + overload("a", 1, "0") + `]}}`,
			[]string{`policy.drop_overloads[2].category: is "a" a second time: each drops on its own, and they are counted together`},
		},
		{
			"what has no effect", `{"cluster_name":"orders","policy":{"overprovisioning_factor":140,"endpoint_stale_after":"5s",` +
				`"weighted_priority_health":true},"named_endpoints":{"x":{}}}`,
			[]string{
				"named_endpoints: is not applied: write each endpoint in lb_endpoints",
				"policy.overprovisioning_factor: is not applied: a priority is used until it fails as a whole",
				"policy.endpoint_stale_after: is not applied: endpoints stay until they are replaced",
				"policy.weighted_priority_health: is not applied: a priority is used until it fails as a whole",
			},
		},
		{
			"hash keys", localities(locality("a", 0, 1, endpoint("h", 80, hashKey(`"a"`)), endpoint("i", 80, hashKey(`"b"`))),
				locality("b", 0, 1, endpoint("j", 80, hashKey(`"a"`)), endpoint("k", 80, hashKey("12")))),
			[]string{
				`endpoints[1].lb_endpoints[1].metadata.filter_metadata["envoy.lb"].hash_key: is no string, and not applied: put it in quotes`,
				`endpoints: hold 1 endpoints with the hash_key of another one, such as "a": RING_HASH picks only one endpoint for a hash_key`,
			},
		},
		{
			"a misspelled ttl", localities(locality("a", 0, 1, endpoint("h", 80, `"metadata":{"filter_metadata":{"lbd":{"tll":"30s","ttl":"30s"}}}`))),
			[]string{`endpoints[0].lb_endpoints[0].metadata.filter_metadata["lbd"].tll: has no effect: known is ttl`},
		},
		{
			"a resolver by name", one(`{"endpoint":{"address":{"socket_address":{"address":"h","port_value":80,"resolver_name":"x"}}}}`),
			[]string{"endpoints[0].lb_endpoints[0].endpoint.address.socket_address.resolver_name: is not applied: names are resolved by the system"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := accept(t, resource.TypeAssignment, c.body, decode.Options{})
			expect(t, "warnings", lines(d.Warnings), c.want)
		})
	}
}

func TestEverythingOfAnEndpoint(t *testing.T) {
	body := `{"cluster_name":"orders","endpoints":[{
		"locality":{"region":"r","zone":"z","sub_zone":"s"},"load_balancing_weight":7,"priority":0,
		"lb_endpoints":[{
			"endpoint":{
				"address":{"socket_address":{"address":"2001:db8::1","port_value":8080}},
				"additional_addresses":[{"address":{"socket_address":{"address":"10.0.0.1","port_value":8081}}}],
				"hostname":"orders-7"},
			"health_status":"DEGRADED",
			"load_balancing_weight":3,
			"metadata":{"filter_metadata":{"envoy.lb":{"hash_key":"seven","canary":true}}}},
		{"endpoint":{"address":{"socket_address":{"address":"h","port_value":1}}},
			"metadata":{"filter_metadata":{"envoy.lb":{"hash_key":7}}}}]}]}`
	id := resource.Locality{Region: "r", Zone: "z", SubZone: "s"}
	want := &resource.Assignment{Name: "orders", Localities: []*resource.LocalityEndpoints{{
		ID: id, Weight: 7, Endpoints: []*resource.Endpoint{
			{
				Addresses: []string{"[2001:db8::1]:8080", "10.0.0.1:8081"}, Hostname: "orders-7",
				Health: resource.HealthDegraded, Weight: 3, HashKey: "seven", Locality: id,
			},
			{Addresses: []string{"h:1"}, Weight: 1, Locality: id},
		},
	}}}
	for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
		d := accept(t, resource.TypeAssignment, body, decode.Options{Origin: origin})
		if !reflect.DeepEqual(d.Assignment, want) {
			t.Errorf("origin %d: %+v, want %+v", origin, d.Assignment.Localities[0].Endpoints[0], want.Localities[0].Endpoints[0])
		}
	}
}

// The ttl of an endpoint is for resources that are written by hand.
func TestTTLOfAnEndpoint(t *testing.T) {
	body := func(ttl string) string {
		return one(endpoint("h", 80, `"metadata":{"filter_metadata":{"lbd":{"ttl":`+ttl+`}}}`))
	}
	for ttl, want := range map[string]time.Duration{`"30s"`: 30 * time.Second, `"1s"`: time.Second, `"1h"`: time.Hour, `"1m1.5s"`: 61500 * time.Millisecond} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			if origin == decode.FromServer {
				want = 0
			}
			d := accept(t, resource.TypeAssignment, body(ttl), decode.Options{Origin: origin})
			if got := d.Assignment.Localities[0].Endpoints[0].TTL; got != want {
				t.Errorf("%s of origin %d: %v", ttl, origin, got)
			}
		}
	}
	for _, ttl := range []string{`""`, `"30"`, `"0s"`, `"999ms"`, `"1h1s"`, `"1.0001s"`, `30`, `{}`, `"-30s"`} {
		_, err := decode.One(resource.TypeAssignment, []byte(body(ttl)), decode.Options{Name: "orders"})
		if err == nil || !strings.Contains(err.Error(), `metadata.filter_metadata["lbd"].ttl: must be a duration from 1s to 1h0m0s in whole milliseconds, such as 30s`) {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}

func TestEveryHealthStatus(t *testing.T) {
	for name, want := range map[string]resource.Health{
		"UNKNOWN": resource.HealthUnknown, "HEALTHY": resource.HealthHealthy, "UNHEALTHY": resource.HealthUnhealthy,
		"DRAINING": resource.HealthDraining, "TIMEOUT": resource.HealthTimeout, "DEGRADED": resource.HealthDegraded,
	} {
		d := accept(t, resource.TypeAssignment, one(endpoint("h", 80, `"health_status":"`+name+`"`)), decode.Options{})
		e := d.Assignment.Localities[0].Endpoints[0]
		if e.Health != want || e.Health.String() != name || e.Usable() != (name == "UNKNOWN" || name == "HEALTHY") {
			t.Errorf("%s: %v, usable %v", name, e.Health, e.Usable())
		}
	}
}

// What an older lbd has stored stays as it was, and so does what a server sends.
func TestSpellingsThatStay(t *testing.T) {
	body := localities(locality("a", 0, 1, endpoint("::1", 80), endpoint("0::1", 80), endpoint("H", 80)))
	for _, o := range []decode.Options{{Stored: true}, {Origin: decode.FromServer}} {
		var got []string
		for _, e := range accept(t, resource.TypeAssignment, body, o).Assignment.Localities[0].Endpoints {
			got = append(got, e.Addresses...)
		}
		if want := []string{"[::1]:80", "[0::1]:80", "H:80"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %v", o, got)
		}
	}
}
