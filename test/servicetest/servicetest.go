// Package servicetest starts services on a store in memory or in a file, and makes the resources that tests of
// service and of its sources push to them.
package servicetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// New returns a service that is not started, and whose endpoints all count as connected. change may be nil.
func New(change func(*service.Options)) *service.Service {
	var mu sync.Mutex // trees draw from their owners' goroutines
	seeded := rand.New(rand.NewPCG(1, 2))
	o := service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
		Sources:    sources.Settings{ConnectMode: resource.ConnectNone},
		Draw: func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return seeded.Uint64()
		},
		Version: "test",
	}
	if change != nil {
		change(&o)
	}
	return service.New(o)
}

// Start starts a [New] service on a store in dir, or in memory. connect adds to what it is connected to. The returned
// stop may be called before the test's end.
func Start(tb testing.TB, dir string, change func(*service.Options), connect ...func(*sources.Connections)) (s *service.Service, stop func()) {
	tb.Helper()
	s = New(change)
	st, err := file.Open(dir, file.Options{OnCommit: s.Inbound.Commit, OnLost: s.Inbound.StoreLost})
	Must(tb, err)
	to := sources.Connections{Store: st}
	for _, add := range connect {
		add(&to)
	}
	Must(tb, s.Start(tb.Context(), to))
	stop = sync.OnceFunc(func() {
		s.Close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return s, stop
}

// Push pushes a resource of a cluster, which must succeed.
func Push(tb testing.TB, s *service.Service, kind sources.Kind, cluster string, body []byte) *sources.PushResult {
	tb.Helper()
	res, err := s.Sources.Push(tb.Context(), &sources.PushRequest{Kind: kind, Cluster: cluster, Body: body})
	Must(tb, err)
	return res
}

// PushAll adds resources to those that were pushed.
func PushAll(tb testing.TB, s *service.Service, resources ...Object) *sources.PushResult {
	tb.Helper()
	res, err := s.Sources.PushSnapshot(tb.Context(), &sources.SnapshotRequest{Body: Encode(Object{"resources": resources})})
	Must(tb, err)
	return res
}

// Pick picks, without the deadline of a caller.
func Pick(s *service.Service, r picks.Request) (out picks.Picks, err error) {
	err = s.Picks.Pick(context.Background(), &r, &out)
	return out, err
}

// Says returns the sentences of the events of a type, the oldest first.
func Says(s *service.Service, t observe.EventType) (out []string) {
	for _, e := range slices.Backward(s.Events.Last(observe.EventFilter{Types: []observe.EventType{t}, Limit: 100})) {
		out = append(out, e.Says)
	}
	return out
}

// Code returns the code of a service's error, or "".
func Code(err error) fault.Code {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Code
	}
	return ""
}

// Must ends the test if err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Expect reports a value that is not the wanted one.
func Expect[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// Object is a piece of JSON.
type Object = map[string]any

// Encode returns a value as JSON. It panics if the value has none.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
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
func Assignment(drops []Object, places ...Object) []byte {
	body := Object{"endpoints": places}
	if drops != nil {
		body["policy"] = Object{"drop_overloads": drops}
	}
	return Encode(body)
}

// Usable returns an assignment of n [Endpoints] in one locality.
func Usable(zone string, n int) []byte {
	return Assignment(nil, Place(zone, 0, 1, Endpoints(zone, n)))
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
