package observability_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAgainstPrometheus runs a daemon with the events of rules and dashboard, and checks all their
// queries.
func TestAgainstPrometheus(t *testing.T) {
	program(t, "prometheus")
	resources := t.TempDir()
	filed := listen(t, anywhere)
	writeFile(t, filepath.Join(resources, "good.yaml"), "cluster_name: filed\n"+assignment([]locality{{zone: "a", address: filed.address}}))
	writeFile(t, filepath.Join(resources, "bad.yaml"), "cluster_name: refused\n"+assignment([]locality{{zone: "a", address: "10.0.0.1:0"}}))
	plane := startControlPlane(t)
	lbd := buildDaemon(t)
	d := startDaemon(t, lbd, "--resources="+resources, "--bootstrap="+plane.bootstrap(t))
	other := startDaemon(t, "sh", "-c", `ulimit -f 2048 && exec "$@"`, "sh", lbd)
	etcd := startEtcd(t)
	runIn(t, root, lbd, "store", "init", "etcd://"+etcd.address+"/lbd")
	shared := startDaemon(t, lbd, "--store=etcd://"+etcd.address+"/lbd")
	dead := listen(t, anywhere)
	dead.close()
	p := startPrometheus(t, dead.address, d, other, shared)
	s := &scenario{d: d, other: other, shared: shared, etcd: etcd, p: p, plane: plane, a: listen(t, anywhere), b: listen(t, anywhere), first: listen(t, anywhere), lost: listen(t, anywhere)}
	s.begin(t)
	s.change(t)

	t.Run("Dashboard", s.dashboard)
	t.Run("DashboardNarrowed", s.narrowed)
	t.Run("Recordings", s.recordings)
	t.Run("Alerts", s.alerts)
}

// scenario is a daemon with a cluster for each case:
//
//	dropping  drops 30 %                      twice    drops a half, and half of the rest
//	agg       an aggregate of dropping        lowered  dropped 60 %, and should drop 10 %
//	shares    3 : 1 in two localities, also used by target shop
//	full      5 of 5 requests in flight       half     4 of 10
//	leaky     its leases expire               honest   they are done; a quarter of those reported failed
//	failing   lost its first priority         flapping left its first priority twice
//	gone      has no endpoint                 filed    comes from a file
//	served    comes from a management server  kept     too, and then breaks a rule
//	deleted   too, and is then deleted there
//
// Target nowhere has no Listener. Another daemon has a different cluster dropping, and no
// space for a large push. A third one has a store in etcd, with
//
//	limited   3 of 10 requests of all daemons in flight
//
// until its etcd ends.
type scenario struct {
	d      daemon
	other  daemon
	shared daemon
	etcd   endpoint
	p      prometheus
	plane  *controlPlane
	// a and b are always up; first is the first priority of failing, lost the only endpoint of gone.
	a, b, first, lost endpoint
	// stopLowered ends the load of lowered, so that its drop ratio stays the same.
	stopLowered func()
}

