package sources_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// network is a Connector: endpoints whose addresses begin with "down" refuse.
type network struct{ opened, closed atomic.Int64 }

func (n *network) Start(addresses []string, report func(lb.Connection)) func() {
	address := addresses[0]
	if strings.HasPrefix(address, "down") {
		report(lb.Connection{Address: address, Err: errors.New("refused")})
		return func() {}
	}
	n.opened.Add(1)
	report(lb.Connection{Address: address})
	return sync.OnceFunc(func() { n.closed.Add(1) })
}

// startNetwork starts a service whose endpoints are those of a network.
func startNetwork(t *testing.T) (*service.Service, *network) {
	t.Helper()
	n := &network{}
	s, _ := servicetest.Start(t, "", func(o *service.Options) {
		o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: n, resource.ConnectTCP: n}
		o.Sources.ConnectMode = resource.ConnectTCP
	})
	return s, n
}

// picture describes the effect on each cluster, an endpoint as "address before>after".
func picture(e *forecast.Effect) string {
	if e == nil {
		return "none"
	}
	var lines []string
	for _, c := range e.Clusters {
		var line strings.Builder
		line.WriteString(fmt.Sprintf("%s %s, priority %d>%d", c.Cluster, c.Change, c.Before.Priority, c.After.Priority))
		if c.After.Error != "" && c.Change != "removed" {
			line.WriteString(" (" + c.After.Error[strings.LastIndex(c.After.Error, " ")+1:] + ")")
		}
		if c.Before.Dropped+c.After.Dropped > 0 {
			line.WriteString(fmt.Sprintf(", drops %.2f>%.2f", c.Before.Dropped, c.After.Dropped))
		}
		if c.Shift == nil {
			line.WriteString(", shift ?")
		} else {
			line.WriteString(fmt.Sprintf(", shift %.2f", *c.Shift))
		}
		if c.MovedHashKeys != nil {
			line.WriteString(", hashed")
		}
		line.WriteString(fmt.Sprintf(", +%d -%d:", c.Opened, c.Closed))
		all := slices.Clone(c.Endpoints)
		slices.SortFunc(all, func(a, b forecast.EndpointEffect) int { return strings.Compare(a.Address, b.Address) })
		for _, p := range all {
			share := func(s *float64) string {
				if s == nil {
					return "?"
				}
				return fmt.Sprintf("%.2f", *s)
			}
			line.WriteString(fmt.Sprintf(" %s %s>%s", strings.TrimSuffix(p.Address, ":80"), share(p.Before), share(p.After)))
		}
		for _, sentence := range slices.Concat(c.Limits, c.Unpredicted) {
			line.WriteString("; " + sentence)
		}
		lines = append(lines, line.String())
	}
	lines = append(lines, e.Targets...)
	return strings.Join(append(lines, e.Unpredicted...), "\n")
}

