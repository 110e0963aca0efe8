package service_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/reports"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// world is a random state of the cluster orders: what is pushed, and how its endpoints and its callers behave.
type world struct {
	Config     servicetest.Object // of the Cluster; nil for none
	Drops      int                // percent
	Places     []servicetest.Object
	Drained    bool // an overlay drains everything
	Connects   bool // else connect mode none
	Down, Back int  // the second after which no connection is made, and after which it is again; -1 for never
	Fails      int  // the second after which every request fails; -1 for never
	Reports    bool // requests are reported, else they have leases
	Excludes   bool // callers exclude every endpoint
	ByTarget   bool // picks are from a target whose route leads to the cluster
	NoRoute    bool // no route matches them
	Picks      bool // there are picks before the end, too
}

var detection = servicetest.Object{
	"interval": "1s", "max_ejection_percent": 100, "failure_percentage_threshold": 50, "enforcing_failure_percentage": 100,
	"failure_percentage_minimum_hosts": 1, "failure_percentage_request_volume": 1,
}

func drawWorld(t *rapid.T) world {
	yes := func(of int, what string) bool { return rapid.IntRange(1, of).Draw(t, what) == 1 }
	w := world{
		Down: -1, Back: -1, Fails: -1, Drained: yes(8, "drained"), Connects: !yes(4, "connect none"), Reports: yes(2, "reports"), Excludes: yes(8, "excludes"),
		ByTarget: yes(3, "by target"), Picks: !yes(6, "no picks"),
	}
	w.NoRoute = w.ByTarget && yes(5, "no route")
	if yes(8, "all are dropped") {
		w.Drops = 100
	}
	if yes(2, "down") {
		w.Down = rapid.IntRange(0, 20).Draw(t, "down after")
		if yes(3, "back") {
			w.Back = w.Down + 30
		}
	}
	if yes(3, "fails") {
		w.Fails = rapid.IntRange(0, 30).Draw(t, "fails after")
	}
	if yes(2, "config") {
		w.Config = servicetest.Object{"type": "EDS", "lb_policy": rapid.SampledFrom([]string{"ROUND_ROBIN", "RING_HASH", "LEAST_REQUEST"}).Draw(t, "policy")}
		if yes(4, "no requests") {
			w.Config["circuit_breakers"] = servicetest.Object{"thresholds": []servicetest.Object{{"max_requests": rapid.IntRange(0, 1).Draw(t, "max_requests")}}}
		}
		if yes(2, "detection") {
			w.Config["outlier_detection"] = detection
		}
	}
	weight := 1
	if yes(8, "no weight") {
		weight = 0
	}
	for p := range rapid.IntRange(0, 2).Draw(t, "priorities") {
		endpoints := servicetest.Endpoints("a"+strconv.Itoa(p), rapid.IntRange(1, 3).Draw(t, "endpoints"))
		place := servicetest.Place(strconv.Itoa(p), p, weight, endpoints)
		for _, e := range endpoints {
			e["health_status"] = rapid.SampledFrom([]string{"HEALTHY", "UNKNOWN", "UNHEALTHY", "DRAINING"}).Draw(t, "health")
		}
		w.Places = append(w.Places, place)
	}
	return w
}

// fails are the checks of the faults that a world has: one of them is the cause.
func (w *world) fails() []string {
	out := []string{"endpoints"} // of a random assignment, all may be unusable
	for check, has := range map[string]bool{
		"overlays": w.Drained, "drops": w.Drops > 0, "breaker": w.Config["circuit_breakers"] != nil, "connections": w.Down >= 0 && w.Connects, "targets": w.NoRoute,
		"picks":    w.Excludes || w.Down >= 0, // some connections fail, or all have failed until now
		"requests": w.Fails >= 0, "outliers": w.Fails >= 0 && w.Config["outlier_detection"] != nil,
	} {
		if has {
			out = append(out, check)
		}
	}
	return out
}

// seconds is how long a world lasts.
const seconds = 60

// observed is what callers of a world see: when picks and requests failed last without a success since then, and
// what lbd says at the end.
type observed struct {
	picksFail, requestsFail           bool
	picksFailSince, requestsFailSince time.Time
	state                             *observe.ClusterState
	reports                           map[string]*doctor.Report
	ready, listed                     bool
}

// outage is a Connector whose connections break when an outage begins, and fail until it ends.
type outage struct{ begins, ends time.Time }

