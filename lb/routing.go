package lb

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TargetError ends a pick of a target that cannot be used; a pick that waits for ready
// queues. Err is the config's.
type TargetError struct {
	Target string
	Err    error
}

func (e *TargetError) Error() string { return fmt.Sprintf("%s: %v", e.Target, e.Err) }

func (e *TargetError) Unwrap() error { return e.Err }

// RouteError ends a pick that no route matches, or whose route lbd does not support,
// wait-for-ready or not. It is a gRPC status error of code UNAVAILABLE.
type RouteError struct {
	VirtualHost string
	// Route is the route that matched; nil if none did. Its Unsupported is the reason.
	Route *resource.Route
}

func (e *RouteError) Error() string {
	if e.Route == nil {
		return fmt.Sprintf("no route of virtual host %q matches the request", e.VirtualHost)
	}
	return fmt.Sprintf("route %q of virtual host %q cannot be followed: %s", e.Route.Name, e.VirtualHost, e.Route.Unsupported)
}

// GRPCStatus returns UNAVAILABLE.
func (e *RouteError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// routing chooses the clusters of a target's picks. It is immutable.
type routing struct {
	failed      *TargetError // where the target cannot be used; else host is set
	host        *resource.VirtualHost
	unmatched   *RouteError
	unsupported map[*resource.Route]*RouteError
	draw        func() uint64
	channelID   uint64
}

// newRouting returns a config's routing; nil if picks name their cluster.
func newRouting(c *resource.Config, draw func() uint64, channelID uint64) *routing {
	switch {
	case c.Err != nil:
		return &routing{failed: &TargetError{Target: c.Target, Err: c.Err}}
	case c.Routing == nil:
		return nil
	}
	h := c.Routing.VirtualHost
	g := &routing{
		host: h, unmatched: &RouteError{VirtualHost: h.Name}, unsupported: make(map[*resource.Route]*RouteError),
		draw: draw, channelID: channelID,
	}
	for _, route := range h.Routes {
		if route.Unsupported != "" {
			g.unsupported[route] = &RouteError{VirtualHost: h.Name, Route: route}
		}
	}
	return g
}

// same reports whether two routings are equal.
func (g *routing) same(o *routing) bool {
	if g == nil || o == nil {
		return g == o
	}
	return g.host == o.host && (g.failed == nil) == (o.failed == nil) &&
		(g.failed == nil || g.failed.Error() == o.failed.Error())
}

// chooses reports whether there are routes.
func (g *routing) chooses() bool { return g != nil && g.failed == nil }

// choose sets call's cluster to that of the first route that matches, and its request
// hash to the route's unless the caller has one. If no hash policy of the route
// applies, the hash is random, as in grpc's config selector (gRFC A42). The error is a
// *TargetError or a *RouteError; call has no cluster then.
func (g *routing) choose(call *policy.Call) error {
	call.Cluster = "" // that of the routes before, where the pick has queued
	if g.failed != nil {
		if call.Trace != nil {
			call.Trace.Steps = append(call.Trace.Steps, policy.FailureStep{Err: g.failed})
		}
		return g.failed
	}
	req := resource.Request{Path: call.Path, Headers: call.Headers, Draw: g.draw}
	if call.Trace != nil {
		req.Trace = new(resource.RouteTrace)
	}
	route := g.host.Route(&req)
	switch {
	case route == nil:
		g.explain(call, &req, policy.RouteStep{})
		return g.unmatched
	case route.Unsupported != "":
		g.explain(call, &req, policy.RouteStep{Route: route})
		return g.unsupported[route]
	}
	var draw uint64
	if len(route.Clusters) > 1 {
		draw = call.Draw(g.draw)
	}
	name, begin, end := route.Cluster(draw)
	call.Cluster = name
	call.TookRoute(begin, end, route.TotalWeight)
	from := policy.HashFromCaller
	if !call.HasHash {
		hash, made := route.RequestHash(&req, g.channelID)
		from = policy.HashFromRoute
		if !made {
			hash, from = g.draw(), policy.HashRandom
		}
		call.RouteHash(hash)
	}
	g.explain(call, &req, policy.RouteStep{Route: route, Cluster: call.Cluster, Draw: draw, Hash: call.Hash, HashFrom: from})
	return nil
}

// explain adds the step to call's trace, if it has one.
func (g *routing) explain(call *policy.Call, req *resource.Request, step policy.RouteStep) {
	if call.Trace == nil {
		return
	}
	step.VirtualHost, step.RouteTrace = g.host.Name, *req.Trace
	call.Trace.Steps = append(call.Trace.Steps, step)
}