// TestEffect predicts the effect of changes, and makes them: the connections are those that were
// predicted, and the state has the shares.
func TestEffect(t *testing.T) {
	ring := servicetest.Object{"type": "EDS", "lb_policy": "RING_HASH"}
	type change struct {
		kind    sources.Kind
		cluster string
		body    []byte // nil deletes
	}
	endpointsOf := func(cluster string, body []byte) change { return change{sources.Endpoints, cluster, body} }
	configOf := func(cluster string, body []byte) change { return change{sources.Config, cluster, body} }
	a := func(n int) servicetest.Object { return servicetest.Place("a", 0, 1, servicetest.Endpoints("a", n)) }
	for name, tt := range map[string]struct {
		before []change
		change change
		want   string
	}{
		"a new cluster": {
			nil, endpointsOf("orders", servicetest.Assignment(nil, a(2))),
			"orders added, priority -1>0, shift 0.00, +2 -0: a-0 0.00>0.50 a-1 0.00>0.50; 2 endpoints are assumed to be reachable: lbd is not connected to them now",
		},
		"an endpoint more": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, a(2)))},
			endpointsOf("orders", servicetest.Assignment(nil, a(3))),
			"orders modified, priority 0>0, shift 0.33, +1 -0: a-0 0.50>0.33 a-1 0.50>0.33 a-2 0.00>0.33; 1 endpoint is assumed to be reachable: lbd is not connected to them now",
		},
		"weights of localities": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, a(1), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 2))))},
			endpointsOf("orders", servicetest.Assignment(nil, a(1), servicetest.Place("b", 0, 3, servicetest.Endpoints("b", 2)))),
			"orders modified, priority 0>0, shift 0.25, +0 -0: a-0 0.50>0.25 b-0 0.25>0.38 b-1 0.25>0.38",
		},
		"priority 0 refuses": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, servicetest.Place("d", 0, 1, servicetest.Endpoints("down", 2)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))},
			endpointsOf("orders", servicetest.Assignment(nil, servicetest.Place("d", 0, 1, append(servicetest.Endpoints("down", 2), servicetest.Endpoint("a-0"))), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1)))),
			"orders modified, priority 1>0, shift 1.00, +1 -0: a-0 0.00>1.00 b-0 1.00>0.00 down-0 0.00>0.00 down-1 0.00>0.00; 1 endpoint is assumed to be reachable: lbd is not connected to them now",
		},
		"only endpoints that refuse stay": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, append(servicetest.Endpoints("a", 1), servicetest.Endpoint("down")))))},
			endpointsOf("orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, []servicetest.Object{servicetest.Endpoint("down")}))),
			"orders modified, priority 0>0 (refused), shift 1.00, +0 -1: a-0 1.00>0.00 down 0.00>0.00",
		},
		"drops": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, a(2)))},
			endpointsOf("orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("x", 50), servicetest.Drop("y", 20)}, a(2))),
			"orders modified, priority 0>0, drops 0.00>0.60, shift 0.60, +0 -0: a-0 0.50>0.50 a-1 0.50>0.50",
		},
		"no drops any more": {
			[]change{endpointsOf("orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("x", 50)}, a(1)))},
			endpointsOf("orders", servicetest.Assignment(nil, a(1))),
			"orders modified, priority 0>0, drops 0.50>0.00, shift 0.50, +0 -0: a-0 1.00>1.00",
		},
		"everything is dropped before": {
			[]change{endpointsOf("orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("x", 100)}, a(1)))},
			endpointsOf("orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("x", 100)}, a(2))),
			"orders modified, priority 0>0, drops 1.00>1.00, shift 0.00, +1 -0: a-0 1.00>0.50 a-1 0.00>0.50; 1 endpoint is assumed to be reachable: lbd is not connected to them now",
		},
		"the deletion": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, a(2)))},
			endpointsOf("orders", nil),
			"orders removed, priority 0>-1, shift 1.00, +0 -2: a-0 0.50>0.00 a-1 0.50>0.00",
		},
		"an assignment of two clusters, and an aggregate of one": {
			[]change{
				endpointsOf("orders", servicetest.Assignment(nil, a(2))), configOf("orders", servicetest.Encode(servicetest.Object{"type": "EDS"})),
				configOf("copy", servicetest.Encode(servicetest.Object{"type": "EDS", "eds_cluster_config": servicetest.Object{"service_name": "orders", "eds_config": servicetest.Object{"ads": servicetest.Object{}}}})),
				configOf("all", aggregate("orders")),
			},
			endpointsOf("orders", servicetest.Assignment(nil, a(1))),
			"all modified, priority 0>0, shift 0.50, +0 -1: a-0 0.50>1.00 a-1 0.50>0.00\n" +
				"copy modified, priority 0>0, shift 0.50, +0 -1: a-0 0.50>1.00 a-1 0.50>0.00\n" +
				"orders modified, priority 0>0, shift 0.50, +0 -1: a-0 0.50>1.00 a-1 0.50>0.00",
		},
		"another policy": {
			[]change{endpointsOf("orders", servicetest.Assignment(nil, a(1)))},
			configOf("orders", servicetest.Encode(ring)),
			"orders modified, priority 0>0, shift 0.00, +1 -1: a-0 1.00>1.00; ring_hash_experimental: these are the shares of the hashes, and of the picks if all hashes are equally frequent",
		},
		"a ring with one endpoint less": {
			[]change{configOf("orders", servicetest.Encode(ring)), endpointsOf("orders", servicetest.Assignment(nil, a(2)))},
			endpointsOf("orders", servicetest.Assignment(nil, a(1))),
			"orders modified, priority 0>0, shift 0.49, hashed, +0 -1: a-0 0.51>1.00 a-1 0.49>0.00; ring_hash_experimental: these are the shares of the hashes, and of the picks if all hashes are equally frequent",
		},
		"nothing": {[]change{endpointsOf("orders", servicetest.Assignment(nil, a(1)))}, endpointsOf("orders", servicetest.Assignment(nil, a(1))), "none"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := startNetwork(t)
				run := func(c change, dry bool) *sources.PushResult {
					t.Helper()
					o := sources.ChangeOptions{DryRun: dry, AllowEmpty: true}
					var res *sources.PushResult
					var err error
					if c.body == nil {
						res, err = s.Sources.Delete(t.Context(), c.kind, c.cluster, o)
					} else {
						res, err = s.Sources.Push(t.Context(), &sources.PushRequest{Kind: c.kind, Cluster: c.cluster, Body: c.body, Options: o})
					}
					servicetest.Must(t, err)
					synctest.Wait() // all is connected
					return res
				}
				for _, c := range tt.before {
					run(c, false)
				}
				connect := func() { // ring_hash connects by picks
					for range 50 {
						_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders", Wait: time.Minute})
					}
					synctest.Wait()
				}
				connect()
				opened, closed := n.opened.Load(), n.closed.Load()
				e := run(tt.change, true).Effect
				if got := picture(e); got != tt.want {
					t.Errorf("got\n%s\nwant\n%s", got, tt.want)
				}
				if n.opened.Load() != opened || n.closed.Load() != closed {
					t.Error("the forecast has changed connections")
				}
				run(tt.change, false)
				if e == nil {
					return
				}
				connect()
				for _, c := range e.Clusters {
					opened, closed = opened+int64(c.Opened), closed+int64(c.Closed)
					if c.Change == "removed" {
						continue
					}
					state, err := s.State.Cluster(t.Context(), c.Cluster, "", true)
					servicetest.Must(t, err)
					for _, p := range state.Priorities {
						for _, l := range p.Localities {
							for _, is := range l.Endpoints {
								i := slices.IndexFunc(c.Endpoints, func(e forecast.EndpointEffect) bool { return e.Address == is.Address })
								if i < 0 || *c.Endpoints[i].After != *is.Share {
									t.Errorf("%s of %s has the share %v, not as predicted", is.Address, c.Cluster, *is.Share)
								}
							}
						}
					}
				}
				if n.opened.Load() != opened || n.closed.Load() != closed {
					t.Errorf("%d connections were opened and %d closed, %d and %d were predicted", n.opened.Load(), n.closed.Load(), opened, closed)
				}
			})
		})
	}
}