func (o *outage) Start(addresses []string, report func(lb.Connection)) (stop func()) {
	now := time.Now()
	if !now.Before(o.begins) && now.Before(o.ends) {
		refused := lb.Connection{Address: addresses[0], Err: errors.New("dial tcp 10.0.0.1:80: connect: connection refused")}
		t := time.AfterFunc(time.Millisecond, func() { report(refused) })
		return func() { t.Stop() }
	}
	t := time.AfterFunc(time.Millisecond, func() { report(lb.Connection{Address: addresses[0]}) })
	lost := time.AfterFunc(max(o.begins.Sub(now), 0)+2*time.Millisecond, func() {
		if now.Before(o.begins) {
			report(lb.Connection{Err: errors.New("connection reset by peer")})
		}
	})
	return func() { t.Stop(); lost.Stop() }
}

// live plays a world, in a bubble.
func (w *world) live(t *testing.T) (seen observed) {
	begun := time.Now()
	never := begun.Add(24 * time.Hour)
	down := &outage{begins: never, ends: never}
	if w.Down >= 0 {
		down.begins = begun.Add(time.Duration(w.Down) * time.Second)
	}
	if w.Back >= 0 {
		down.ends = begun.Add(time.Duration(w.Back) * time.Second)
	}
	s, stop := servicetest.Start(t, "", func(o *service.Options) {
		if w.Connects {
			o.Sources.ConnectMode = resource.ConnectTCP
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: down, resource.ConnectTCP: down}
		}
	})
	defer stop()
	resources := []servicetest.Object{}
	if w.ByTarget {
		resources = append(resources, servicetest.Listener("shop", servicetest.Route("/items", "orders")))
	}
	if w.Config != nil {
		config := servicetest.Object{"@type": resource.TypeCluster.URL(), "name": "orders"}
		maps.Copy(config, w.Config)
		resources = append(resources, config)
	}
	resources = append(resources, servicetest.Object{
		"@type": resource.TypeAssignment.URL(), "cluster_name": "orders", "endpoints": w.Places,
		"policy": servicetest.Object{"drop_overloads": []servicetest.Object{servicetest.Drop("shed", w.Drops)}},
	})
	_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: servicetest.Encode(servicetest.Object{"resources": resources}), Options: sources.ChangeOptions{AllowEmpty: true}})
	servicetest.Must(t, err)
	for zone := range len(w.Places) {
		if !w.Drained || w.Places[0]["load_balancing_weight"] == 0 {
			break
		}
		_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{
			Overlay: overlays.NewOverlay{Kind: "drain", Locality: &overlays.LocalityPattern{Zone: strconv.Itoa(zone)}}, Cluster: "orders", ID: "z" + strconv.Itoa(zone), Options: sources.ChangeOptions{AllowEmpty: true},
		})
		servicetest.Must(t, err)
	}
	var picked, ended [2]time.Time // the last success, and the first failure since
	note := func(of *[2]time.Time, ok bool) {
		if ok {
			of[0], of[1] = time.Now(), time.Time{}
		} else if of[1].IsZero() {
			of[1] = time.Now()
		}
	}
	for second := range seconds {
		time.Sleep(time.Second)
		synctest.Wait()
		for range 3 {
			if !w.Picks && second < seconds-10 {
				break
			}
			r := picks.Request{Cluster: "orders", N: 1, Hash: "a", Reported: w.Reports}
			if w.ByTarget {
				r.Cluster, r.Target, r.Path = "", "xds:///shop", "/items"
			}
			if w.NoRoute {
				r.Path = "/other"
			}
			if !w.Reports {
				r.TTL = time.Minute
			}
			if w.Excludes {
				r.Exclude = []string{"a0-0:80", "a0-1:80", "a0-2:80", "a1-0:80", "a1-1:80", "a1-2:80"}
			}
			out, err := servicetest.Pick(s, r)
			if note(&picked, err == nil); err != nil {
				continue
			}
			fails := w.Fails >= 0 && second >= w.Fails
			note(&ended, !fails)
			if w.Reports {
				e := reports.Endpoint{Address: out.Picks[0].Address, Requests: 1}
				if fails {
					e.Errors = 1
				}
				_, err := s.Reports.Take(&reports.Report{Interval: time.Second}, &reports.Cluster{Cluster: "orders", Target: r.Target, Endpoints: []reports.Endpoint{e}})
				servicetest.Must(t, err)
				continue
			}
			outcome := picks.Success
			if fails {
				outcome = picks.Failure
			}
			endLease(t, s, out.Picks[0].Lease.ID, outcome, nil)
		}
	}
	recently := time.Now().Add(-5 * time.Second)
	seen.picksFail, seen.picksFailSince = !picked[1].IsZero() && picked[1].Before(recently), picked[1]
	seen.requestsFail, seen.requestsFailSince = !ended[1].IsZero() && ended[1].Before(recently), ended[1]
	seen.state = clusterState(t, s, "orders", "", true)
	seen.reports = map[string]*doctor.Report{}
	for _, about := range []string{"", "orders"} {
		seen.reports[about] = s.Doctor.Examine(t.Context(), &service.Examination{Cluster: about}, nil, "")
	}
	for _, c := range s.Readiness(nil) {
		seen.ready = seen.ready || c.Name == "clusters" && c.Warning && strings.Contains(c.Detail, "orders: ")
	}
	for _, c := range s.State.Clusters() {
		seen.listed = seen.listed || c.Name == "orders" && c.Trouble != nil
	}
	return seen
}

