package difference_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// item decodes a resource of the name "orders" from YAML.
func item(t *testing.T, kind resource.Type, text string) resource.Item {
	t.Helper()
	i := resource.Item{Key: resource.Key{Type: kind, Name: "orders"}}
	if text == "" {
		return i
	}
	i.Raw = []byte(text)
	i, _, err := decode.Item(i, decode.Options{Origin: decode.ByHand, Format: decode.FormatYAML, Name: i.Key.Name})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// locality is one in us-east1.
func locality(zone string, weight, priority int, endpoints ...string) string {
	return fmt.Sprintf("{locality: {region: us-east1, zone: %s}, load_balancing_weight: %d, priority: %d, lb_endpoints: [%s]}",
		zone, weight, priority, strings.Join(endpoints, ", "))
}

func endpoint(host, more string) string {
	return fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: 80}}}%s}", host, more)
}

func assignment(drop int, localities ...string) string {
	policy := ""
	if drop > 0 {
		policy = fmt.Sprintf("policy: {drop_overloads: [{category: throttle, drop_percentage: {numerator: %d}}]}, ", drop)
	}
	return "{" + policy + "endpoints: [" + strings.Join(localities, ", ") + "]}"
}

func TestDifferencesInWords(t *testing.T) {
	a := func(n int) string {
		var es []string
		for i := range n {
			es = append(es, endpoint(fmt.Sprintf("a-%d", i), ""))
		}
		return locality("a", 1, 0, es...)
	}
	b := func(weight int) string { return locality("b", weight, 0, endpoint("b", "")) }
	route := func(cluster string) string {
		return "{virtual_hosts: [{name: all, domains: ['*'], routes: [{match: {prefix: ''}, route: {cluster: " + cluster + "}}]}]}"
	}
	for name, c := range map[string]struct {
		kind                resource.Type
		before, after, want string
	}{
		"nothing": {resource.TypeAssignment, assignment(5, a(1)), assignment(5, a(1)), ""},
		"as in the documentation": {
			resource.TypeAssignment, assignment(5, a(4), b(3)), assignment(10, a(1), b(1)),
			"orders: 3 endpoints removed from us-east1/a; weight of us-east1/b 3 → 1; drop throttle 5 % → 10 %",
		},
		"added":       {resource.TypeAssignment, "", assignment(0, a(2)), "orders: added with 2 usable endpoints"},
		"removed":     {resource.TypeAssignment, assignment(0, a(1)), "", "orders: removed with 1 usable endpoint"},
		"an endpoint": {resource.TypeAssignment, assignment(0, a(1)), assignment(0, a(2)), "orders: 1 endpoint added to us-east1/a (a-1:80)"},
		"one in the middle": {
			resource.TypeAssignment, assignment(0, locality("a", 1, 0, endpoint("h", ""), endpoint("i", ""), endpoint("j", ""))),
			assignment(0, locality("a", 1, 0, endpoint("h", ""), endpoint("k", ""), endpoint("j", ""))),
			"orders: 1 endpoint removed from us-east1/a; 1 endpoint added to us-east1/a (k:80)",
		},
		"a locality":       {resource.TypeAssignment, assignment(0, a(1), b(1)), assignment(0, a(1)), "orders: locality us-east1/b removed with 1 endpoint"},
		"a priority":       {resource.TypeAssignment, assignment(0, a(1), b(1)), assignment(0, a(1), locality("b", 1, 1, endpoint("b", ""))), "orders: priority of us-east1/b 0 → 1"},
		"health":           {resource.TypeAssignment, assignment(0, a(1)), assignment(0, locality("a", 1, 0, endpoint("a-0", ", health_status: UNHEALTHY"))), "orders: health of 1 endpoint in us-east1/a changed (a-0:80 UNKNOWN → UNHEALTHY)"},
		"endpoint weights": {resource.TypeAssignment, assignment(0, a(1)), assignment(0, locality("a", 1, 0, endpoint("a-0", ", load_balancing_weight: 3"))), "orders: weight of 1 endpoint in us-east1/a changed"},
		"a drop that goes": {resource.TypeAssignment, assignment(5, a(1)), assignment(0, a(1)), "orders: drop throttle 5 % removed"},
		"order":            {resource.TypeAssignment, assignment(0, a(1), b(1)), assignment(0, b(1), a(1)), "orders: order or attributes of endpoints changed"},
		"a Cluster": {
			resource.TypeCluster, "type: EDS", "{type: EDS, eds_cluster_config: {service_name: other}, lb_policy: LEAST_REQUEST, circuit_breakers: {thresholds: [{max_requests: 7}]}, metadata: {filter_metadata: {lbd: {max_backoff: 10s}}}}",
			"Cluster/orders: endpoints of orders → other; max_requests 1024 → 7; policy xds_wrr_locality_experimental/round_robin → least_request_experimental; max_backoff 0s → 10s",
		},
		"outlier detection": {resource.TypeCluster, "type: EDS", "{type: EDS, outlier_detection: {}}", "Cluster/orders: outlier_detection changed"},
		"a route":           {resource.TypeRoutes, route("a"), route("b"), `RouteConfiguration/orders: route 0 of virtual host "all": a → b`},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := item(t, c.kind, c.before), item(t, c.kind, c.after)
			if got := (difference.Version{Before: before, After: after}).Sentence(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if after.Assignment == nil {
				return
			}
			after.Assignment = after.Assignment.Reuse(before.Assignment)
			if got := (difference.Version{Before: before, After: after}).Sentence(); got != c.want {
				t.Errorf("with shared endpoints: got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestADifferenceIsBounded(t *testing.T) {
	describe := func(zone string) string {
		weighted := func(weight int) resource.Item {
			var ls []string
			for i := range 100 {
				ls = append(ls, locality(fmt.Sprint(zone, i), weight, 0, endpoint(fmt.Sprintf("h-%d", i), "")))
			}
			return item(t, resource.TypeAssignment, assignment(0, ls...))
		}
		return difference.Describe(weighted(1), weighted(2))
	}
	if got := describe(strings.Repeat("é", 50)); len(got) > difference.MaxBytes || !strings.HasSuffix(got, "…") || strings.Contains(got, "\ufffd") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got, want := describe("z"), fmt.Sprintf("; and %d more", 100-difference.MaxParts); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, which should end with %q", got, want)
	}
	var all difference.Versions
	for i := range difference.MaxListed + 2 {
		v := difference.Version{After: item(t, resource.TypeAssignment, assignment(0, locality("z", 1, 0, endpoint("h", ""))))}
		v.After.Key.Name = fmt.Sprint("c", i)
		all = append(all, v)
	}
	described := 0
	for _, c := range all.Changes() {
		if c.Difference != "" {
			described++
		}
	}
	if described != difference.MaxListed {
		t.Errorf("%d changes are described", described)
	}
}