// TestEffectOfOverlay predicts what a drain does, and what a push beside it does.
func TestEffectOfOverlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startNetwork(t)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		synctest.Wait()
		put := func(dry bool) *sources.PushResult {
			res, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{
				Overlay: overlays.NewOverlay{Kind: "drain", Endpoint: "a-0:80"}, Cluster: "orders", ID: "one", Options: sources.ChangeOptions{DryRun: dry},
			})
			servicetest.Must(t, err)
			synctest.Wait()
			return res
		}
		const want = "orders modified, priority 0>0, shift 0.50, +0 -1: a-0 0.50>0.00 a-1 0.50>1.00"
		servicetest.Expect(t, "the drain", picture(put(true).Effect), want)
		put(false)
		res, err := s.Sources.Push(t.Context(), &sources.PushRequest{
			Kind: sources.Endpoints, Cluster: "orders", Body: servicetest.Usable("a", 3), Options: sources.ChangeOptions{DryRun: true},
		})
		servicetest.Must(t, err)
		servicetest.Expect(t, "a push beside the drain", picture(res.Effect),
			"orders modified, priority 0>0, shift 0.50, +1 -0: a-0 0.00>0.00 a-1 1.00>0.50 a-2 0.00>0.50; 1 endpoint is assumed to be reachable: lbd is not connected to them now")
		res, err = s.Sources.DeleteOverlay(t.Context(), "orders", "one", sources.ChangeOptions{DryRun: true})
		servicetest.Must(t, err)
		servicetest.Expect(t, "the end of the drain", picture(res.Effect),
			"orders modified, priority 0>0, shift 0.50, +1 -0: a-0 0.00>0.50 a-1 1.00>0.50; 1 endpoint is assumed to be reachable: lbd is not connected to them now")
	})
}

