package doctor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// well is a daemon without a problem.
func well() *Daemon {
	return &Daemon{
		Now: now, State: observe.DaemonState{Name: "host-1", Version: "1.0", Started: now.Add(-time.Hour)},
		DescriptorLimit: 1000, Descriptors: 10, Store: sources.StoreState{Kind: sources.StoreInFile, Loaded: true},
	}
}

// healthy is a cluster without a problem: two endpoints, a-1 and a-2, which are READY.
func healthy() *Cluster {
	share := func(s float64) *float64 { return &s }
	return &Cluster{
		Name: "orders", Parts: []Part{{Name: "orders", Assigned: true, Assignment: "orders", Source: "push", Endpoints: 2, Usable: 2}},
		Picks: Sample{Why: "none"},
		State: &observe.ClusterState{
			ClusterSummary: observe.ClusterSummary{
				Name: "orders", State: "READY", Source: "push", Endpoints: observe.EndpointCounts{Census: policy.Census{Ready: 2}, Total: 2},
				Breaker: &observe.BreakerState{MaxRequests: 10},
			},
			ConfigSource: "default", Type: "EDS", Policy: "round_robin", ConnectMode: "tcp", NoticeTime: "12s",
			Priorities: []observe.PriorityState{{InUse: true, State: "READY", Localities: []observe.LocalityState{{
				Weight: 1, Share: share(1), State: "READY",
				Endpoints: []observe.EndpointState{
					{Address: "a-1:80", Health: "HEALTHY", State: "READY", Share: share(0.5)},
					{Address: "a-2:80", Health: "HEALTHY", State: "READY", Share: share(0.5)},
				},
			}}}},
		},
	}
}

func (c *Cluster) endpoint(i int) *observe.EndpointState {
	return &c.State.Priorities[0].Localities[0].Endpoints[i]
}

// fails makes both endpoints fail.
func (c *Cluster) fails(err string) {
	c.State.State = "TRANSIENT_FAILURE"
	for i := range 2 {
		c.endpoint(i).State, c.endpoint(i).LastError = "TRANSIENT_FAILURE", err
	}
}

func TestNothingIsWrong(t *testing.T) {
	for _, asked := range []string{"", "orders"} {
		r := Examine(well(), []*Cluster{healthy()}, asked)
		for _, c := range r.Checks {
			if c.Status == Problem || c.Status == Warning {
				t.Errorf("%+v", c)
			}
		}
		if r.Status != OK || r.Summary != "no problem found" {
			t.Errorf("%s: %s", r.Status, r.Summary)
		}
	}
}

// TestCausesOfConnections: an error of a connection belongs to the check that says what to do.
func TestCausesOfConnections(t *testing.T) {
	for err, want := range map[string]string{
		"connect to a-1:80: dial tcp 10.0.0.1:80: connect: connection refused": "connections: 2 of 2 endpoints refuse connections",
		"dial tcp 10.0.0.1:80: i/o timeout":                                    "connections: 2 of 2 endpoints do not answer",
		"dial tcp 10.0.0.1:80: connect: no route to host":                      "connections: 2 of 2 endpoints cannot be reached: there is no route",
		"dial tcp: lookup a-1: no such host":                                   "DNS: 2 of 2 endpoints have names that do not resolve",
		"169.254.0.1 is denied by --deny-endpoints (169.254.0.0/16)":           "connections: 2 of 2 endpoints are not permitted",
		"127.0.0.1:8080 is denied: lbd listens there":                          "connections: 2 of 2 endpoints are not permitted",
		"tls handshake with x: the server's certificate, of DNS \"a\", checked with the roots of the system: x509: certificate has expired or is not yet valid: current time 2026-01-02 is after 2026-01-01": "TLS: 2 of 2 endpoints have an expired certificate",
		"tls handshake with x: the server's certificate is of DNS \"a\": wanted exact \"b\"":                                                                                                                 "TLS: 2 of 2 endpoints have certificates with other names",
		"tls handshake with x: x509: certificate is valid for a, not b":                                                                                                                                      "TLS: 2 of 2 endpoints have certificates with other names",
		"tls handshake with x: x509: certificate signed by unknown authority":                                                                                                                                "TLS: 2 of 2 endpoints have certificates of an unknown authority",
		"tls handshake with x: tls: first record does not look like a TLS handshake":                                                                                                                         "TLS: 2 of 2 endpoints do not speak TLS",
		"tls handshake with x: remote error: tls: bad certificate: it rejected the certificate of provider \"p\"":                                                                                            "TLS: 2 of 2 endpoints refuse lbd's client certificate",
		"tls handshake with x: certificate provider \"p\": certificate_file /x: no such file":                                                                                                                "TLS: 2 of 2 endpoints cannot be reached with TLS, as lbd lacks certificates",
		"tls handshake with x: EOF": "TLS: 2 of 2 endpoints fail the TLS handshake",
		"something else":            "connections: 2 of 2 endpoints cannot be reached: ",
	} {
		c := healthy()
		c.fails(err)
		r := Examine(well(), []*Cluster{c}, "orders")
		first := r.Checks[0]
		if got := first.Check + ": " + first.Found; first.Status != Problem || !strings.HasPrefix(got, want) || first.Remedy == "" || len(first.Details) != 2 {
			t.Errorf("%s:\n got %+v\nwant %s", err, first, want)
		}
	}
}

