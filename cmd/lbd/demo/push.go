package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// maxRequests is the limit of the circuit breaker, which the callers reach at times.
const maxRequests = 10

// object is a JSON object.
type object map[string]any

// push pushes the cluster and its endpoints.
func (w *world) push(ctx context.Context) error {
	if err := w.put(ctx, "config", object{
		"type":               "EDS",
		"eds_cluster_config": object{"eds_config": object{"ads": object{}}},
		"circuit_breakers":   object{"thresholds": []object{{"max_requests": maxRequests}}},
	}); err != nil {
		return err
	}
	localities := make([]object, len(zones))
	for i, z := range zones {
		localities[i] = object{
			"locality":              object{"region": z.region, "zone": z.name},
			"priority":              z.priority,
			"load_balancing_weight": z.weight,
			"lb_endpoints":          w.endpoints(z),
		}
	}
	return w.put(ctx, "endpoints", object{
		"endpoints": localities,
		"policy": object{"drop_overloads": []object{
			{"category": "throttle", "drop_percentage": object{"numerator": 5, "denominator": "HUNDRED"}},
		}},
	})
}

func (w *world) endpoints(z zone) []object {
	var out []object
	for _, u := range w.upstreams {
		if u.zone != z {
			continue
		}
		host, port, _ := net.SplitHostPort(u.address)
		number, _ := strconv.Atoi(port) // a valid address
		out = append(out, object{"endpoint": object{
			"hostname": u.name,
			"address":  object{"socket_address": object{"address": host, "port_value": number}},
		}})
	}
	return out
}

func (w *world) put(ctx context.Context, what string, resource object) error {
	body, err := json.Marshal(resource)
	if err != nil {
		return err
	}
	if _, err := send(ctx, w.Client, http.MethodPut, w.URL+"/v1/clusters/"+cluster+"/"+what, string(body)); err != nil {
		return fmt.Errorf("push the demo's %s: %w", what, err)
	}
	return nil
}