// TestEffectOnTargets names the targets that a change affects.
func TestEffectOnTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startNetwork(t)
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "orders")), servicetest.Assigned("orders", "a"), servicetest.Assigned("cart", "c"))
		synctest.Wait()
		preview := func(resources ...servicetest.Object) *forecast.Effect {
			t.Helper()
			res, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: servicetest.Encode(servicetest.Object{"resources": resources}), Options: sources.ChangeOptions{DryRun: true}})
			servicetest.Must(t, err)
			return res.Effect
		}
		servicetest.Expect(t, "endpoints", picture(preview(servicetest.Assigned("orders", "b"))),
			"orders modified, priority 0>0, shift 1.00, +1 -1: a 1.00>0.00 b 0.00>1.00; 1 endpoint is assumed to be reachable: lbd is not connected to them now\nxds:///shop")
		servicetest.Expect(t, "a route", picture(preview(servicetest.Listener("shop", servicetest.Route("/", "orders=1", "cart=1")))),
			"cart added, priority -1>0, shift 0.00, +1 -0: c 0.00>1.00; 1 endpoint is assumed to be reachable: lbd is not connected to them now\nxds:///shop\n"+
				"the routes of xds:///shop change: which cluster a request gets depends on the request")
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "orders=1", "cart=1")))
		synctest.Wait()
		servicetest.Expect(t, "the end of a route to a cluster that stays", picture(preview(servicetest.Listener("shop", servicetest.Route("/", "orders")))),
			"xds:///shop\nthe routes of xds:///shop change: which cluster a request gets depends on the request")
	})
}

// logicalDNS is a Cluster whose endpoint is a DNS name.
func logicalDNS(cluster, host string) servicetest.Object {
	return servicetest.Object{
		"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": cluster, "type": "LOGICAL_DNS",
		"load_assignment": servicetest.Object{"endpoints": []servicetest.Object{{"lb_endpoints": []servicetest.Object{servicetest.Endpoint(host)}}}},
	}
}

// TestMaxShiftOfTheUnknown refuses a change that may move any number of picks: which one depends on requests, or
// on resources that are not known yet.
func TestMaxShiftOfTheUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startNetwork(t)
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "orders")), servicetest.Assigned("orders", "a"), servicetest.Assigned("cart", "c"))
		synctest.Wait()
		change := func(dry bool, resources ...servicetest.Object) error {
			_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{
				Body: servicetest.Encode(servicetest.Object{"resources": resources}), Options: sources.ChangeOptions{MaxShift: new(0.0), DryRun: dry},
			})
			return err
		}
		for name, resources := range map[string][]servicetest.Object{
			"an unresolved name": {logicalDNS("orders", "unknown.example")},
			"other routes":       {servicetest.Listener("shop", servicetest.Route("/", "orders=1", "cart=1"))},
			"a missing route":    {servicetest.Listener("shop", servicetest.Route("/x", "orders"))},
		} {
			for _, dry := range []bool{true, false} {
				if err := change(dry, resources...); servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "it cannot be predicted how much of the picks") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		servicetest.Must(t, change(false, servicetest.Listener("new", servicetest.Route("/", "orders=1", "cart=1")))) // has no picks yet
		servicetest.Must(t, change(true, logicalDNS("dns", "unknown.example")))
	})
}