// TestFindings: each change of a daemon and a cluster without a problem is the first finding.
func TestFindings(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Daemon, *Cluster)
		asked  string
		status Status
		want   string // "check: found"
	}{
		"one endpoint fails": {
			func(_ *Daemon, c *Cluster) {
				c.endpoint(0).State, c.endpoint(0).LastError = "TRANSIENT_FAILURE", "connection refused"
			}, "orders", Warning, "connections: 1 of 2 endpoints refuses connections: a-1:80: connection refused",
		},
		"an ejected endpoint": {
			func(_ *Daemon, c *Cluster) { c.endpoint(1).State, c.endpoint(1).LastError = "EJECTED", "ejected" },
			"orders", Warning, "outliers: outlier detection has ejected 1 of 2 endpoints",
		},
		"the second priority": {
			func(_ *Daemon, c *Cluster) {
				c.State.Priorities = append(c.State.Priorities, c.State.Priorities[0])
				c.State.Priorities[0] = observe.PriorityState{Why: "TRANSIENT_FAILURE", Error: "connection refused"}
				c.State.PriorityInUse = 1
			}, "orders", Warning, "priorities: picks use priority 1, because priority 0 with 0 endpoints failed: connection refused",
		},
		"a locality without picks": {
			func(_ *Daemon, c *Cluster) {
				p := &c.State.Priorities[0]
				p.Localities = append(p.Localities, observe.LocalityState{Locality: observe.Locality{Zone: "b"}, Weight: 1, Share: new(0.0), State: "TRANSIENT_FAILURE"})
			}, "orders", Warning, "localities: 1 of 2 localities get no picks: b: TRANSIENT_FAILURE",
		},
		"an almost full breaker": {
			func(_ *Daemon, c *Cluster) { c.State.Breaker.InFlight = 9 }, "orders", Warning, "breaker: the circuit breaker is almost full: 9 of 10",
		},
		"a full breaker": {
			func(_ *Daemon, c *Cluster) {
				c.State.Breaker.InFlight, c.State.Breaker.Open = 10, true
				c.Holders = map[string][]ledger.Holder{"orders": {{Owner: ledger.Owner{Identity: "ci", Name: "batch"}, Leases: 9}}}
			}, "orders", Problem, "breaker: the circuit breaker is full: 10 of 10 requests are in flight (max_requests); most leases are held by ci/batch (9)",
		},
		"a full breaker of a leaf": {
			func(_ *Daemon, c *Cluster) {
				c.State.Breaker, c.State.Leaves = nil, []observe.LeafState{{Name: "near", Breaker: &observe.BreakerState{InFlight: 2, MaxRequests: 2, Open: true}}}
				c.Holders = map[string][]ledger.Holder{"near": {{Owner: ledger.Owner{Identity: "ci"}, Leases: 2}}}
			}, "orders", Problem, "breaker: the circuit breaker of leaf \"near\" is full: 2 of 2 requests are in flight (max_requests); most leases are held by ci (2)",
		},
		"a share of the fleet": {
			func(_ *Daemon, c *Cluster) {
				c.State.Breaker = &observe.BreakerState{MaxRequests: 10, InFlight: 3, Open: true, Fleet: &observe.FleetShare{Joined: true, Share: 3}}
			}, "orders", Problem, "breaker: the circuit breaker is full: 3 of 3 requests are in flight (the share of this daemon of 10)",
		},
		"no session for the share": {
			func(_ *Daemon, c *Cluster) { c.State.Breaker.Fleet = &observe.FleetShare{} },
			"orders", Problem, "breaker: the circuit breaker admits no requests: this daemon has no session in etcd",
		},
		"max_requests is 0": {
			func(_ *Daemon, c *Cluster) { c.State.Breaker.MaxRequests, c.State.Breaker.Open = 0, true },
			"orders", Problem, "breaker: the circuit breaker refuses every lease and pick: max_requests is 0",
		},
		"drops by an overlay": {
			func(_ *Daemon, c *Cluster) {
				c.State.Drops = []observe.DropState{{Category: "x", PerMillion: 1_000_000}}
				c.State.Overlays = []overlays.Overlay{{Cluster: "orders", ID: "stop", Kind: "drop", Category: "x", Created: now}}
			}, "orders", Problem, `drops: all picks are dropped: category "x": 100 %, set by overlay stop`,
		},
		"many drops": {
			func(_ *Daemon, c *Cluster) {
				c.State.Drops = []observe.DropState{{Category: "x", PerMillion: 500_000}, {Category: "y", PerMillion: 500_000}}
			}, "orders", Warning, "drops: 75 % of the picks are dropped",
		},
		"an outdated resource": {
			func(_ *Daemon, c *Cluster) {
				c.State.AmbientErrors = []observe.AmbientError{{Resource: "Cluster/orders", Error: "deleted", Since: now}}
			}, "orders", Problem, "resources: Cluster/orders is in use in its last good version: deleted",
		},
		"a rejected Cluster of a file": {
			func(_ *Daemon, c *Cluster) {
				c.ConfigErr, c.State.ConfigSource = errors.New("file orders.yaml: lb_policy: is invalid"), "file"
			},
			"orders", Problem, "resources: the cluster cannot be used: file orders.yaml",
		},
		"a DNS name that had addresses": {
			func(_ *Daemon, c *Cluster) {
				c.Parts[0].Host, c.Parts[0].AssignmentErr = "shop", errors.New("no such host")
			},
			"orders", Warning, `DNS: the name "shop" does not resolve any more`,
		},
		"one leaf is missing": {
			func(_ *Daemon, c *Cluster) {
				c.State.Type, c.State.Breaker = "AGGREGATE", nil
				c.Parts = append(c.Parts, Part{Name: "far", Err: errors.New("Cluster/far is not known")})
			}, "orders", Warning, `leaves: leaf "far" of the aggregate cannot be used`,
		},
		"pending": {
			func(_ *Daemon, c *Cluster) { c.Parts[0] = Part{Name: "orders", Pending: true, Assignment: "orders"} },
			"orders", Problem, "resources: the cluster waits for ClusterLoadAssignment/orders",
		},
		"a covered file": {
			func(_ *Daemon, c *Cluster) {
				c.State.Covers = []observe.Cover{{Resource: "ClusterLoadAssignment/orders", Source: "file", By: "push", Author: "ci", Differs: "1 endpoint added"}}
			},
			"orders", Warning, "sources: a push of ci covers ClusterLoadAssignment/orders of another source (file), whose changes have no effect: 1 endpoint added",
		},
		"a covered server, no cluster": {
			func(d *Daemon, _ *Cluster) {
				d.Covered = []sources.Covered{{Resource: "ClusterLoadAssignment/users", Source: resource.SourceADS, By: resource.SourceFile}}
			},
			"", Warning, "sources: 1 resource is not in use, because of a push or a file: ClusterLoadAssignment/users: a resource file covers that of a management server",
		},
		"a superseded overlay": {
			func(_ *Daemon, c *Cluster) {
				c.State.Overlays = []overlays.Overlay{{Cluster: "orders", ID: "a", Says: "drains x", SupersededBy: "b", Author: "ops", Created: now.Add(-time.Minute)}}
			}, "orders", Warning, "overlays: 1 overlay has no effect: a of orders drains x, by ops, 1m0s ago: superseded by b",
		},
		"an old overlay": {
			func(d *Daemon, _ *Cluster) {
				d.Overlays = []overlays.Overlay{{Cluster: "users", ID: "a", Says: "drains x", Created: now.Add(-8 * 24 * time.Hour)}}
			}, "", Warning, "overlays: 1 overlay is older than 7 days and has no end",
		},
		"an overlay that matches nothing": {
			func(d *Daemon, _ *Cluster) {
				d.Overlays = []overlays.Overlay{{Cluster: "users", ID: "a", Endpoints: new(0), Created: now}}
			}, "", Warning, "overlays: 1 overlay has no effect",
		},
		"few descriptors": {
			func(d *Daemon, _ *Cluster) { d.Descriptors = 950 }, "", Warning, "shortage: 950 of 1000 file descriptors are open",
		},
		"the clock was set": {
			func(d *Daemon, _ *Cluster) { d.ClockStep = -time.Hour }, "", Warning, "clock: the wall clock of the daemon's host was set by -1h0m0s",
		},
		"a change from the future": {
			func(d *Daemon, _ *Cluster) {
				d.Clusters = []observe.ClusterSummary{{Name: "orders", Updated: now.Add(time.Minute)}}
			},
			"", Warning, "clock: the last change of cluster orders is from the future, by 1m0s",
		},
		"an expired certificate of lbd": {
			func(d *Daemon, _ *Cluster) {
				d.Certificates = []Certificate{{Name: "--tls-cert", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-time.Minute)}}
			}, "", Problem, "certificates: --tls-cert: the certificate expired at 2026-11-24T11:59:00Z",
		},
		"a certificate that expires soon": {
			func(d *Daemon, _ *Cluster) {
				d.Certificates = []Certificate{{Name: "--tls-cert", NotBefore: now.Add(-80 * 24 * time.Hour), NotAfter: now.Add(5 * 24 * time.Hour)}}
			}, "", Warning, "certificates: --tls-cert: the certificate expires at",
		},
		"a certificate that cannot be read": {
			func(d *Daemon, _ *Cluster) {
				d.Certificates = []Certificate{{Name: "p", Err: errors.New("no such file")}}
			},
			"", Problem, "certificates: p: no such file",
		},
		"the store is not known": {
			func(d *Daemon, _ *Cluster) { d.StoreErr = errors.New("not loaded") }, "", Problem, "store: the store is not readable: not loaded",
		},
		"unreadable records": {
			func(d *Daemon, _ *Cluster) { d.Store.Unreadable = 2 }, "", Problem, "store: 2 records in etcd cannot be read",
		},
		"unknown kinds": {
			func(d *Daemon, _ *Cluster) { d.Store.UnknownKinds = map[string]int{"Rule": 1, "Policy": 2} }, "", Warning,
			"store: the store has records of kinds that this lbd does not know: Policy, Rule; they have no effect here",
		},
		"behind": {
			func(d *Daemon, _ *Cluster) { d.Store.BehindSeconds = new(60.0) }, "", Warning, "store: the daemon last knew 60 s ago",
		},
		"replicas disagree": {
			func(d *Daemon, c *Cluster) {
				c.fails("connection refused")
				d.Fleet = roster.State{Shared: true, Joined: true, Disagreements: []roster.Disagreement{{
					Cluster: "orders", Address: "a-1:80", Says: "1 of 3 replicas cannot reach a-1:80", From: []string{"host-1"},
				}}}
			}, "orders", Problem, "fleet: cluster orders: 1 of 3 replicas cannot reach a-1:80 (host-1), others can",
		},
		"no session": {
			func(d *Daemon, _ *Cluster) { d.Fleet = roster.State{Shared: true} }, "", Problem, "fleet: this daemon has no session in etcd",
		},
		"etcd fails": {
			func(d *Daemon, _ *Cluster) { d.Fleet = roster.State{Shared: true, Error: "no answer"} }, "", Problem, "fleet: what the other replicas publish cannot be read",
		},
		"two versions": {
			func(d *Daemon, _ *Cluster) {
				d.Fleet = roster.State{Shared: true, Joined: true, Replicas: []roster.ReplicaState{{State: "live", Version: "1"}, {State: "live", Version: "2"}, {State: "gone"}}}
			}, "", Warning, "fleet: replicas run 2 versions of lbd",
		},
		"a fallback server": {
			func(d *Daemon, _ *Cluster) { d.XDS = sources.XDSState{Configured: true, Fallbacks: 1} },
			"", Warning, "management servers: 1 target uses a fallback server",
		},
		"load reports": {
			func(d *Daemon, _ *Cluster) {
				d.XDS = sources.XDSState{Configured: true, LoadReports: []sources.XDSLoadReports{{Server: "s", LastError: "unimplemented"}}}
			}, "", Warning, "management servers: load reports to s fail: unimplemented",
		},
		"an identity that expires": {
			func(d *Daemon, _ *Cluster) {
				d.Caller = &Caller{Name: "ci", Roles: []string{"read"}, Expires: new(now.Add(time.Hour))}
			},
			"", Warning, "access: ci has the roles read; the identity expires at",
		},
		"a shortage comes first": {
			func(d *Daemon, c *Cluster) {
				c.fails("connection refused")
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionShortage, Text: "no descriptors"}}
			}, "orders", Problem, "shortage: no descriptors",
		},
		"another file is not the cause": {
			func(d *Daemon, c *Cluster) {
				c.fails("connection refused")
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionFileBad, Subject: "users.yaml", Text: "bad"}}
			}, "orders", Problem, "connections: 2 of 2 endpoints refuse connections",
		},
		"the file of the cluster is the cause": {
			func(d *Daemon, c *Cluster) {
				c.Parts[0].Endpoints, c.Parts[0].Usable = 0, 0
				d.Files.Files = []sources.FileState{{File: "orders.yaml", State: sources.FileBad}}
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionFileBad, Subject: "orders.yaml", Text: "bad"}}
			}, "orders", Problem, "files: bad",
		},
		"a held change of the cluster comes first": {
			func(d *Daemon, c *Cluster) {
				c.fails("connection refused")
				d.Files.Held = []files.Held{{Hash: "h", Clusters: []string{"orders"}}}
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionChangeHeld, Subject: "h", Text: "held"}}
			}, "orders", Problem, "files: held",
		},
		"without a cluster, the daemon comes first": {
			func(d *Daemon, c *Cluster) {
				c.fails("connection refused")
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionAuditFailing, Text: "disk full"}}
			}, "", Problem, "audit log: disk full",
		},
		"insecure": {
			func(d *Daemon, _ *Cluster) {
				d.State.Conditions = []observe.Condition{{Kind: observe.ConditionInsecure, Text: "--insecure is set"}}
			}, "", Warning, "security: --insecure is set",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, c := well(), healthy()
			tt.change(d, c)
			r := Examine(d, []*Cluster{c}, tt.asked)
			first := r.Checks[0]
			if got := first.Check + ": " + first.Found; first.Status != tt.status || !strings.HasPrefix(got, tt.want) {
				t.Errorf("\n got %s %s\nwant %s %s", first.Status, got, tt.status, tt.want)
			}
			if r.Summary != first.Found || r.Status != first.Status || r.Problems+r.Warnings == 0 {
				t.Errorf("summary %s %q, %d problems, %d warnings", r.Status, r.Summary, r.Problems, r.Warnings)
			}
		})
	}
}

