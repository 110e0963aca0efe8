package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// The values of ClusterEffect.Change, and two of EndpointEffect.Change.
const (
	added    = "added"
	removed  = "removed"
	modified = "modified"
)

// Request asks for a forecast.
type Request struct {
	Outcome *proposal.Outcome
	Ledger  *ledger.Ledger
	// ConnectMode is the daemon's default.
	ConnectMode resource.ConnectMode
	// Recent returns what happened to the picks of a cluster in the last minutes; nil if that is not known.
	Recent func(cluster string) observe.Recent
	// Pause is called between clusters. An error ends the forecast.
	Pause func() error
}

// changed returns the first targets that an outcome changes, by name, and how many more there are.
func changed(o *proposal.Outcome) (first []resolver.Preview, more int) {
	for i := range o.Targets {
		switch p := &o.Targets[i]; {
		case !p.Differs():
		case len(first) < MaxTargets:
			first = append(first, *p)
		default:
			more++
		}
	}
	return first, more
}

// Of returns the effect of a change.
func Of(ctx context.Context, r *Request) (*Effect, error) {
	previews, more := changed(r.Outcome)
	e := &Effect{Targets: []string{}, Clusters: []ClusterEffect{}, Unpredicted: []string{}, MoreTargets: more, unknown: more}
	if more > 0 {
		e.say("", "the change touches %s; the first %d are considered", difference.Count(more+MaxTargets, "target"), MaxTargets)
	}
	endpoints, trees := 0, chosen(previews)
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		in := trees[name]
		if configOf(in.After, name) == nil && r.stays(name) { // only routes to it end
			continue
		}
		if endpoints > MaxEndpoints {
			e.unknown++
			e.MoreClusters++
			continue
		}
		c, n, err := r.cluster(ctx, name, in)
		if err != nil {
			return nil, err
		}
		endpoints += n
		e.Clusters = append(e.Clusters, *c)
		if r.Pause != nil {
			if err := r.Pause(); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(e.Clusters, func(a, b ClusterEffect) int {
		return cmp.Or(cmp.Compare(order(b.Shift), order(a.Shift)), strings.Compare(a.Cluster, b.Cluster))
	})
	if more := len(e.Clusters) - MaxListed; more > 0 {
		if e.Clusters[MaxListed].Shift == nil {
			e.unknown++
		}
		e.Clusters, e.MoreClusters = e.Clusters[:MaxListed], e.MoreClusters+more
	}
	if e.MoreClusters > 0 {
		e.say("", "%s more would change", difference.Count(e.MoreClusters, "cluster"))
	}
	e.targets(previews)
	e.trim()
	return e, nil
}

// order sorts unknown shifts before all others.
func order(shift *float64) float64 {
	if shift == nil {
		return math.Inf(1)
	}
	return *shift
}

// chosen returns the clusters that previews change, each with the preview of the tree that its picks use
// if they name no target.
func chosen(previews []resolver.Preview) map[string]*resolver.Preview {
	of := make(map[string]*resolver.Preview)
	for i := range previews {
		p := &previews[i]
		for _, name := range p.Clusters {
			if of[name] == nil || p.Target == resolver.Target(name) {
				of[name] = p
			}
		}
	}
	return of
}

// targets adds the xds targets.
func (e *Effect) targets(previews []resolver.Preview) {
	for i := range previews {
		p := &previews[i]
		_, own := resolver.Cluster(p.Target)
		waited := p.Before != nil && p.Before.Pending && p.After != nil && p.After.Pending
		if !own && !waited {
			e.Targets = append(e.Targets, p.Target)
		}
		switch {
		case waited:
		case p.Waits:
			e.unknown += int(observe.Flag(p.Before != nil))
			e.say(p.Target, "%s waits for resources that are not known yet, and changes when they are", p.Target)
		case !own && p.Routes:
			e.unknown += int(observe.Flag(p.Before != nil && p.Before.Routing != nil))
			e.say(p.Target, "the routes of %s change: which cluster a request gets depends on the request", p.Target)
		}
	}
}

// cluster returns the effect on one cluster, and how many endpoints were described.
func (r *Request) cluster(ctx context.Context, name string, in *resolver.Preview) (*ClusterEffect, int, error) {
	out := &ClusterEffect{Cluster: name, Change: modified, Endpoints: []EndpointEffect{}, Limits: []string{}, Unpredicted: []string{}}
	before, after := configOf(in.Before, name), configOf(in.After, name)
	switch {
	case before == nil:
		out.Change = added
	case after == nil:
		out.Change = removed
	}
	live := r.live(ctx, in.Target, name)
	tree := newRehearsal(name, r.ConnectMode, live.fails)
	defer tree.channel.Close()
	was, err := tree.side(ctx, in.Before, name)
	if err != nil {
		return nil, 0, err
	}
	opened, closed := tree.connector.opened.Load(), tree.connector.closed.Load()
	is := &side{ClusterOutcome: ClusterOutcome{Priority: -1, Error: "the cluster is removed"}, known: true}
	if after != nil {
		if is, err = tree.side(ctx, in.After, name); err != nil {
			return nil, 0, err
		}
		out.Closed = int(tree.connector.closed.Load() - closed)
	} else {
		out.Closed = int(opened - closed)
	}
	out.Opened = int(tree.connector.opened.Load() - opened)
	out.Before, out.After = was.ClusterOutcome, is.ClusterOutcome
	if tree.connector.begun.Load() == 0 { // of mode none, or without endpoints
		live = nil
	}
	out.compare(was, is, live)
	out.limits(r, in, after)
	out.caveats(is, after)
	for _, config := range []*resource.Config{in.Before, in.After} {
		if configOf(config, name) == nil {
			continue
		}
		for leaf, cc := range config.Leaves(name) {
			if out.parts = append(out.parts, leaf); cc != nil && cc.Cluster != nil {
				out.parts = append(out.parts, cc.Cluster.AssignmentName())
			}
		}
	}
	return out, len(was.places) + len(is.places), nil
}

// stays reports whether picks of a target still find a cluster after the change.
func (r *Request) stays(cluster string) bool {
	has := func(t *ledger.Target) bool {
		for i := range r.Outcome.Targets {
			if p := &r.Outcome.Targets[i]; p.Target == t.Name {
				return configOf(p.After, cluster) != nil
			}
		}
		return configOf(t.View().Config, cluster) != nil
	}
	hosted := r.Ledger.Hosted()
	if own := hosted.Own(cluster); own != nil && has(own) {
		return true
	}
	return slices.ContainsFunc(hosted.XDS(), has)
}

func configOf(config *resource.Config, name string) *resource.ClusterConfig {
	if config != nil {
		if _, ok := slices.BinarySearch(config.Roots, name); ok {
			return config.Clusters.Get(name)
		}
	}
	return nil
}

// compare sets the endpoints, the shift and the rates.
func (c *ClusterEffect) compare(was, is *side, live *live) {
	all := make(map[key]*EndpointEffect, max(len(was.places), len(is.places)))
	c.Endpoints = make([]EndpointEffect, 0, len(was.places)+len(is.places)) // which is never moved
	add := func(p *place, change string) *EndpointEffect {
		c.Endpoints = append(c.Endpoints, EndpointEffect{Address: p.address, Locality: p.locality, Priority: p.priority, Change: change, Before: new(0.0), After: new(0.0)})
		all[p.key] = &c.Endpoints[len(c.Endpoints)-1]
		return all[p.key]
	}
	for _, p := range was.places {
		e := all[p.key]
		if e == nil {
			e = add(&p, removed)
		}
		e.Before = sum(e.Before, p.share)
	}
	for _, p := range is.places {
		e := all[p.key]
		if e == nil {
			e = add(&p, added)
		} else if e.Change == removed {
			e.Change = ""
		}
		e.Locality, e.Priority, e.After = p.locality, p.priority, sum(e.After, p.share)
		if p.share != nil && *p.share > 0 && live != nil && !live.up[p.address] {
			c.Assumed++
		}
	}
	gone := max(0, was.Dropped-is.Dropped) // of the part that was dropped
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if was.known && is.known {
			gone += max(0, (1-was.Dropped)**e.Before-(1-is.Dropped)**e.After)
		}
	}
	difference := func(e EndpointEffect) float64 {
		if e.Before == nil || e.After == nil {
			return 0
		}
		return math.Abs(*e.After - *e.Before)
	}
	slices.SortFunc(c.Endpoints, func(a, b EndpointEffect) int {
		return cmp.Or(cmp.Compare(difference(b), difference(a)), cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Address, b.Address))
	})
	if was.known && is.known {
		c.Shift = new(min(1, gone))
	}
	if moved, ok := movedKeys(was.node, is.node); ok {
		c.MovedHashKeys = &moved
		if c.Shift != nil {
			*c.Shift = max(*c.Shift, moved*(1-is.Dropped))
		}
	}
}

