package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRequests is the limit of the circuit breaker, which the callers reach at times.
const maxRequests = 10

// object is a JSON object.
type object map[string]any

// push pushes the cluster and its endpoints.
func (w *world) push(ctx context.Context) error {
	config := object{
		"type":               "EDS",
		"eds_cluster_config": object{"eds_config": object{"ads": object{}}},
		"circuit_breakers":   object{"thresholds": []object{{"max_requests": maxRequests}}},
	}
	if len(w.Daemons) > 1 {
		config["metadata"] = object{"filter_metadata": object{"lbd": object{"limit_scope": "fleet"}}}
	}
	if err := w.put(ctx, "config", config); err != nil {
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
	if _, err := w.Daemons[0].send(ctx, http.MethodPut, "/v1/clusters/"+cluster+"/"+what, string(body)); err != nil {
		return fmt.Errorf("push the demo's %s: %w", what, err)
	}
	return nil
}

const (
	// callers is the number of parallel callers. With their pauses they are mostly below the
	// limit of the circuit breaker.
	callers = 10
	// forgets is the number of leases of which one is not ended.
	forgets = 300
	// leaseTTL is the time until such a lease expires.
	leaseTTL = "5s"
)

// leased is the response to POST /pick.
type leased struct {
	Address string `json:"address"`
	Lease   struct {
		ID string `json:"id"`
	} `json:"lease"`
}

// call repeats: pick, call the endpoint, end the lease with the outcome.
func (w *world) call(ctx context.Context) error {
	for {
		w.callOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(20+rand.IntN(80)) * time.Millisecond):
		}
	}
}

// callOnce makes one call. It ignores errors, which the dashboard shows.
func (w *world) callOnce(ctx context.Context) {
	body, err := w.any().send(ctx, http.MethodPost, "/pick?cluster="+cluster+"&ttl="+leaseTTL, "")
	var pick leased
	if err != nil || json.Unmarshal(body, &pick) != nil {
		return
	}
	outcome := "success"
	if _, err := send(ctx, http.DefaultClient, http.MethodGet, "http://"+pick.Address+"/", ""); err != nil {
		outcome = "error"
	}
	if rand.IntN(forgets) == 0 {
		return
	}
	// Any daemon can end it.
	_, _ = w.any().send(ctx, http.MethodPost, "/v1/leases/"+pick.Lease.ID+"/done", `{"outcome":"`+outcome+`"}`)
}

// any returns one of the daemons.
func (w *world) any() *Daemon { return &w.Daemons[rand.IntN(len(w.Daemons))] }

// send makes a request to a path.
func (d *Daemon) send(ctx context.Context, method, path, body string) ([]byte, error) {
	return send(ctx, d.Client, method, d.URL+path, body)
}

// send makes one request. Another status than success is an error.
func send(ctx context.Context, client *http.Client, method, url, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s: %s", response.Status, answer)
	}
	return answer, err
}