// TestRates returns the picks of the last minutes with an effect, and what would exceed a limit.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startNetwork(t)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		synctest.Wait()
		for range 100 {
			for range 20 {
				_, err := servicetest.Pick(s, picks.Request{Cluster: "orders", TTL: 300 * time.Millisecond})
				servicetest.Must(t, err)
			}
			time.Sleep(time.Second)
		}
		held, err := servicetest.Pick(s, picks.Request{Cluster: "orders", N: 7, TTL: 3 * time.Second})
		servicetest.Must(t, err)
		time.Sleep(10 * time.Second)
		servicetest.Expect(t, "held", len(held.Picks), 7)
		res, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Config, Cluster: "orders", Body: servicetest.Config(5), Options: sources.ChangeOptions{DryRun: true}})
		servicetest.Must(t, err)
		c := res.Effect.Clusters[0]
		if c.PicksPerSecond == nil || *c.PicksPerSecond < 15 || *c.PicksPerSecond > 20 || c.RateOver != "1m50s" {
			t.Errorf("%v picks/s in %s", *c.PicksPerSecond, c.RateOver)
		}
		if e := c.Endpoints[0]; *e.RateBefore != *c.PicksPerSecond/2 || *e.RateAfter != *e.RateBefore {
			t.Errorf("%v and %v requests/s", *e.RateBefore, *e.RateAfter)
		}
		const want = "max_requests would be 5, and up to 7 requests were in flight in the last 1m50s: picks beyond the limit would be rejected"
		if len(c.Limits) != 1 || c.Limits[0] != want {
			t.Errorf("limits: %q", c.Limits)
		}
	})
}

// TestMaxShift refuses a change that moves too many picks, also while others change the same resource.
func TestMaxShift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startNetwork(t)
		body := func(n int) []byte {
			return servicetest.Usable("a", n)
		}
		change := func(ctx context.Context, n int, shift float64, dry bool) error {
			_, err := s.Sources.Push(ctx, &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body(n), Options: sources.ChangeOptions{MaxShift: &shift, DryRun: dry}})
			return err
		}
		servicetest.Must(t, change(t.Context(), 2, 0, false)) // a new cluster has no picks that could move
		for _, dry := range []bool{true, false} {
			err := change(t.Context(), 4, 0.49, dry)
			if servicetest.Code(err) != fault.Blocked || err.Error() != `the change would move 50 % of the picks of cluster "orders", and max_shift permits 49 %` {
				t.Errorf("%v", err)
			}
		}
		servicetest.Expect(t, "endpoints after a refusal", len(chosen(t, s, 8)), 2)
		servicetest.Must(t, change(t.Context(), 4, 0.5, false))
		synctest.Wait()
		servicetest.Expect(t, "endpoints", len(chosen(t, s, 8)), 4)
		_, err := s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{MaxShift: new(0.99)})
		if servicetest.Code(err) != fault.Blocked {
			t.Errorf("a deletion: %v", err)
		}

		// Of 2, 3 and 4 endpoints, only a change by one is permitted, whatever the others change meanwhile.
		servicetest.Must(t, change(t.Context(), 3, 1, false))
		before := len(servicetest.Says(s, observe.EventPushed))
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				for j := range 12 {
					switch err := change(t.Context(), 2+(i+j)%3, 0.49, false); servicetest.Code(err) {
					case "", fault.PreconditionFailed, fault.Blocked:
					default:
						t.Errorf("a change beside others: %v", err)
					}
				}
			})
		}
		group.Wait()
		events := servicetest.Says(s, observe.EventPushed)
		if len(events) < before+10 {
			t.Errorf("%d changes beside others", len(events)-before)
		}
		for _, event := range events[before:] {
			if strings.Contains(event, "2 endpoints") {
				t.Errorf("made beside others: %s", event)
			}
		}
	})
}