// TestListsAreBounded: a check has at most MaxDetails details, and a report a bounded number of targets
// and resources.
func TestListsAreBounded(t *testing.T) {
	d, c := well(), healthy()
	d.XDS.Configured = true
	e := c.endpoint(0)
	c.State.Priorities[0].Localities[0].Endpoints = nil
	for i := range 1000 {
		bad := *e
		bad.Address, bad.State, bad.LastError = fmt.Sprint("a-", i), "TRANSIENT_FAILURE", "connection refused"
		c.State.Priorities[0].Localities[0].Endpoints = append(c.State.Priorities[0].Localities[0].Endpoints, bad)
		d.Targets = append(d.Targets, Target{Name: fmt.Sprint("xds:///", i), Error: "no Listener"})
		d.XDS.Resources = append(d.XDS.Resources, sources.XDSResource{Target: "xds:///a", Type: "Cluster", Name: fmt.Sprint(i), State: "does_not_exist"})
	}
	r := Examine(d, []*Cluster{c}, "")
	if len(r.Checks) > 100 {
		t.Errorf("%d checks", len(r.Checks))
	}
	more := fmt.Sprintf("%d more resources of management servers have an error", 1000-maxTargets)
	if !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Found == more }) {
		t.Errorf("none says %q", more)
	}
	for _, check := range r.Checks {
		if len(check.Details) > MaxDetails {
			t.Errorf("%s has %d details", check.Check, len(check.Details))
		}
	}
}

