package main

import (
	"context"
	"fmt"
	"math"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
)

const pickPath = "/pick?cluster=" + peer.Cluster

// httpSubject is a server that answers a script.
type httpSubject struct {
	name   string
	server *server
	script []load.Request
}

// get is a script of one GET request.
func get(path string) []load.Request { return []load.Request{{Raw: load.Get(path)}} }

// constants starts lbd and the servers that answer a constant. Scripts of the latter differ
// from lbd's.
func (b *bench) constants(ctx context.Context, r *running, network string, ofLBD, ofOthers []load.Request) ([]httpSubject, error) {
	d, err := b.startOrders(ctx, r, network, 10, 10)
	if err != nil {
		return nil, err
	}
	subjects := []httpSubject{{subjectLBD, d.server, ofLBD}}
	for _, s := range []struct{ name, role string }{{subjectBare, roleBare}, {subjectFast, roleFast}} {
		server, err := b.serveRole(ctx, r, s.role, network)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, httpSubject{s.name, server, ofOthers})
	}
	if b.programs.Nginx == "" {
		return subjects, nil
	}
	nginx, err := b.serve(ctx, r, network, b.programs.NginxConstant)
	return append(subjects, httpSubject{subjectNginx, nginx, ofOthers}), err
}

// spec is the load of a subject.
func (b *bench) spec(s httpSubject, connections int) load.Spec {
	return load.Spec{
		Targets: []load.Target{s.server.target()}, Script: s.script, Connections: connections,
		Warmup: b.warmup, Duration: b.measure, CPUOf: []int{s.server.PID()},
	}
}

// throughputRow measures the iterations per CPU second of a closed loop of 64 connections.
func throughputRow(r row, network string, ofLBD, ofOthers []load.Request, reconnect bool) row {
	r.start = func(ctx context.Context, b *bench) (*running, error) {
		running := &running{}
		g, err := b.generator(running)
		if err != nil {
			return running, err
		}
		subjects, err := b.constants(ctx, running, network, ofLBD, ofOthers)
		if err != nil {
			return running, err
		}
		for _, s := range subjects {
			spec := b.spec(s, 64)
			spec.Reconnect = reconnect
			running.add(s.name, func(context.Context) (figures, error) {
				result, err := g.run(spec)
				if err != nil {
					return nil, err
				}
				return figures{perCPUSecond: result.PerCPUSecond(), perSecond: result.PerSecond()}, nil
			})
		}
		return running, nil
	}
	return r
}

// getRows are requests per CPU second.
func getRows() []row {
	var all []row
	for _, network := range []string{"tcp", "unix"} {
		all = append(all, throughputRow(row{
			name: "get-" + network, work: "GET /pick, 64 connections, " + network,
			comparisons: []comparison{
				{perCPUSecond, subjectLBD, subjectNginx, bound{atLeast, 0.75}},
				{perCPUSecond, subjectLBD, subjectBare, bound{}},
				{perCPUSecond, subjectLBD, subjectFast, bound{}},
			},
		}, network, get(pickPath), get(pickPath), false))
	}
	return append(all,
		throughputRow(row{
			name: "connect", work: "a new unix connection for every GET /pick",
			comparisons: []comparison{
				{perCPUSecond, subjectLBD, subjectBare, bound{atLeast, 1.5}},
				{perCPUSecond, subjectLBD, subjectNginx, bound{}},
			},
		}, "unix", get(pickPath), get(pickPath), true),
		hundredRow(),
		throughputRow(row{
			name: "lease-http", work: "POST /pick, and POST /v1/leases/ID/done; two POSTs of the peers, tcp",
			comparisons: []comparison{
				{perCPUSecond, subjectLBD, subjectBare, bound{atLeast, 2}},
				{perCPUSecond, subjectLBD, subjectNginx, bound{}},
			},
		}, "tcp", leaseScript(), twoPosts(), false))
}

const doneBody = `{"outcome":"success"}`

func leaseScript() []load.Request {
	return []load.Request{{Raw: load.Post(pickPath+"&ttl=30s", "")}, {Raw: load.Post("/v1/leases/"+load.LeaseID+"/done", doneBody)}}
}