// begin pushes the clusters and starts the load.
func (s *scenario) begin(t *testing.T) {
	d := s.d
	one := []locality{{zone: "a", address: s.a.address}}
	s.plane.serves(t, map[string]string{"served": "ROUND_ROBIN", "kept": "ROUND_ROBIN", "deleted": "ROUND_ROBIN"}, assignment(one))
	d.push(t, "dropping", assignment(one, "throttle", 30))
	d.must(t, "PUT", "/v1/clusters/agg/config", aggregate("dropping"), http.StatusCreated)
	d.push(t, "twice", assignment(one, "abuse", 50, "throttle", 50))
	d.push(t, "lowered", assignment(one, "throttle", 60))
	d.push(t, "shares", assignment([]locality{{zone: "a", address: s.a.address, weight: 3}, {zone: "b", address: s.b.address, weight: 1}}))
	d.must(t, "POST", "/v1/snapshot", listener("shop", "shares"), http.StatusOK)
	d.must(t, "PUT", "/v1/targets/nowhere", "", http.StatusCreated)
	s.other.push(t, "dropping", assignment([]locality{{zone: "a", address: s.a.address}, {zone: "b", priority: 1, address: s.b.address}}, "throttle", 50))
	d.push(t, "failing", assignment([]locality{{zone: "a", address: s.first.address}, {zone: "b", priority: 1, address: s.b.address}}))
	s.flap(t, "HEALTHY")
	d.push(t, "gone", assignment([]locality{{zone: "a", address: s.lost.address}}))
	for cluster, limit := range map[string]int{"full": 5, "half": 10, "leaky": 1_000_000, "honest": 1024} {
		d.must(t, "PUT", "/v1/clusters/"+cluster+"/config", fmt.Sprintf("type: EDS\ncircuit_breakers: {thresholds: [{max_requests: %d}]}\n", limit), http.StatusCreated)
		d.push(t, cluster, assignment(one))
	}
	for cluster, held := range map[string]int{"full": 5, "half": 4} {
		for range held {
			d.must(t, "POST", "/pick?cluster="+cluster+"&ttl=10m", "", http.StatusCreated)
		}
	}
	for _, cluster := range []string{"dropping", "agg", "twice", "shares"} {
		d.picks(t, cluster, 500, "")
	}
	s.other.picks(t, "dropping", 50, "")
	d.load(t, func(ctx context.Context) { _, _, _ = d.call(ctx, "GET", "/pick?target=shop&n=50", "") })
	d.load(t, func(ctx context.Context) { _, _, _ = d.call(ctx, "GET", "/pick?target=nowhere&wait=50ms", "") })
	s.stopLowered = d.picks(t, "lowered", 500, "")
	for _, cluster := range []string{"failing", "flapping", "full", "half", "filed", "served", "kept", "deleted"} {
		d.picks(t, cluster, 5, "")
	}
	s.share(t)
	d.picks(t, "gone", 5, "")
	d.picks(t, "gone", 5, "&wait_for_ready=true&wait=50ms") // these queue
	d.load(t, func(ctx context.Context) { d.lease(ctx, "leaky", "1s") })
	d.load(t, func(ctx context.Context) {
		_, _, _ = d.call(ctx, "POST", "/v1/leases/"+d.lease(ctx, "honest", "1m")+"/done", `{"outcome":"success"}`)
	})
	report := fmt.Sprintf(`{"reporter":"test","interval":"100ms","clusters":[{"cluster":"honest","endpoints":[
		{"address":%q,"requests":20,"errors":5,"cancelled":1,"latency_seconds":4}]}]}`, s.a.address)
	d.load(t, func(ctx context.Context) { _, _, _ = d.call(ctx, "POST", "/v1/reports", report) })
}

// share pushes the clusters of the daemon with etcd.
func (s *scenario) share(t *testing.T) {
	t.Helper()
	one := assignment([]locality{{zone: "a", address: s.a.address}})
	s.shared.must(t, "PUT", "/v1/clusters/limited/config", "type: EDS\ncircuit_breakers: {thresholds: [{max_requests: 10}]}\n"+
		"metadata: {filter_metadata: {lbd: {limit_scope: fleet}}}\n", http.StatusCreated)
	s.shared.push(t, "limited", one)
	for range 3 {
		eventually(t, "a lease of limited", func() error { // once the daemon has a share
			status, answer, err := s.shared.call(t.Context(), "POST", "/pick?cluster=limited&ttl=10m", "")
			if err != nil || status != http.StatusCreated {
				return fmt.Errorf("%d, %w: %s", status, err, answer)
			}
			return nil
		})
	}
}

// large returns an assignment of more than 1 MiB, also in the store.
func large() string {
	var all []locality
	for i := range 5000 {
		all = append(all, locality{zone: fmt.Sprintf("zone-%0240d", i), address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)})
	}
	return assignment(all)
}

func (s *scenario) flap(t *testing.T, health string) {
	t.Helper()
	s.d.push(t, "flapping", assignment([]locality{{zone: "a", address: s.a.address, health: health}, {zone: "b", priority: 1, address: s.b.address}}))
}

