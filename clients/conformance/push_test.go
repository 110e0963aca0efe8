package conformance

import (
	"errors"
	"net"
	"slices"
	"strconv"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

type object = map[string]any

// push pushes the config and the endpoints of the cluster. Each endpoint is a locality,
// because that is what has a weight for round_robin.
func (p *play) push(c *cluster) error {
	config := object{"type": "EDS"}
	if c.MaxRequests > 0 {
		config["circuit_breakers"] = object{"thresholds": []object{{"max_requests": c.MaxRequests}}}
	}
	if c.Outliers {
		config["outlier_detection"] = object{
			"interval": "1s", "base_ejection_time": "60s", "max_ejection_percent": 50, "enforcing_success_rate": 0,
			"failure_percentage_threshold": 50, "enforcing_failure_percentage": 100,
			"failure_percentage_minimum_hosts": 2, "failure_percentage_request_volume": 3,
		}
	}
	path := stand.ClusterPath(p.target)
	if err := p.daemon.Call("PUT", path+"/config", config, nil); err != nil {
		return err
	}
	numbers := c.Endpoints
	if numbers == nil {
		for i := range p.upstreams {
			numbers = append(numbers, i)
		}
	}
	var localities []object
	for _, i := range numbers {
		host, port, err := net.SplitHostPort(p.upstreams[i].Address)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		health := "HEALTHY"
		if slices.Contains(c.Unhealthy, i) {
			health = "UNHEALTHY"
		}
		key := strconv.Itoa(i)
		localities = append(localities, object{
			"locality": object{"zone": key}, "priority": c.Priorities[key], "load_balancing_weight": max(1, c.Weights[key]),
			"lb_endpoints": []object{{
				"health_status": health,
				"endpoint":      object{"address": object{"socket_address": object{"address": host, "port_value": number}}},
			}},
		})
	}
	body := object{"endpoints": localities}
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
