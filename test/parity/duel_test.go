package parity_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	lbdpicks "github.com/lbd-dev/lbd/service/picks"
)

// duel is a target of a management server that one side follows: grpc-go and lbd get the
// same resources and upstreams, one after the other.
type duel struct {
	*hosting

	t    *testing.T
	net  *upstreams
	m    *management
	node string
	// files is the directory of certificates. The provider requires those of a
	// certificate and its key to be in one directory.
	files string

	// provider is the config of the bootstrap's certificate provider "roots", empty if
	// there is none. creds are grpc-go's.
	provider string
	creds    credentials.TransportCredentials
	// feature is one of the management server, or empty.
	feature string

	grpc *grpcTarget // nil where lbd follows
	lbd  *lbdTarget  // nil where grpc-go does

	version int
}

// duels numbers the hosts of duels, after those of scenarios.
var duels atomic.Int64

// newDuel creates a duel with a cluster "a" of two upstreams, the first of which listens,
// and a route of all requests to it.
func newDuel(t *testing.T, follower func(*duel) error, change ...func(*duel)) *duel {
	m, err := newManagement()
	must(t, err)
	t.Cleanup(m.close)
	server := grpc.NewServer(grpc.ConnectionTimeout(time.Hour))
	t.Cleanup(server.Stop)
	n := int(duels.Add(1))
	net, err := claimHost(server, 1<<15+n)
	must(t, err)
	t.Cleanup(net.close)
	name := "d" + strconv.Itoa(n)
	d := &duel{
		t: t, net: net, m: m, node: name, files: t.TempDir(), creds: insecure.NewCredentials(),
		hosting: &hosting{target: name, deleted: make(map[string]bool), withheld: make(map[string]bool)},
	}
	d.hosts = []virtualHost{{name: "all", domains: []string{"*"}, routes: []*route{leadsTo("a")}}}
	d.addCluster("a", 2)
	d.net.all[0].want = true
	for _, f := range change {
		f(d)
	}
	must(t, follower(d))
	return d
}

// bootstrap returns the bootstrap of a node.
func (d *duel) bootstrap(node string) []byte {
	config := bootstrapOf(d.m.address, node, d.feature)
	if d.provider == "" {
		return config
	}
	return fmt.Appendf(bytes.TrimSuffix(config, []byte("}")),
		`, "certificate_providers": {"roots": {"plugin_name": "file_watcher", "config": {%s}}}}`, d.provider)
}

// grpcFollows and lbdFollows are the sides.
func grpcFollows(d *duel) (err error) {
	if d.grpc, err = newGRPCTarget(d.bootstrap(d.node), d.target, d.creds); err == nil {
		d.t.Cleanup(d.grpc.close)
	}
	return err
}

func lbdFollows(d *duel) (err error) {
	if d.lbd, err = newLBDTarget(d.t.Context(), d.bootstrap(lbdNode(d.node)), d.target, d.t.TempDir()); err == nil {
		d.t.Cleanup(d.lbd.close)
	}
	return err
}

// addCluster adds a cluster with upstreams, each in a locality of its own.
func (d *duel) addCluster(name string, endpoints int) {
	w := &world{cluster: name, policy: lbPolicies[0], asked: emptyCluster}
	for range endpoints {
		w.localities = append(w.localities, &locality{
			zone: len(d.net.all), weight: 1,
			endpoints: []*endpoint{{upstreams: []*upstream{d.net.add()}, health: corev3.HealthStatus_HEALTHY}},
		})
	}
	d.leaves = append(d.leaves, w)
}

// leadsTo routes all requests to a cluster.
func leadsTo(cluster string) *route {
	return &route{name: cluster, path: pathCondition{kind: prefixPath}, action: forward, alone: true, clusters: []weighted{{cluster, 1}}}
}

// serve starts and stops upstreams, and serves the current resources.
func (d *duel) serve() {
	d.t.Helper()
	if _, err := d.net.settle(); err != nil {
		d.t.Fatal(err)
	}
	d.version++
	must(d.t, d.m.serve(d.t.Context(), d.node, strconv.Itoa(d.version), d.resources()))
}

// nodeID is the node ID of the side.
func (d *duel) nodeID() string {
	if d.lbd != nil {
		return lbdNode(d.node)
	}
	return d.node
}