// change runs events under load, each after Prometheus has scraped the result of the last one.
func (s *scenario) change(t *testing.T) {
	t.Helper()
	seen := func(expr string, w want) {
		t.Helper()
		eventually(t, expr, func() error {
			answer, err := s.p.ask(expr, true)
			return errors.Join(err, w.in(answer))
		})
	}
	updates := func(valid float64) {
		seen(`lbd_xds_updates_total{result="valid", type="Cluster"}`, is(valid))
		seen(`lbd_xds_updates_total{result="valid", type="ClusterLoadAssignment"}`, is(valid))
	}
	shared := []string{"instance", s.shared.address}
	seen(`lbd_fleet_demand`, is(3, shared...))
	seen(`lbd_fleet_joined`, is(1, shared...))
	s.etcd.close() // early: LbdStoreBehind waits for a minute
	updates(3)
	seen(`lbd_cluster_stale{cluster="served"}`, is(0))
	// The next ones increase the same counters.
	two := assignment([]locality{{zone: "a", address: s.a.address}, {zone: "b", address: s.b.address}})
	s.plane.serves(t, map[string]string{"served": "LEAST_REQUEST", "kept": "LEAST_REQUEST", "deleted": "LEAST_REQUEST"}, two)
	updates(6)
	s.plane.serves(t, map[string]string{"served": "LEAST_REQUEST", "kept": "MAGLEV"}, two)
	for range 2 {
		seen(`lbd_cluster_priority{cluster="flapping"}`, is(0))
		s.flap(t, "UNHEALTHY")
		seen(`lbd_cluster_priority{cluster="flapping"}`, is(1))
		s.flap(t, "HEALTHY")
	}
	// It is sent, and rejected, every second, together with the others.
	seen(`rate(lbd_xds_updates_total{type="Cluster"}[20s])`, within(some, many, "server", s.plane.address, "result", "invalid"))
	seen(`rate(lbd_xds_updates_total{type="Cluster"}[20s])`, within(some, many, "server", s.plane.address, "result", "unchanged"))
	seen(`lbd_xds_connected`, is(1, "server", s.plane.address))
	seen(`lbd_xds_resources{type="Listener", state=~"does_not_exist|timeout"}`, is(1)) // of nowhere
	s.plane.stop()
	seen(`lbd_pushes_total{result="blocked"}`, is(0))
	s.d.must(t, "PUT", "/v1/clusters/shares/endpoints", assignment([]locality{{zone: "a", address: "10.0.0.1:0"}}), http.StatusUnprocessableEntity)
	s.d.must(t, "PUT", "/v1/clusters/shares/endpoints", "endpoints: []\n", http.StatusConflict)
	seen(`lbd_pushes_total{result="storage_failed"}`, is(0, "instance", s.other.address))
	s.other.must(t, "PUT", "/v1/clusters/large/endpoints", large(), http.StatusInsufficientStorage)
	seen(`lbd_cluster_priority{cluster="failing"}`, is(0))
	s.first.close()
	seen(`lbd_cluster_priority{cluster="failing"}`, is(1))
	// A counter's first value is no increase: the second loss is one.
	seen(`lbd_cluster_state{cluster="gone", state="ready"}`, is(1))
	s.lost.close()
	seen(`lbd_cluster_state{cluster="gone", state="transient_failure"}`, is(1))
	s.lost = listen(t, s.lost.address)
	seen(`lbd_cluster_state{cluster="gone", state="ready"}`, is(1))
	s.lost.close()
	seen(`rate(lbd_drops_total{cluster="lowered"}[10s])`, within(100, 1e6))
	s.stopLowered()
	s.d.push(t, "lowered", assignment([]locality{{zone: "a", address: s.a.address}}, "throttle", 10))
	seen(`lbd_cluster_state{cluster="gone", state="transient_failure"}`, is(1))
	seen(`lbd_store_behind_seconds`, within(61, many, shared...))
}

// answers waits until the answer has all expected series.
func (s *scenario) answers(t *testing.T, name, expr string, instant bool, wanted []want) {
	t.Helper()
	expr = fill(expr, "", "", "20s")
	eventually(t, name+": "+expr, func() error {
		answer, err := s.p.ask(expr, instant)
		for _, w := range wanted {
			err = errors.Join(err, w.in(answer))
		}
		return err
	})
}

// few is a small part of a second; some is a number that is not 0.
const (
	few  = 0.01
	some = 1e-9
)

var many = math.Inf(1)