// TestProbabilities compares the G-test with known values of the chi-squared distribution.
func TestProbabilities(t *testing.T) {
	for _, tt := range []struct{ df, x, want float64 }{
		{1, 3.841458820694124, 0.05},
		{2, 5.991464547107979, 0.05},
		{10, 18.30703805327515, 0.05},
		{1, 0, 1},
		{4, 1, 0.9097959895689501},
		{2, 41.44653167389282, 1e-9},
		{100, 124.3421134, 0.05},
		{99, 50, 0.99999},
	} {
		if got := upperGamma(tt.df/2, tt.x/2); math.Abs(got-tt.want) > 1e-4*max(tt.want, 1e-9)+1e-12 && math.Abs(got/tt.want-1) > 1e-4 {
			t.Errorf("df %v, x %v: %v, want %v", tt.df, tt.x, got, tt.want)
		}
	}
	if p := fits([]float64{0.5, 0.5}, []uint64{500, 500}); p < 0.99 {
		t.Errorf("equal counts: %v", p)
	}
	if p := fits([]float64{0.5, 0.5}, []uint64{600, 400}); p > 1e-9 || p < 1e-11 {
		t.Errorf("600 and 400: %v", p)
	}
}

// TestPicks: picks are compared only where shares are known and there are enough of them.
func TestPicks(t *testing.T) {
	at := func(zone string) Place { return Place{Locality: observe.Locality{Zone: zone}} }
	for name, tt := range map[string]struct {
		change func(*Cluster)
		status Status
		want   string
	}{
		"good":         {func(*Cluster) {}, OK, "2000 picks in 1m0s follow the shares of 2 localities"},
		"bad":          {func(c *Cluster) { c.Picks.Picks[at("a")] = 10_000 }, Warning, "do not follow the shares"},
		"few":          {func(c *Cluster) { c.Picks.Picks = map[Place]uint64{at("a"): 10} }, Skipped, "10 picks in 1m0s are not enough"},
		"no sample":    {func(c *Cluster) { c.Picks = Sample{Why: "weights changed"} }, Skipped, "weights changed"},
		"ring_hash":    {func(c *Cluster) { c.State.Priorities[0].Localities[0].Share = nil }, Skipped, "does not choose localities by weight"},
		"an aggregate": {func(c *Cluster) { c.State.Type = "AGGREGATE" }, Skipped, "aggregate"},
		"one locality": {func(c *Cluster) { *c.State.Priorities[0].Localities[0].Share = 0 }, Skipped, "only one locality"},
		"no priority":  {func(c *Cluster) { c.State.PriorityInUse = -1 }, Skipped, "no priority"},
	} {
		c := healthy()
		c.State.Priorities[0].Localities = []observe.LocalityState{
			{Locality: observe.Locality{Zone: "a"}, Weight: 1, Share: new(0.5)}, {Locality: observe.Locality{Zone: "b"}, Weight: 1, Share: new(0.5)},
		}
		c.Picks = Sample{Since: now.Add(-time.Minute), Picks: map[Place]uint64{at("a"): 1010, at("b"): 990}}
		tt.change(c)
		if got := c.picks(well()); got.Status != tt.status || !strings.Contains(got.Found, tt.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestEveryConditionHasACheck: a new kind of condition needs a check.
func TestEveryConditionHasACheck(t *testing.T) {
	for _, kind := range observe.ConditionKinds {
		if kinds[kind].check == "" {
			t.Errorf("%s has no check", kind)
		}
	}
	d := well()
	d.State.Conditions = []observe.Condition{{Kind: "new", Text: "something"}}
	if r := Examine(d, nil, ""); r.Checks[0].Check != "new" || r.Status != Problem {
		t.Errorf("%+v", r.Checks[0])
	}
}

// TestOverlayTakesPriority: a priority that overlays take out of use has not failed, and its endpoints need no correction.
func TestOverlayTakesPriority(t *testing.T) {
	c := healthy()
	second := c.State.Priorities[0]
	out := []observe.EndpointState{{State: "UNHEALTHY", Overlay: "failover"}, {State: "UNHEALTHY"}}
	c.State.Priorities = []observe.PriorityState{{Why: "TRANSIENT_FAILURE: no usable endpoints", Localities: []observe.LocalityState{{Endpoints: out}}}, second}
	c.State.PriorityInUse = 1
	c.State.Overlays = []overlays.Overlay{{Cluster: "orders", ID: "failover", Says: "forces 1", Created: now, Expires: new(now.Add(time.Hour))}}
	priorities := func() Check {
		t.Helper()
		r := Examine(well(), []*Cluster{c}, "orders")
		return r.Checks[slices.IndexFunc(r.Checks, func(c Check) bool { return c.Check == "priorities" })]
	}
	want := "picks use priority 1, because overlays take priority 0 out of use: failover of orders forces 1, 0s ago, until " +
		now.Add(time.Hour).UTC().Format(time.RFC3339) + ": 1 endpoint"
	if is := priorities(); is.Found != want || is.Remedy != "if that is not intended any more: DELETE /v1/clusters/orders/overlays/failover" {
		t.Errorf("%+v", is)
	}
	out[1] = observe.EndpointState{State: "TRANSIENT_FAILURE"}
	if is := priorities(); !strings.Contains(is.Found, "priority 0 with 2 endpoints failed") {
		t.Errorf("%+v", is)
	}
}

// TestOverlayTakesEverything: endpoints that are usable by their sources, and are taken out of use, name
// the overlay.
func TestOverlayTakesEverything(t *testing.T) {
	c := healthy()
	c.State.Endpoints.Unhealthy = 2
	for i := range 2 {
		c.endpoint(i).State, c.endpoint(i).Health, c.endpoint(i).Overlay = "UNHEALTHY", resource.HealthDraining.String(), "deploy"
	}
	c.State.Overlays = []overlays.Overlay{{Cluster: "orders", ID: "deploy", Says: "drains all", Created: now}}
	r := Examine(well(), []*Cluster{c}, "orders")
	if first := r.Checks[0]; first.Check != "overlays" || first.Status != Problem || !strings.Contains(first.Remedy, "overlays/deploy") {
		t.Errorf("%+v", first)
	}
	if slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Check == "connections" && c.Status != Skipped }) {
		t.Error("connections were checked without endpoints")
	}

	// The overlays of an AGGREGATE are those of its leaves, and may have the same ID.
	c.State.Type, c.State.Priorities[0].Cluster = "AGGREGATE", "us/east"
	c.State.Overlays = []overlays.Overlay{{Cluster: "eu", ID: "deploy", Created: now}, {Cluster: "us/east", ID: "deploy", Created: now}}
	r = Examine(well(), []*Cluster{c}, "orders")
	if first := r.Checks[0]; first.Check != "overlays" || len(first.Details) != 1 || !strings.HasSuffix(first.Remedy, "DELETE /v1/clusters/us%2Feast/overlays/deploy") {
		t.Errorf("%+v", first)
	}
	if !slices.ContainsFunc(r.Checks, func(c Check) bool { return strings.HasSuffix(c.Remedy, "DELETE /v1/clusters/CLUSTER/overlays/ID") }) {
		t.Errorf("%+v", r.Checks)
	}
}