func twoPosts() []load.Request {
	return []load.Request{{Raw: load.Post(pickPath+"&ttl=30s", "")}, {Raw: load.Post(pickPath, doneBody)}}
}

// hundredRow compares 100 picks in a request with a constant of the same size.
func hundredRow() row {
	r := row{
		name: "pick-n100", work: "GET /pick?n=100; a body of that size from the peers, tcp",
		comparisons: []comparison{
			{perCPUSecond, subjectLBD, subjectBare, bound{atLeast, 0.8}},
			{perCPUSecond, subjectLBD, subjectFast, bound{}},
		},
	}
	r.start = func(ctx context.Context, b *bench) (*running, error) {
		// A first daemon shows the size.
		probe := &running{}
		defer probe.stop()
		d, err := b.startOrders(ctx, probe, "tcp", 10, 10)
		if err != nil {
			return nil, err
		}
		body, err := d.call(ctx, "GET", pickPath+"&n=100", nil)
		if err != nil {
			return nil, err
		}
		constant := get(fmt.Sprintf("%s&size=%d", pickPath, len(body)))
		return throughputRow(row{}, "tcp", get(pickPath+"&n=100"), constant, false).start(ctx, b)
	}
	return r
}

// latencyRows are latencies at half of the load that the slowest subject can carry.
func latencyRows() []row {
	var all []row
	for _, network := range []string{"tcp", "unix"} {
		for _, connections := range []int{1, 64} {
			all = append(all, latencyRow(network, connections))
		}
	}
	return all
}

func latencyRow(network string, connections int) row {
	name := fmt.Sprintf("latency-%s-%d", network, connections)
	return row{
		name: name, work: fmt.Sprintf("GET /pick at half load, connections: %d, %s", connections, network),
		start: func(ctx context.Context, b *bench) (*running, error) {
			r := &running{}
			g, err := b.generator(r)
			if err != nil {
				return r, err
			}
			subjects, err := b.constants(ctx, r, network, get(pickPath), get(pickPath))
			if err != nil {
				return r, err
			}
			half := math.Inf(1)
			for _, s := range subjects {
				rate, err := halfLoad(g, b.spec(s, connections))
				if err != nil {
					return r, err
				}
				half = min(half, rate)
			}
			for _, s := range subjects {
				spec := b.spec(s, connections)
				spec.Rate = half
				r.add(s.name, func(context.Context) (figures, error) { return latencies(g.run(spec)) })
			}
			return r, nil
		},
		comparisons: []comparison{
			{p50, subjectLBD, subjectBare, bound{atMost, 1}},
			{p99, subjectLBD, subjectBare, bound{atMost, 1.25}},
			{p50, subjectLBD, subjectNginx, bound{}},
			{p99, subjectLBD, subjectNginx, bound{}},
		},
	}
}

// saturations is how often halfLoad measures. One measurement could be in a moment in which
// the machine is faster than later, and half of it be more than the server can carry.
const saturations = 3

// halfLoad returns half of the lowest rate of a closed loop.
func halfLoad(g generator, closed load.Spec) (float64, error) {
	half := math.Inf(1)
	for range saturations {
		result, err := g.run(closed)
		if err != nil {
			return 0, err
		}
		half = min(half, result.PerSecond()/2)
	}
	return half, nil
}

func latencies(result load.Result, err error) (figures, error) {
	if err != nil {
		return nil, err
	}
	return figures{
		minimum: result.Min / 1e3, p50: result.P50 / 1e3, p99: result.P99 / 1e3, "mean µs": result.Mean / 1e3,
		"generator p99 µs": result.Late / 1e3, perSecond: result.PerSecond(),
	}, nil
}

// Figures of hops: what is added to a request that goes to the upstream directly.
const (
	addedP50 = "added p50 µs"
	addedMin = "added min µs"
)

const subjectDirect = "direct"