// panels returns the expected answers by panel and query.
func panels(instance, shared, server string) map[string][]want {
	return map[string][]want{
		"Instances up and down/A":             {is(3)},
		"Instances up and down/B":             {is(1)},
		"Clusters/A":                          {is(18)},
		"Unavailable clusters/A":              {is(1)},
		"Failed over/A":                       {is(1)},
		"Picks/A":                             {within(1000, many)},
		"Unexpected refusals/A":               {within(some, 0.2)},
		"Clusters now/A":                      {is(1, "cluster", "dropping", "instance", instance), is(4, "cluster", "gone")},
		"Clusters now/B":                      {is(0, "cluster", "shares"), is(1, "cluster", "failing"), is(0, "cluster", "flapping")},
		"Clusters now/C":                      {is(2, "cluster", "shares"), is(0, "cluster", "gone"), is(1, "cluster", "failing")},
		"Clusters now/D":                      {is(2, "cluster", "shares"), is(1, "cluster", "gone"), is(2, "cluster", "failing")},
		"Clusters now/E":                      {within(1000, many, "cluster", "dropping"), within(20, 60, "cluster", "failing")},
		"Clusters now/F":                      {within(.28, .32, "cluster", "dropping"), within(.28, .32, "cluster", "agg"), within(.73, .77, "cluster", "twice"), is(0, "cluster", "shares")},
		"Clusters now/G":                      {is(1, "cluster", "full"), is(.4, "cluster", "half"), is(0, "cluster", "dropping")},
		"Clusters now/H":                      {within(some, 300, "cluster", "lowered")},
		"Clusters now/I":                      {is(0, "cluster", "dropping"), is(1, "cluster", "served"), is(1, "cluster", "kept")},
		"Picks by result/A":                   {within(1000, many, "result", "ok"), within(1000, many, "result", "dropped"), within(1, many, "result", "circuit_broken"), within(1, many, "result", "no_ready_endpoint"), within(1, many, "result", "pick_timeout")},
		"Picks by cluster/A":                  {within(1000, many, "cluster", "twice"), within(20, 60, "cluster", "filed")},
		"Pick duration/A":                     {within(some, few)},
		"Pick duration/B":                     {within(some, few)},
		"Pick queue time/A":                   {within(.025, 1)},
		"Pick queue time/B":                   {within(1, many)},
		drops + "/A":                          {within(.28, .32, "cluster", "dropping", "category", "throttle"), within(.48, .52, "cluster", "twice", "category", "abuse"), within(.23, .27, "cluster", "twice", "category", "throttle")},
		drops + "/B":                          {is(.3, "cluster", "dropping", "category", "throttle"), is(.5, "cluster", "twice", "category", "throttle")},
		inAll + "/A":                          {within(.28, .32, "cluster", "dropping"), within(.73, .77, "cluster", "twice")},
		inAll + "/B":                          {within(.2999, .3001, "cluster", "dropping"), within(.7499, .7501, "cluster", "twice")},
		"Requests in flight and limit/A":      {is(5, "cluster", "full"), is(4, "cluster", "half")},
		"Requests in flight and limit/B":      {is(5, "cluster", "full"), is(10, "cluster", "half"), is(1024, "cluster", "dropping")},
		"Circuit breaker usage/A":             {is(1, "cluster", "full"), is(.4, "cluster", "half")},
		"Circuit breaker usage/B":             {is(1, "cluster", "full"), is(0, "cluster", "half")},
		"Refused by the circuit breaker/A":    {within(1, 60, "cluster", "full"), is(0, "cluster", "half")},
		"Priority in use/A":                   {is(0, "cluster", "failing").ever(), is(1, "cluster", "failing"), is(1, "cluster", "flapping").ever(), is(0, "cluster", "flapping")},
		"State/A":                             {is(1, "cluster", "gone").ever(), is(4, "cluster", "gone"), is(1, "cluster", "shares")},
		"Priority switches/A":                 {within(.5, 2, "cluster", "failing", "reason", "failure").ever(), within(.5, 3, "cluster", "flapping").ever()},
		shares + "/A":                         {within(.73, .77, "cluster", "shares", "locality", "us/a/"), within(.23, .27, "cluster", "shares", "locality", "us/b/"), is(1, "cluster", "failing", "priority", "0").ever(), within(.99, 1, "cluster", "failing", "priority", "1")},
		shares + "/B":                         {is(.75, "cluster", "shares", "locality", "us/a/"), is(.25, "cluster", "shares", "locality", "us/b/"), is(1, "cluster", "failing", "priority", "1")},
		"Endpoints by state/A":                {is(22, "state", "ready"), within(1, 3, "state", "transient_failure"), is(1, "state", "unhealthy").ever()},
		"Ready endpoints by priority/A":       {is(2, "cluster", "shares", "priority", "0"), is(1, "cluster", "failing", "priority", "1")},
		"Connections/A":                       {within(some, many, "result", "ok").ever(), within(some, many, "result", "error").ever()},
		"Connections/B":                       {within(some, many).ever()},
		"Pushes by result/A":                  {within(some, many, "result", "applied").ever(), within(0, many, "result", "rejected"), within(0, many, "result", "blocked")},
		"Age of the config/A":                 {within(some, 300, "cluster", "shares")},
		unusable + "/A":                       {is(0, "instance", instance).ever(), is(3, "instance", instance)},
		unusable + "/B":                       {is(1, "instance", instance)},
		unusable + "/C":                       {is(0, "instance", shared)},
		"Management servers/A":                {is(1, "server", server, "instance", instance).ever(), is(0, "server", server, "instance", instance)},
		"xDS resources by state/A":            {is(3, "type", "Cluster", "state", "acked").ever(), is(1, "type", "Cluster", "state", "acked"), is(1, "type", "Cluster", "state", "nacked_but_cached"), is(1, "type", "Cluster", "state", "does_not_exist_but_cached"), is(3, "type", "ClusterLoadAssignment", "state", "acked"), is(0, "type", "Listener", "state", "acked")},
		"xDS updates by result/A":             {within(some, 2, "type", "Cluster", "result", "valid").ever(), within(some, 2, "type", "ClusterLoadAssignment", "result", "valid").ever(), within(some, 2, "type", "Cluster", "result", "invalid").ever(), within(some, 2, "type", "Cluster", "result", "unchanged").ever()},
		"Leases held/A":                       {is(5, "cluster", "full"), is(4, "cluster", "half"), within(1, 30, "cluster", "leaky")},
		"Leases by outcome/A":                 {within(1, 12, "outcome", "expired"), within(1, 12, "outcome", "success")},
		"Expired leases/A":                    {is(1, "cluster", "leaky")},
		"Reported requests by outcome/A":      {within(70, 300, "outcome", "success"), within(25, 100, "outcome", "error"), within(5, 20, "outcome", "cancelled")},
		"Reported errors/A":                   {within(.2499, .2501, "cluster", "honest")},
		"Duration of reported requests/A":     {within(.1999, .2001, "cluster", "honest")},
		fleetLimit + "/A":                     {is(10, "cluster", "limited")},
		fleetLimit + "/B":                     {within(3, 10, "cluster", "limited").ever(), is(0, "cluster", "limited")},
		fleetLimit + "/C":                     {within(3, 10, "cluster", "limited").ever()},
		"Share of each daemon/A":              {within(3, 10, "cluster", "limited", "instance", shared).ever(), is(0, "cluster", "limited", "instance", shared)},
		"Time since etcd was followed/A":      {within(60, 600, "instance", shared)},
		"Session in etcd/A":                   {is(1, "instance", shared).ever(), is(0, "instance", shared)},
		"Requests by route and code/A":        {within(10, many, "route", "/pick", "method", "GET", "code", "200"), within(1, many, "route", "/pick", "code", "503"), within(1, 12, "route", "/v1/leases/{id}/done", "code", "200")},
		"Request duration, 99th percentile/A": {within(some, 1, "route", "/pick", "method", "POST")},
		"CPU/A":                               {within(some, 2, "instance", instance)},
		"Memory/A":                            {within(1<<20, 1<<30, "instance", instance)},
		"Memory/B":                            {within(1<<20, 1<<30, "instance", instance)},
		"Goroutines, descriptors, watchers/A": {within(1, 1000, "instance", instance)},
		"Goroutines, descriptors, watchers/B": {within(1, 1000, "instance", instance)},
		"Goroutines, descriptors, watchers/C": {is(0, "kind", "longpoll")},
		"Version and start time/A":            {is(1, "instance", instance)},
		"Version and start time/B":            {within(some, 600, "instance", instance)},
		"annotation Priority switches":        {within(some, many, "cluster", "failing", "reason", "failure").ever(), within(some, many, "cluster", "flapping").ever()},
	}
}