// sum adds two shares, each nil if it is not known: an address may be listed more than once.
func sum(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// limits adds the rates, and the limits that would be exceeded.
func (c *ClusterEffect) limits(r *Request, in *resolver.Preview, after *resource.ClusterConfig) {
	var recent observe.Recent
	if r.Recent != nil {
		recent = r.Recent(c.Cluster)
	}
	if recent.Over <= 0 {
		return
	}
	rate := float64(recent.Picks) / recent.Over.Seconds()
	c.PicksPerSecond, c.RateOver = &rate, recent.Over.Round(time.Second).String()
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if e.Before != nil {
			e.RateBefore = new(rate * (1 - c.Before.Dropped) * *e.Before)
		}
		if e.After != nil {
			e.RateAfter = new(rate * (1 - c.After.Dropped) * *e.After)
		}
	}
	if after == nil {
		return
	}
	for name, leaf := range in.After.Leaves(c.Cluster) {
		of, key := "", ""
		if len(after.Leaves) > 0 {
			of, key = " of "+name, name
		}
		if peak := recent.InFlight[key]; leaf.Cluster != nil && peak > uint64(leaf.Cluster.MaxRequests) {
			c.Limits = append(c.Limits, fmt.Sprintf("max_requests%s would be %d, and up to %d requests were in flight in the last %s: picks beyond the limit would be rejected",
				of, leaf.Cluster.MaxRequests, peak, c.RateOver))
		}
	}
}

