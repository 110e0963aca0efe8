package resource_test

import (
	"fmt"
	"strings"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// hosts is the JSON of a RouteConfiguration with these virtual hosts.
func hosts(list ...string) string {
	return `{"name":"r","virtual_hosts":[` + strings.Join(list, ",") + `]}`
}

// routes is the JSON of a RouteConfiguration with these routes for all authorities.
func routes(list ...string) string {
	return hosts(`{"name":"v","domains":["*"],"routes":[` + strings.Join(list, ",") + `]}`)
}

// matching is the JSON of a route to cluster a, with a match of these fields.
func matching(fields ...string) string {
	return `{"match":{` + strings.Join(fields, ",") + `},"route":{"cluster":"a"}}`
}

// acting is the JSON of a route for all requests, with an action of these fields.
func acting(fields ...string) string {
	return `{"match":{"prefix":""},"route":{` + strings.Join(fields, ",") + `}}`
}

// endpoint is the JSON of an LbEndpoint at port 80 of an address, with further fields.
func endpoint(address string, more ...string) string {
	fields := append([]string{fmt.Sprintf(`"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}`, address)}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

// locality is the JSON of a LocalityLbEndpoints in a zone.
func locality(zone string, priority, weight int, endpoints ...string) string {
	return fmt.Sprintf(`{"locality":{"zone":%q},"priority":%d,"load_balancing_weight":%d,"lb_endpoints":[%s]}`,
		zone, priority, weight, strings.Join(endpoints, ","))
}

// localities is the JSON of a ClusterLoadAssignment.
func localities(l ...string) string {
	return `{"cluster_name":"orders","endpoints":[` + strings.Join(l, ",") + `]}`
}
