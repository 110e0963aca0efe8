package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a service on a store in dir, or in memory, whose endpoints all
// count as connected. connect adds to what it is connected to. The returned stop may be called before the test's end.
func start(tb testing.TB, dir string, change func(*service.Options), connect ...func(*sources.Connections)) (s *service.Service, stop func()) {
	tb.Helper()
	var mu sync.Mutex // trees draw from their owners' goroutines
	seeded := rand.New(rand.NewPCG(1, 2))
	draw := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return seeded.Uint64()
	}
	o := service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
		Sources:    sources.Settings{ConnectMode: resource.ConnectNone},
		Draw:       draw,
		Version:    "test",
	}
	if change != nil {
		change(&o)
	}
	s = service.New(o)
	st, err := file.Open(dir, file.Options{OnCommit: s.Inbound.Commit, OnLost: s.Inbound.StoreLost})
	must(tb, err)
	to := sources.Connections{Store: st}
	for _, add := range connect {
		add(&to)
	}
	must(tb, s.Start(tb.Context(), to))
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		s.Close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(stop)
	return s, stop
}

// object is a piece of JSON.
type object = map[string]any

// place is one locality of an assignment.
type place struct {
	zone             string
	priority, weight int
	endpoints        []object
}

func endpoint(host string) object {
	return object{"endpoint": object{"address": object{"socket_address": object{"address": host, "port_value": 80}}}}
}

func endpoints(zone string, n int) []object {
	var out []object
	for i := range n {
		out = append(out, endpoint(fmt.Sprintf("%s-%d", zone, i)))
	}
	return out
}

func assignment(tb testing.TB, drops []object, places ...place) []byte {
	tb.Helper()
	ls := make([]object, len(places))
	for i, p := range places {
		ls[i] = object{
			"locality": object{"zone": p.zone}, "priority": p.priority,
			"load_balancing_weight": p.weight, "lb_endpoints": p.endpoints,
		}
	}
	body := object{"endpoints": ls}
	if drops != nil {
		body["policy"] = object{"drop_overloads": drops}
	}
	return encode(tb, body)
}

func drop(category string, percent int) object {
	return object{"category": category, "drop_percentage": object{"numerator": percent}}
}

func config(tb testing.TB, maxRequests int) []byte {
	tb.Helper()
	return encode(tb, object{
		"type": "EDS", "circuit_breakers": object{"thresholds": []object{{"max_requests": maxRequests}}},
	})
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	must(tb, err)
	return b
}

func push(tb testing.TB, s *service.Service, kind sources.Kind, cluster string, body []byte) *sources.PushResult {
	tb.Helper()
	res, err := s.Sources.Push(tb.Context(), &sources.PushRequest{Kind: kind, Cluster: cluster, Body: body})
	if err != nil {
		tb.Fatalf("push %s of %s: %v", kind, cluster, err)
	}
	return res
}

func pick(s *service.Service, r picks.Request) (picks.Picks, error) {
	var out picks.Picks
	err := s.Picks.Pick(context.Background(), &r, &out)
	return out, err
}

// must ends the test if err is not nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// expect reports a value that is not the wanted one.
func expect[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func mustPick(tb testing.TB, s *service.Service, r picks.Request) picks.Picks {
	tb.Helper()
	out, err := pick(s, r)
	must(tb, err)
	return out
}

func mustRefuse(tb testing.TB, s *service.Service, r picks.Request, want fault.Code) {
	tb.Helper()
	if _, err := pick(s, r); code(err) != want {
		tb.Fatalf("pick %+v: %v; want %s", r, err, want)
	}
}

func endLease(tb testing.TB, s *service.Service, id picks.LeaseID, o picks.Outcome, load *picks.Load) {
	tb.Helper()
	if _, err := s.Picks.EndLease(id, o, load); err != nil {
		tb.Error(err)
	}
}

func deleteResource(tb testing.TB, s *service.Service, kind sources.Kind, cluster string) {
	tb.Helper()
	_, err := s.Sources.Delete(tb.Context(), kind, cluster, sources.ChangeOptions{})
	must(tb, err)
}

func clusterState(tb testing.TB, s *service.Service, name, target string, endpoints bool) *observe.ClusterState {
	tb.Helper()
	c, err := s.State.Cluster(tb.Context(), name, target, endpoints)
	must(tb, err)
	return c
}

// inFiles returns resource files that provide Clusters and assignments, written as JSON.
func inFiles(tb testing.TB, bodies map[resource.Key][]byte) files.Set {
	tb.Helper()
	set := files.Set{Resources: map[resource.Key]files.Resource{}}
	for key, body := range bodies {
		i, _, err := decode.Item(resource.Item{Key: key, Raw: body}, decode.Options{Name: key.Name})
		must(tb, err)
		set.Resources[key] = files.Resource{Item: i, File: key.Name + ".yaml"}
	}
	return set
}

// seed stores resources in dir as an earlier lbd, which accepted them.
func seed(tb testing.TB, dir string, resources map[resource.Key][]byte, o decode.Options) {
	tb.Helper()
	st, err := file.Open(dir, file.Options{})
	must(tb, err)
	_, err = st.Update(tb.Context(), func(tx *store.Tx) error {
		for key, body := range resources {
			o.Name = key.Name
			d, err := decode.One(resource.TypeCluster, body, o)
			if err == nil {
				err = tx.Put(key, d.Raw)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	must(tb, errors.Join(err, st.Close()))
}

// says returns the sentences of the events of a type, the oldest first.
func says(s *service.Service, t observe.EventType) []string {
	var out []string
	for _, e := range slices.Backward(s.Events.Last(observe.EventFilter{Types: []observe.EventType{t}, Limit: 100})) {
		out = append(out, e.Says)
	}
	return out
}

// code is the code of a service's error, or empty.
func code(err error) fault.Code {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Code
	}
	return ""
}