// caveats says what cannot be predicted.
func (c *ClusterEffect) caveats(is *side, after *resource.ClusterConfig) {
	say := func(format string, args ...any) { c.Unpredicted = append(c.Unpredicted, fmt.Sprintf(format, args...)) }
	if after == nil || after.Err != nil {
		return
	}
	if after.Pending {
		say("the cluster waits for resources that are not known yet")
	}
	if c.Assumed > 0 {
		say("%s assumed to be reachable: lbd is not connected to them now", difference.Plural(c.Assumed, "endpoint is", "endpoints are"))
	}
	for i, name := range is.policies {
		traits := lb.PolicyTraits(string(name))
		if traits != nil && traits.SharesHold != "" && !slices.Contains(is.policies[:i], name) {
			say("%s%s", name, traits.SharesHold)
		}
	}
	if is.detection {
		say("outlier detection may eject endpoints")
	}
	if !is.known {
		say("the policy does not know its shares")
	}
}

// live is what the live tree knows of the endpoints of a cluster.
type live struct {
	up   map[string]bool
	down map[string]error
}

var errUnreachable = errors.New("it cannot be reached")

// live returns what the live tree of a target knows; nothing without one.
func (r *Request) live(ctx context.Context, target, cluster string) *live {
	out := &live{up: make(map[string]bool), down: make(map[string]error)}
	t := r.Ledger.Hosted().Named(target)
	if t == nil || t.Channel.Warming() { // a forecast builds no tree
		return out
	}
	node, err := t.Channel.DescribeCluster(ctx, cluster)
	if err != nil {
		return out // it was removed meanwhile
	}
	out.add(node)
	return out
}

func (l *live) add(n policy.Node) {
	for _, e := range n.Endpoints {
		for _, address := range e.Endpoint.Addresses {
			switch {
			case e.State == connectivity.Ready:
				l.up[address] = true
			case e.State == connectivity.TransientFailure || e.State == connectivity.Connecting && e.LastErr != nil:
				l.down[address] = cmp.Or(e.LastErr, errUnreachable)
			}
		}
	}
	if n.Child != nil {
		l.add(*n.Child)
	}
	for _, p := range n.Priorities {
		l.add(p.Child)
	}
	for _, p := range n.Localities {
		l.add(p.Child)
	}
}

// fails returns why an endpoint cannot be connected to; nil if it can, or if that is not known.
func (l *live) fails(addresses []string) error {
	var why error
	for _, address := range addresses {
		if l.up[address] {
			return nil
		}
		if err := l.down[address]; err != nil {
			why = err
		}
	}
	return why
}