// hopRows are the latencies that a pick, or a proxy, adds to a request to an upstream.
func hopRows() []row {
	var all []row
	for _, network := range []string{"unix", "tcp"} {
		r := hopRow("added-"+network, "latency that one pick adds to a request, 1 connection, "+network, network, []load.Request{{Raw: load.Get(pickPath)}})
		target := bound{}
		if network == "unix" {
			target = bound{atMost, 1}
		}
		for _, hop := range []string{subjectNginx, subjectHAProxy, subjectEnvoy} {
			r.comparisons = append(r.comparisons, comparison{addedP50, subjectLBD, hop, target}, comparison{addedMin, subjectLBD, hop, target})
		}
		all = append(all, r)
	}
	return append(all, batchRow())
}

// batchSize is the number of picks of a batch.
const batchSize = 50

// batchRow divides the latency of a batch by the requests that use it.
func batchRow() row {
	path := fmt.Sprintf("%s&n=%d", pickPath, batchSize)
	r := hopRow("batch", "latency of GET /pick?n=50 for each of 50 requests that use it, 1 connection, unix", "unix", nil)
	startHops := r.start
	r.start = func(ctx context.Context, b *bench) (*running, error) {
		r, err := startHops(ctx, b)
		if err != nil {
			return r, err
		}
		g, err := b.generator(r)
		if err != nil {
			return r, err
		}
		d, err := b.startOrders(ctx, r, "unix", 10, 10)
		if err != nil {
			return r, err
		}
		spec := b.spec(httpSubject{subjectLBD, d.server, get(path)}, 1)
		for i := range r.subjects {
			if r.subjects[i].name == subjectLBD {
				r.subjects[i].measure = func(context.Context) (figures, error) { return latencies(g.run(spec)) }
			}
		}
		r.derive = func(round map[string]figures) {
			subtractDirect(round)
			f := round[subjectLBD]
			f[addedP50], f[addedMin] = f[p50]/batchSize, f[minimum]/batchSize
		}
		return r, nil
	}
	for _, hop := range []string{subjectNginx, subjectHAProxy, subjectEnvoy} {
		r.comparisons = append(r.comparisons, comparison{addedP50, subjectLBD, hop, bound{atMost, 0.1}})
	}
	return r
}

// hopRow measures requests to an upstream: directly, after a pick, and through proxies.
func hopRow(name, text, network string, picks []load.Request) row {
	r := row{name: name, work: text}
	r.start = func(ctx context.Context, b *bench) (*running, error) {
		r := &running{derive: subtractDirect}
		g, err := b.generator(r)
		if err != nil {
			return r, err
		}
		upstream, err := b.serveRole(ctx, r, roleFast, "tcp")
		if err != nil {
			return r, err
		}
		d, err := b.startOrders(ctx, r, network, 10, 10)
		if err != nil {
			return r, err
		}
		add := func(name string, targets []load.Target, script []load.Request) {
			spec := load.Spec{Targets: targets, Script: script, Connections: 1, Warmup: b.warmup, Duration: b.measure}
			r.add(name, func(context.Context) (figures, error) { return latencies(g.run(spec)) })
		}
		request := load.Get(pickPath) // the upstream answers it with a constant
		add(subjectDirect, []load.Target{upstream.target()}, []load.Request{{Raw: request}})
		add(subjectLBD, []load.Target{d.target(), upstream.target()}, append(picks, load.Request{Target: 1, Raw: request}))
		for _, hop := range []struct {
			name, program string
			command       func(dir string, at peer.Listen, upstream string) ([]string, error)
		}{
			{subjectNginx, b.programs.Nginx, b.programs.NginxHop},
			{subjectHAProxy, b.programs.HAProxy, b.programs.HAProxyHop},
			{subjectEnvoy, b.programs.Envoy, b.programs.EnvoyHop},
		} {
			if hop.program == "" {
				continue
			}
			s, err := b.serve(ctx, r, network, func(dir string, at peer.Listen) ([]string, error) { return hop.command(dir, at, upstream.at.Address) })
			if err != nil {
				return r, err
			}
			add(hop.name, []load.Target{s.target()}, []load.Request{{Raw: request}})
		}
		return r, nil
	}
	return r
}

// subtractDirect computes what each subject adds to a direct request.
func subtractDirect(round map[string]figures) {
	direct := round[subjectDirect]
	for name, f := range round {
		if name == subjectDirect {
			continue
		}
		f[addedP50] = f[p50] - direct[p50]
		f[addedMin] = f[minimum] - direct[minimum]
	}
}