// Panels of long titles.
const (
	drops  = "Drops by category, actual and configured"
	inAll  = "All drops, actual and configured"
	shares = "Share of a locality, actual and expected"

	fleetLimit = "Limit of all daemons, shares and demand"
	unusable   = "Stale clusters, bad files, unreadable records"
)

// dashboard runs the queries of all panels, annotations and variables.
func (s *scenario) dashboard(t *testing.T) {
	board := readDashboard(t)
	wanted := panels(s.d.address, s.shared.address, s.plane.address)
	for _, all := range wanted {
		for i := range all {
			all[i].of = cmp.Or(all[i].labels["instance"], s.d.address)
		}
	}
	instant := map[string]bool{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			instant[p.Title+"/"+q.RefID] = q.Instant
		}
	}
	queries := dashboardQueries(board)
	for _, name := range names(queries) {
		w, ok := wanted[name]
		if !ok {
			t.Errorf("no answer is expected for %s", name)
		}
		delete(wanted, name)
		s.answers(t, name, queries[name], instant[name], w)
	}
	for _, name := range names(wanted) {
		t.Errorf("the dashboard has no query %s", name)
	}

	values := map[string][]string{}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		if err := json.Unmarshal(v.Query, &query); err != nil || query.Query != v.Definition {
			t.Errorf("variable %s asks %q, and is defined as %q", v.Name, query.Query, v.Definition)
		}
		inner := strings.TrimSuffix(strings.TrimPrefix(fill(query.Query, "", "", ""), "label_values("), ")")
		at := strings.LastIndex(inner, ", ")
		var answer []string
		if err := s.p.api("label/"+inner[at+2:]+"/values", url.Values{"match[]": {inner[:at]}}, &answer); err != nil {
			t.Errorf("variable %s: %v", v.Name, err)
		}
		values[v.Name] = answer
	}
	if got := values["instance"]; !slices.Equal(got, slices.Sorted(slices.Values([]string{s.d.address, s.other.address, s.shared.address}))) {
		t.Errorf("instances are %q", got)
	}
	want := []string{"agg", "deleted", "dropping", "failing", "filed", "flapping", "full", "gone", "half", "honest", "kept", "leaky", "limited", "lowered", "served", "shares", "twice"}
	if got := values["cluster"]; !slices.Equal(got, want) {
		t.Errorf("clusters are %q", got)
	}
}

