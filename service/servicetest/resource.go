package servicetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Object is a piece of JSON.
type Object = map[string]any

// Encode returns a value as JSON.
func Encode(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	Must(tb, err)
	return b
}

// Endpoint returns an endpoint at port 80 of a host.
func Endpoint(host string) Object {
	return Object{"endpoint": Object{"address": Object{"socket_address": Object{"address": host, "port_value": 80}}}}
}

// Endpoints returns the endpoints zone-0, zone-1 and so on.
func Endpoints(zone string, n int) (out []Object) {
	for i := range n {
		out = append(out, Endpoint(fmt.Sprintf("%s-%d", zone, i)))
	}
	return out
}

// Place returns one locality of an [Assignment].
func Place(zone string, priority, weight int, endpoints []Object) Object {
	return Object{"locality": Object{"zone": zone}, "priority": priority, "load_balancing_weight": weight, "lb_endpoints": endpoints}
}

// Drop returns a drop category of an [Assignment].
func Drop(category string, percent int) Object {
	return Object{"category": category, "drop_percentage": Object{"numerator": percent}}
}

// Assignment returns an assignment. drops may be nil.
func Assignment(tb testing.TB, drops []Object, places ...Object) []byte {
	tb.Helper()
	body := Object{"endpoints": places}
	if drops != nil {
		body["policy"] = Object{"drop_overloads": drops}
	}
	return Encode(tb, body)
}

// Usable returns an assignment of n [Endpoints] in one locality.
func Usable(tb testing.TB, zone string, n int) []byte {
	tb.Helper()
	return Assignment(tb, nil, Place(zone, 0, 1, Endpoints(zone, n)))
}

// Assigned returns an assignment of one locality, for [PushAll].
func Assigned(cluster string, hosts ...string) Object {
	var all []Object
	for _, h := range hosts {
		all = append(all, Endpoint(h))
	}
	return Object{"@type": resource.TypeAssignment.URL(), "cluster_name": cluster, "endpoints": []Object{{"lb_endpoints": all}}}
}

// Config returns a Cluster with a limit of requests.
func Config(maxRequests int) []byte {
	return fmt.Appendf(nil, `{"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":%d}]}}`, maxRequests)
}

// Listener returns a Listener with routes of its own, which serve any authority.
func Listener(name string, routes ...Object) Object {
	return Object{"@type": resource.TypeListener.URL(), "name": name, "api_listener": Object{"api_listener": Object{
		"@type":        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"route_config": Object{"name": "inline", "virtual_hosts": []Object{{"name": "all", "domains": []string{"*"}, "routes": routes}}},
		"http_filters": []Object{{"name": "router", "typed_config": Object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
	}}}
}

// Route returns a route of a prefix to clusters, each "name" or "name=weight".
func Route(prefix string, clusters ...string) Object {
	action := Object{"cluster": clusters[0]}
	if len(clusters) > 1 {
		var weighted []Object
		for _, c := range clusters {
			name, weight, _ := strings.Cut(c, "=")
			weighted = append(weighted, Object{"name": name, "weight": weight})
		}
		action = Object{"weighted_clusters": Object{"clusters": weighted}}
	}
	return Object{"name": prefix, "match": Object{"prefix": prefix}, "route": action}
}