// asked lists the side's subscriptions to clusters.
func (d *duel) asked() string {
	return "asks for [" + strings.Join(d.m.askedFor(d.nodeID(), resourcev3.ClusterType), " ") + "]"
}

// trees lists the clusters for which the side has a tree.
func (d *duel) trees() string {
	if d.grpc != nil {
		return "has [" + strings.Join(d.grpc.clusters(), " ") + "]"
	}
	names, err := d.lbd.clusters()
	if err != nil {
		return err.Error()
	}
	return "has [" + strings.Join(names, " ") + "]"
}

// ask makes one request, and returns where it goes.
func (d *duel) ask(headers ...header) directed {
	r := &request{path: method, headers: headers}
	if d.grpc != nil {
		return d.grpc.ask(d.t.Context(), r)
	}
	return d.lbd.ask(d.t.Context(), r)
}

// asks makes many requests, and returns their upstreams and kinds of failures.
func (d *duel) asks() string {
	var saw []string
	for range 60 {
		saw = append(saw, d.oneAsk())
	}
	slices.Sort(saw)
	return strings.Join(slices.Compact(saw), ", ")
}

// oneAsk is asks for one request.
func (d *duel) oneAsk() string {
	to := d.ask()
	if to.kind != picked {
		return string(to.kind)
	}
	to.done()
	return d.net.named(to.address)
}

// failure is the error of a request.
func (d *duel) failure() string {
	ctx, cancel := context.WithTimeout(d.t.Context(), askTimeout)
	defer cancel()
	var err error
	if d.grpc != nil {
		err = d.grpc.conn.Invoke(metadata.NewOutgoingContext(ctx, nil), method, &emptypb.Empty{}, &emptypb.Empty{})
	} else {
		var out lbdpicks.Picks
		err = d.lbd.service.Picks.Pick(ctx, &lbdpicks.Request{Target: d.lbd.target, Path: method, N: 1}, &out)
	}
	if err == nil {
		return "no failure"
	}
	return err.Error()
}

// failsWith looks for texts in the error of a request, and returns the result of the
// first that it contains. meanings are pairs of a text and a result.
func (d *duel) failsWith(meanings ...string) func() string {
	return func() string {
		failure := d.failure()
		for i := 0; i < len(meanings); i += 2 {
			if strings.Contains(failure, meanings[i]) {
				return meanings[i+1]
			}
		}
		return failure
	}
}

// connections counts those made to an upstream since the last call.
func (d *duel) connections(n int) string {
	return fmt.Sprintf("makes %d connections", len(d.net.all[n].takeCallers()))
}

// open counts the open connections of an upstream.
func (d *duel) open(n int) string {
	l := d.net.all[n].listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("has %d connections", len(l.conns))
}

const (
	lookEvery  = 20 * time.Millisecond
	lookFor    = 10 * time.Second
	looksAlike = 15 // equal looks in a row
)

// settles looks until the result is the expected one and stays the same, or until the
// time is over. It returns the last result.
func (d *duel) settles(see func() string, expected string) string {
	last, alike := "", 0
	for end := time.Now().Add(lookFor); time.Now().Before(end); time.Sleep(lookEvery) {
		saw := see()
		if saw != last {
			last, alike = saw, 0
		}
		if alike++; alike >= looksAlike && saw == expected {
			break
		}
	}
	return last
}

// serveUntil serves, and waits until see returns what both sides must reach.
func (d *duel) serveUntil(see func() string, expected string) {
	d.t.Helper()
	d.serve()
	d.wait(see, expected)
}

func (d *duel) wait(see func() string, expected string) {
	d.t.Helper()
	if got := d.settles(see, expected); got != expected {
		d.t.Fatalf("saw %q, want %q", got, expected)
	}
}

// byDuel is a difference in the results of a story. The story returns what to look at in
// the end.
func byDuel(row, grpcDoes, lbdDoes string, story func(d *duel) func() string, change ...func(*duel)) difference {
	on := func(follower func(*duel) error, want string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Parallel()
			d := newDuel(t, follower, change...)
			return d.settles(story(d), want)
		}
	}
	return difference{row: row, grpc: on(grpcFollows, grpcDoes), lbd: on(lbdFollows, lbdDoes), grpcDoes: grpcDoes, lbdDoes: lbdDoes}
}
