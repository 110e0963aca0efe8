package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

// manyDrops is the part of the picks from which on drops are a warning.
const manyDrops = 0.5

// drops checks the drops that are configured.
func (c *Cluster) drops() []Check {
	if c.State.Type != "AGGREGATE" {
		return []Check{c.dropsOf("", c.State.Drops)}
	}
	var out []Check
	for i := range c.State.Leaves {
		out = append(out, c.dropsOf(fmt.Sprintf(" of leaf %q", c.State.Leaves[i].Name), c.State.Leaves[i].Drops))
	}
	return out
}

func (c *Cluster) dropsOf(leaf string, drops []observe.DropState) Check {
	pass := 1.0
	var details []string
	for _, d := range drops {
		part := min(float64(d.PerMillion)/1e6, 1)
		pass *= 1 - part
		details = append(details, fmt.Sprintf("category %q: %s%s", d.Category, percent(part), c.droppedBy(d.Category)))
	}
	switch dropped := 1 - pass; {
	case len(drops) == 0 || dropped == 0:
		return c.found("drops", OK, "no picks%s are dropped", leaf)
	case pass == 0:
		return c.found("drops", Problem, "all picks%s are dropped: %s", leaf, strings.Join(details, "; ")).
			do("lower drop_overloads in the ClusterLoadAssignment, or delete the overlay that sets it").with(details...)
	case dropped >= manyDrops:
		return c.found("drops", Warning, "%s of the picks%s are dropped: %s", percent(dropped), leaf, strings.Join(details, "; ")).
			do("lower drop_overloads in the ClusterLoadAssignment if that is not intended").with(details...)
	default:
		return c.found("drops", OK, "%s of the picks%s are dropped, as configured", percent(dropped), leaf).with(details...)
	}
}

// droppedBy names the overlay that sets the drops of a category; empty without one.
func (c *Cluster) droppedBy(category string) string {
	for i := range c.State.Overlays {
		if o := &c.State.Overlays[i]; o.Kind == resource.OverlayDrop && o.SupersededBy == "" && (o.Category == category || o.Category == "") {
			return ", set by overlay " + o.ID
		}
	}
	return ""
}

// almostFull is the part of max_requests from which on a circuit breaker is a warning.
const almostFull = 0.9

// breakers checks the circuit breakers.
func (c *Cluster) breakers() []Check {
	var out []Check
	if b := c.State.Breaker; b != nil {
		out = append(out, c.breaker(c.Name, b))
	}
	for i := range c.State.Leaves {
		if l := &c.State.Leaves[i]; l.Breaker != nil {
			out = append(out, c.breaker(l.Name, l.Breaker))
		}
	}
	return out
}

func (c *Cluster) breaker(cluster string, b *observe.BreakerState) Check {
	leaf := ""
	if cluster != c.Name {
		leaf = fmt.Sprintf(" of leaf %q", cluster)
	}
	limit, of := int64(b.MaxRequests), "max_requests"
	if f := b.Fleet; f != nil {
		limit, of = f.Share, fmt.Sprintf("the share of this daemon of %d", b.MaxRequests)
		if !f.Joined {
			return c.found("breaker", Problem, "the circuit breaker%s admits no requests: this daemon has no session in etcd, and the limit is one of the fleet", leaf).
				do("check etcd and the network between it and this host")
		}
	}
	var holders []string
	for _, h := range c.Holders[cluster] {
		holders = append(holders, h.String())
	}
	text := fmt.Sprintf("%d of %d requests are in flight (%s)", b.InFlight, limit, of)
	switch {
	case b.MaxRequests == 0:
		return c.found("breaker", Problem, "the circuit breaker%s refuses every lease and pick: max_requests is 0", leaf).do("raise max_requests in the Cluster, or delete the overlay that sets it")
	case b.Open && len(holders) > 0:
		return c.found("breaker", Problem, "the circuit breaker%s is full: %s; most leases are held by %s", leaf, text, strings.Join(holders, ", ")).
			do("find out why these callers do not end their leases (GET /v1/leases?cluster=%s&older_than=1m), end them with DELETE /v1/leases, or raise max_requests", cluster).with(holders...)
	case b.Open:
		return c.found("breaker", Problem, "the circuit breaker%s is full: %s", leaf, text).do("raise max_requests, or find the callers with the most requests")
	case float64(b.InFlight) >= almostFull*float64(limit):
		return c.found("breaker", Warning, "the circuit breaker%s is almost full: %s", leaf, text).do("raise max_requests, or find the callers with the most requests").with(holders...)
	default:
		return c.found("breaker", OK, "the circuit breaker%s has room: %s", leaf, text)
	}
}

// priorities checks which priority is in use.
func (c *Cluster) priorities(d *Daemon) Check {
	s := c.State
	switch {
	case s.State == "WARMING":
		return c.found("priorities", Skipped, "no pick has used the cluster yet")
	case len(s.Priorities) == 0 || s.PriorityInUse < 0:
		return c.found("priorities", Skipped, "no priority is in use")
	case s.PriorityInUse > 0:
		all, inUse := 0, 0
		for _, e := range endpoints(s.Priorities[:1]) {
			if all++; e.State != "UNHEALTHY" {
				inUse++
			}
		}
		if by, paths := c.outOfUse(d, s.Priorities[:1]); paths != nil && inUse == 0 {
			return c.found("priorities", Warning, "picks use priority %d, because overlays take priority 0 out of use: %s", s.PriorityInUse, by[0]).
				do("if that is not intended any more: DELETE %s", paths[0]).with(by...)
		}
		why := cmp.Or(s.Priorities[0].Error, s.Priorities[0].Why)
		of := ""
		if leaf := s.Priorities[0].Cluster; leaf != "" {
			of = fmt.Sprintf(" (leaf %q)", leaf)
		}
		return c.found("priorities", Warning, "picks use priority %d, because priority 0%s with %s failed: %s", s.PriorityInUse, of, difference.Count(all, "endpoint"), why).
			do("correct the endpoints of priority 0; picks return by themselves")
	default:
		return c.found("priorities", OK, "priority 0 of %d is in use", len(s.Priorities))
	}
}

// localities checks that each locality of the priority in use gets picks.
func (c *Cluster) localities() Check {
	s := c.State
	if s.PriorityInUse < 0 || s.PriorityInUse >= len(s.Priorities) {
		return c.found("localities", Skipped, "no priority is in use")
	}
	var without []string
	p := &s.Priorities[s.PriorityInUse]
	for i := range p.Localities {
		l := &p.Localities[i]
		if l.Share != nil && *l.Share == 0 && l.Weight > 0 {
			without = append(without, fmt.Sprintf("%s: %s", localityName(l.Locality), l.State))
		}
	}
	if without != nil && len(without) < len(p.Localities) {
		return c.found("localities", Warning, "%d of %d localities get no picks: %s", len(without), len(p.Localities), without[0]).
			do("check the endpoints of these localities").with(without...)
	}
	return c.found("localities", OK, "%s", difference.Plural(len(p.Localities), "locality is in use", "localities are in use"))
}

func localityName(l observe.Locality) string {
	parts := slices.DeleteFunc([]string{l.Region, l.Zone, l.SubZone}, func(part string) bool { return part == "" })
	return cmp.Or(strings.Join(parts, "/"), "the locality without a name")
}