// narrowed runs the queries for one cluster of one instance: the answers have no series of
// others.
func (s *scenario) narrowed(t *testing.T) {
	for name, expr := range dashboardQueries(readDashboard(t)) {
		answer, err := s.p.ask(fill(expr, s.other.address, "dropping", "20s"), true)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, l := range answer {
			if i, c := l.Metric["instance"], l.Metric["cluster"]; i != "" && i != s.other.address || c != "" && c != "dropping" {
				t.Errorf("%s of dropping at %s answers %v", name, s.other.address, l.Metric)
			}
		}
	}
	_, text, err := s.d.call(t.Context(), "GET", "/metrics", "")
	must(t, err)
	_, ofFleet, err := s.shared.call(t.Context(), "GET", "/metrics", "")
	must(t, err)
	_, endpoints, err := s.d.call(t.Context(), "GET", "/metrics/endpoints", "")
	must(t, err)
	ofClusters := map[string]bool{} // metrics with a label cluster
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\{.*\bcluster="`).FindAllStringSubmatch(text+ofFleet+endpoints, -1) {
		ofClusters[m[1]] = true
	}
	if len(ofClusters) < 20 {
		t.Fatalf("only %v have clusters", names(ofClusters))
	}
	for name, expr := range dashboardQueries(readDashboard(t)) {
		for _, m := range regexp.MustCompile(`\b(lbd_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(expr, -1) {
			if ofClusters[m[1]] != strings.Contains(m[2], `cluster=~"$cluster"`) {
				t.Errorf("%s: %s, and its series have a cluster is %t", name, m[0], ofClusters[m[1]])
			}
		}
	}
}

// recordings queries the result of each recording rule.
func (s *scenario) recordings(t *testing.T) {
	wanted := map[string][]want{
		"lbd:picks_ok:ratio_rate5m":        {is(1, "cluster", "shares"), within(.68, .72, "cluster", "dropping", "job", "lbd"), within(.68, .72, "cluster", "agg"), is(0, "cluster", "full")},
		"lbd:picks_refused:rate5m":         {within(1, many, "target", "xds:///nowhere"), within(1, many, "cluster", "gone")},
		"lbd:picks_refused:ratio_rate5m":   {is(1, "target", "xds:///nowhere"), within(some, 1, "cluster", "gone")},
		"lbd:picks_judged:rate5m":          {within(100, many, "cluster", "dropping")},
		"lbd:drops:ratio_rate5m":           {within(.28, .32, "cluster", "dropping"), within(.73, .77, "cluster", "twice"), within(.58, .62, "cluster", "lowered")},
		"lbd:drops_configured:ratio":       {within(.2999, .3001, "cluster", "dropping"), within(.7499, .7501, "cluster", "twice"), within(.0999, .1001, "cluster", "lowered")},
		"lbd:circuit_broken:rate5m":        {within(1, many, "cluster", "full")},
		"lbd:requests_failed:rate5m":       {within(some, many, "cluster", "honest")},
		"lbd:requests_failed:ratio_rate5m": {within(0.01, 0.26, "cluster", "honest")},
		"lbd:leases_expired:rate10m":       {within(some, many, "cluster", "leaky")},
		"lbd:circuit_broken:ratio_rate5m":  {within(.9, 1, "cluster", "full")},
		"lbd:leases_expired:ratio_rate10m": {is(1, "cluster", "leaky")},
		"lbd:locality_picks:share_rate5m":  {within(.73, .77, "cluster", "shares", "locality", "us/a/"), within(.23, .27, "cluster", "shares", "locality", "us/b/")},
	}
	for _, r := range records(t) {
		w := wanted[r.Record]
		if w == nil {
			t.Errorf("no answer is expected for %s", r.Record)
		}
		for i := range w {
			w[i].of = s.d.address
		}
		s.answers(t, r.Record, r.Record, true, w)
	}
}

// alerts waits until exactly the expected alerts fire.
func (s *scenario) alerts(t *testing.T) {
	wanted := []string{
		"LbdCircuitBreakerOpen full", "LbdCircuitBreakerRejects full", "LbdClusterStale deleted", "LbdClusterStale kept", "LbdClusterStale served", "LbdClusterUnavailable gone", "LbdDown", "LbdDropsAboveConfigured lowered", "LbdFleetNotJoined",
		"LbdLeasesExpiring leaky", "LbdPicksRefused gone", "LbdPicksRefused xds:///nowhere", "LbdPriorityFailedOver failing", "LbdPriorityFlaps flapping",
		"LbdPushFailed storage_failed", "LbdPushRejected blocked", "LbdPushRejected rejected",
		"LbdRequestsFailInPart honest", "LbdResourceFileRefused", "LbdStoreBehind", "LbdTargetUnavailable xds:///nowhere", "LbdXdsDisconnected " + s.plane.address, "LbdXdsResourceKept Cluster", "LbdXdsResourceMissing Listener", "LbdXdsResourceRejected Cluster",
	}
	for _, a := range alerts(t) {
		switch a.Alert {
		case "LbdOverload": // a shortage would fail the scrapes, too
			continue
		case "LbdStoreUnreadable": // test/fleet damages records, and has the metric; promtool tests the rule
			continue
		case "LbdRequestsFail": // it is LbdRequestsFailInPart with another threshold; promtool tests the rule
			continue
		case "LbdOverlayOld", "LbdSourceCovered": // after a day, and an hour; promtool tests the rules
			continue
		}
		if !slices.ContainsFunc(wanted, func(w string) bool { return strings.Fields(w)[0] == a.Alert }) {
			t.Errorf("the scenario has no cause for %s", a.Alert)
		}
	}
	eventually(t, "the alerts", func() error {
		firing, err := s.p.firing(t)
		if got := names(firing); err == nil && !slices.Equal(got, wanted) {
			err = fmt.Errorf("firing are\n%q, want\n%q", got, wanted)
		}
		return err
	})
}