// check returns what is wrong with what lbd says of a world; empty if nothing is.
func (w *world) check(o *observed) string {
	if !o.picksFail && !o.requestsFail {
		if w.Picks && o.picksFailSince.IsZero() && o.requestsFailSince.IsZero() && w.Fails < 0 && w.Down < 0 && o.state.Trouble != nil {
			return fmt.Sprintf("nothing fails, and the trouble is %v", o.state.Trouble)
		}
		return ""
	}
	causes := w.fails()
	for about, r := range o.reports {
		if w.NoRoute && about != "" {
			continue
		}
		first := r.Checks[0]
		if r.Status != doctor.Problem || r.Problems == 0 || first.Remedy == "" || !slices.Contains(causes, first.Check) {
			return fmt.Sprintf("doctor %q: %s, %d problems: %s: %s", about, r.Status, r.Problems, first.Check, first.Found)
		}
		began := o.requestsFailSince
		if o.picksFail {
			began = o.picksFailSince
		}
		i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Status == doctor.Problem && !c.Since.IsZero() })
		if i < 0 {
			return fmt.Sprintf("doctor %q: no problem has a time: %+v", about, first)
		}
		if early, late := began.Add(-2*time.Second), began.Add(15*time.Second); w.Picks && (r.Checks[i].Since.Before(early) || len(causes) == 2 && r.Checks[i].Since.After(late)) {
			return fmt.Sprintf("doctor %q: since %v, not %v: %s", about, r.Checks[i].Since, began, r.Checks[i].Found)
		}
	}
	if w.NoRoute {
		return ""
	}
	if t := o.state.Trouble; t == nil || t.Cause == "" || o.picksFail && t.Fails != "picks" || !o.ready || !o.listed {
		return fmt.Sprintf("trouble %+v, /readyz %v, listed %v", t, o.ready, o.listed)
	}
	return ""
}

// TestFailuresAreProblems plays random worlds: if picks fail, or reported or leased requests fail, the state,
// the list, /readyz and the doctor say so, with the cause and the time.
func TestFailuresAreProblems(t *testing.T) {
	failing := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		var seen observed
		synctest.Test(t, func(t *testing.T) { seen = w.live(t) })
		if seen.picksFail || seen.requestsFail {
			failing++
		}
		if wrong := w.check(&seen); wrong != "" {
			rt.Fatalf("%s\n%+v", wrong, w)
		}
	})
	t.Logf("failing: %d", failing)
}

// TestEjectionsAreTheCause: endpoints that outlier detection ejects again and again are why picks fail at times, also in a
// moment when none is ejected.
func TestEjectionsAreTheCause(t *testing.T) {
	for fails, endpoints := range map[int][]int{26: {1, 3}, 29: {3}} {
		w := world{
			Config: servicetest.Object{"type": "EDS", "outlier_detection": detection}, Connects: true, Down: -1, Back: -1, Fails: fails, Reports: true, Picks: true,
		}
		for p, n := range endpoints {
			w.Places = append(w.Places, servicetest.Place(strconv.Itoa(p), p, 1, servicetest.Endpoints("a"+strconv.Itoa(p), n)))
		}
		synctest.Test(t, func(t *testing.T) {
			seen := w.live(t)
			if wrong := w.check(&seen); wrong != "" {
				t.Errorf("%s\n%+v", wrong, w)
			}
		})
	}
}

// TestLeafThatDropsEverything: an aggregate fails if the leaf in use drops all picks, whatever the others do.
func TestLeafThatDropsEverything(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "near", servicetest.Assignment([]servicetest.Object{servicetest.Drop("shed", 100)}, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1))))
	servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Usable("b", 1))
	servicetest.Push(t, s, sources.Config, "all", aggregate("near", "far"))
	mustRefuse(t, s, picks.Request{Cluster: "all"}, fault.Dropped)
	if trouble := clusterState(t, s, "all", "", false).Trouble; trouble == nil || trouble.Cause != `category "shed" drops all picks` {
		t.Errorf("%+v", trouble)
	}
	r := s.Doctor.Examine(t.Context(), &service.Examination{Cluster: "all"}, nil, "")
	if first := r.Checks[0]; first.Check != "drops" || first.Status != doctor.Problem || first.Since.IsZero() {
		t.Errorf("%+v", first)
	}
}
