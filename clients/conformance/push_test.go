package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

type object = map[string]any

// push pushes the config and the endpoints of the cluster: a locality for each priority, or
// for each endpoint if they have weights, because round_robin has weights of localities only.
func (p *play) push(c *cluster) error {
	if c.Routes != nil {
		return p.pushRoutes(c)
	}
	return p.pushCluster(p.target, c)
}

// pushRoutes pushes a target of the name of the cluster, and clusters NAME-0, NAME-1 … for its routes.
func (p *play) pushRoutes(c *cluster) error {
	var routes []object
	for i, r := range c.Routes {
		name, own := fmt.Sprintf("%s-%d", p.target, i), *c
		own.Endpoints = r.Endpoints
		if err := p.pushCluster(name, &own); err != nil {
			return err
		}
		match := object{"prefix": cmp.Or(r.Prefix, "/")}
		for header, value := range r.Headers {
			match["headers"] = []object{{"name": header, "string_match": object{"exact": value}}}
		}
		routes = append(routes, object{"match": match, "route": object{"cluster": name}})
	}
	manager := object{
		"@type":        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"route_config": object{"virtual_hosts": []object{{"name": p.target, "domains": []string{"*"}, "routes": routes}}},
	}
	listener := object{
		"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": p.target, "api_listener": object{"api_listener": manager},
	}
	return p.daemon.Call("POST", "/v1/snapshot", object{"resources": []object{listener}}, nil)
}

func (p *play) pushCluster(name string, c *cluster) error {
	config := object{"type": "EDS"}
	if c.RingHash {
		config["lb_policy"] = "RING_HASH"
	}
	if c.MaxRequests > 0 {
		config["circuit_breakers"] = object{"thresholds": []object{{"max_requests": c.MaxRequests}}}
	}
	if c.Outliers {
		config["outlier_detection"] = object{
			"interval": "1s", "base_ejection_time": "60s", "max_ejection_percent": 50, "enforcing_success_rate": 0,
			"failure_percentage_threshold": 50, "enforcing_failure_percentage": 100,
			"failure_percentage_minimum_hosts": 2, "failure_percentage_request_volume": 1, // some clients are slow
		}
	}
	path := stand.ClusterPath(name)
	if err := p.daemon.Call("PUT", path+"/config", config, nil); err != nil {
		return err
	}
	numbers := c.Endpoints
	if numbers == nil {
		for i := range p.upstreams {
			numbers = append(numbers, i)
		}
	}
	localities := make(map[string]object)
	for _, i := range numbers {
		key := strconv.Itoa(i)
		zone := fmt.Sprintf("priority %d", c.Priorities[key])
		if c.Weights != nil {
			zone = key
		}
		l := localities[zone]
		if l == nil {
			l = object{
				"locality": object{"zone": zone}, "priority": c.Priorities[key], "load_balancing_weight": max(1, c.Weights[key]),
				"lb_endpoints": []object(nil),
			}
			localities[zone] = l
		}
		endpoint, err := stand.Endpoint(p.upstreams[i].Address)
		if err != nil {
			return err
		}
		if slices.Contains(c.Unhealthy, i) {
			endpoint["health_status"] = "UNHEALTHY"
		}
		l["lb_endpoints"] = append(l["lb_endpoints"].([]object), endpoint) //nolint:errcheck // it is set above
	}
	body := object{"endpoints": slices.Collect(maps.Values(localities))}
	if c.Drop > 0 {
		body["policy"] = object{"drop_overloads": []object{{"category": "throttle", "drop_percentage": object{"numerator": c.Drop}}}}
	}
	return p.daemon.Call("PUT", path+"/endpoints?allow_empty=true", body, nil)
}

// remove removes the cluster.
func (p *play) remove() error {
	path := stand.ClusterPath(p.target)
	return errors.Join(p.daemon.Call("DELETE", path+"/endpoints", nil, nil), p.daemon.Call("DELETE", path+"/config", nil, nil))
}
