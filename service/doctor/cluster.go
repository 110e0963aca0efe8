package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Cluster is what is known of one cluster.
type Cluster struct {
	Name string
	// State is nil if the cluster is not known, or its state is not: Err says why.
	State *observe.ClusterState
	Err   error
	// Similar are the names of clusters that are spelled alike, if it is not known.
	Similar []string
	// ConfigErr is why the cluster cannot be used.
	ConfigErr error
	// Parts are the clusters that it comes down to: itself, or the leaves of an AGGREGATE.
	Parts []Part
	// Holders are the largest holders of leases by leaf: of the cluster itself, unless it is an AGGREGATE.
	Holders map[string][]ledger.Holder
	// Attempts are connections that were tried; NotTried says why there are none, or not of all
	// endpoints.
	Attempts []Attempt
	NotTried string
	// Picks are those since a time.
	Picks Sample
	// Unhashed: picks of the last UnhashedAge had no hash key, and the policy needs one.
	Unhashed bool
}

// UnhashedAge is how long doctor warns of picks without a hash key.
const UnhashedAge = 5 * time.Minute

// Part is one cluster with endpoints.
type Part struct {
	Name string
	// Err is why it cannot be used, and AssignmentErr why it has no endpoints, or the last good ones.
	Err, AssignmentErr error
	// Assigned: it has an assignment.
	Assigned bool
	// Pending: it waits for its resources.
	Pending bool
	// Assignment is the name of the resource with its endpoints; Host the name that is resolved instead.
	Assignment, Host string
	// Source is the source of its endpoints.
	Source string
	// Endpoints is how many it has, and Usable how many of them have a health that permits picks. They
	// are as the sources have them, without overlays.
	Endpoints, Usable int
	// LeftOut is how many localities are left out, because their weight is 0 or absent.
	LeftOut int
}

// needs reports whether the cluster uses a resource of a management server.
func (c *Cluster) needs(name string) bool {
	return name == "Cluster/"+c.Name || name == "ClusterLoadAssignment/"+c.Name || slices.ContainsFunc(c.Parts, func(p Part) bool {
		return name == "Cluster/"+p.Name || p.Assignment != "" && name == "ClusterLoadAssignment/"+p.Assignment
	})
}

// lacks reports whether the cluster lacks a resource, or uses an outdated one.
func (c *Cluster) lacks() bool {
	if c.State == nil || c.ConfigErr != nil || c.State.Stale || len(c.State.AmbientErrors) > 0 {
		return true
	}
	return slices.ContainsFunc(c.Parts, func(p Part) bool {
		return p.Err != nil || p.AssignmentErr != nil || p.Pending || p.Endpoints == 0
	})
}

// dependsOn reports whether a condition of the daemon may be the cause of what is wrong with the
// cluster.
func (c *Cluster) dependsOn(d *Daemon, of observe.Condition) bool {
	switch of.Kind { //nolint:exhaustive // the others stop no picks
	case observe.ConditionServerUnreachable:
		return c.lacks()
	case observe.ConditionResourceRejected:
		return c.needs(of.Subject)
	case observe.ConditionFileBad:
		return c.lacks() && (c.State == nil || d.fileNames(of.Subject, c))
	case observe.ConditionChangeHeld:
		return slices.ContainsFunc(d.Files.Held, func(h files.Held) bool { return h.Hash == of.Subject && slices.Contains(h.Clusters, c.Name) })
	case observe.ConditionStoreFailing:
		return c.State == nil
	}
	return false
}

// fileNames reports whether a file has, or should have, a resource of the cluster.
func (d *Daemon) fileNames(file string, c *Cluster) bool {
	return slices.ContainsFunc(d.Files.Files, func(f sources.FileState) bool {
		return f.File == file && (strings.HasPrefix(file, c.Name+".") || slices.ContainsFunc(f.Resources, c.needs) ||
			slices.ContainsFunc(f.Errors, func(e fault.Problem) bool { return c.needs(e.Resource) }))
	})
}

// found returns a check of the cluster.
func (c *Cluster) found(check string, s Status, format string, args ...any) Check {
	return Check{Check: check, Status: s, Cluster: c.Name, Found: fmt.Sprintf(format, args...), rank: rankOfCluster}
}

// checks returns the checks of the cluster, in the order of a pick.
func (c *Cluster) checks(d *Daemon) []Check {
	if c.State == nil {
		return []Check{c.unknown(d)}
	}
	connections := []Check{c.found("connections", Skipped, "there is no endpoint to connect to")}
	usable, resources := c.resources(d)
	if usable {
		connections = c.connections(d)
	}
	causes := c.troubled(slices.Concat(resources, connections, c.drops(), c.breakers()))
	out := slices.Concat([]Check{c.routes()}, causes, c.ambient(), c.overlays(d), c.covers())
	if usable {
		out = append(out, c.priorities(d), c.localities(), c.picks(d))
	}
	if c.Unhashed {
		out = append(out, c.found("hash keys", Warning, "picks of the last %v had no hash key, so ring_hash took random endpoints for them", UnhashedAge).
			do("set where a client finds the key (hash in its hosts), give hash= with a pick, or a hash policy to the route; or choose another lb_policy"))
	}
	return append(out, c.leftOut()...)
}

// troubled gives the first problem among the causes the time since when picks or requests fail. If none of
// them explains that, it adds one.
func (c *Cluster) troubled(causes []Check) []Check {
	t := c.State.Trouble
	if t == nil {
		return causes
	}
	i := -1
	if t.Fails == "picks" {
		i = slices.IndexFunc(causes, func(c Check) bool { return c.Status == Problem })
	}
	if i < 0 {
		remedy := "GET /pick?cluster=%s&explain=true shows each step of a pick"
		if t.Fails == "requests" {
			remedy = "see the logs of the endpoints: GET /v1/clusters/%s shows which are in use; an overlay takes a bad one out of use"
		}
		i, causes = 0, slices.Insert(causes, 0, c.found(t.Fails, Problem, "%s", t.Cause).do(remedy, url.PathEscape(c.Name)))
	}
	causes[i].Since = t.Since
	return causes
}

// leftOut warns about localities that are left out, unless nothing else is left: that is a problem.
func (c *Cluster) leftOut() []Check {
	var out []Check
	for _, p := range c.Parts {
		if p.LeftOut > 0 && p.Endpoints > 0 {
			out = append(out, c.found("localities", Warning, "%s left out of ClusterLoadAssignment/%s with its endpoints: load_balancing_weight is 0 or absent",
				difference.Plural(p.LeftOut, "locality is", "localities are"), p.Assignment).do("%s", giveWeights))
		}
	}
	return out
}

// giveWeights says what to do about localities that are left out.
const giveWeights = "give each locality that should get picks a load_balancing_weight of at least 1, or, in a resource by hand, none of them"

func (c *Cluster) unknown(d *Daemon) Check {
	if e, ok := errors.AsType[*fault.Error](c.Err); c.Err != nil && (!ok || e.Code != fault.UnknownCluster) {
		return c.found("cluster", Problem, "the state of cluster %q is not known: %v", c.Name, c.Err).do("try again; if it lasts, see the log of the daemon")
	}
	says := fmt.Sprintf("cluster %q is not known: no source has a Cluster or a ClusterLoadAssignment of this name", c.Name)
	switch {
	case len(c.Similar) > 0:
		return c.found("cluster", Problem, "%s", says).do("correct the name (did you mean %s?), or push it: lbd ctl push endpoints %s FILE", strings.Join(c.Similar, " or "), c.Name)
	case d.XDS.Configured:
		return c.found("cluster", Problem, "%s", says).do("push it, or pick from it once: then lbd asks the management server for it")
	default:
		return c.found("cluster", Problem, "%s", says).do("push its endpoints (lbd ctl push endpoints %s FILE), or start lbd with --resources or --bootstrap", c.Name)
	}
}

// routes says how picks reach the cluster.
func (c *Cluster) routes() Check {
	from := []string{fmt.Sprintf("its Cluster is from %s", resource.PhraseOf(c.State.ConfigSource))}
	if c.State.Source != c.State.ConfigSource && c.State.Type != "AGGREGATE" {
		from = append(from, fmt.Sprintf("its endpoints are from %s", resource.PhraseOf(c.State.Source)))
	}
	if len(c.State.Targets) > 0 {
		from = append(from, "routes of "+difference.Few(c.State.Targets, maxNames)+" lead to it")
	}
	return c.found("cluster", OK, "the cluster is known: %s", strings.Join(from, ", "))
}

// ambient returns the resources that are in use in spite of an error.
func (c *Cluster) ambient() []Check {
	var out []Check
	for _, e := range c.State.AmbientErrors {
		out = append(out, c.found("resources", Problem, "%s is in use in its last good version: %s", e.Resource, e.Error).
			do("correct the resource on the management server").with("since "+e.Since.Format("2006-01-02T15:04:05Z07:00")))
	}
	return out
}

// resources checks the resources of the cluster, up to endpoints that picks may use. If there are none,
// the last check says why, and usable is false.
func (c *Cluster) resources(d *Daemon) (usable bool, checks []Check) {
	s := c.State
	if c.ConfigErr != nil {
		check := c.found("resources", Problem, "the cluster cannot be used: %v", c.ConfigErr)
		if _, missing := errors.AsType[*resolver.NotFoundError](c.ConfigErr); missing && len(s.Targets) > 0 {
			check = c.found("resources", Problem, "routes of %s lead to cluster %q, which no source has: %v", difference.Few(s.Targets, maxNames), c.Name, c.ConfigErr)
		}
		return false, []Check{check.do("%s", c.correct(s.ConfigSource))}
	}
	working := 0
	for _, p := range c.Parts {
		check, ok := c.part(p, s.Type == "AGGREGATE")
		if ok {
			working++
		}
		if check.Status != OK {
			checks = append(checks, check)
		}
	}
	if s.Type == "AGGREGATE" && working > 0 {
		for i := range checks { // the others are used
			checks[i].Status = Warning
		}
	}
	if working == 0 {
		if len(c.Parts) == 0 {
			checks = append(checks, c.found("resources", Problem, "the aggregate cluster has no leaves that exist").do("%s", c.correct(s.ConfigSource)))
		}
		return false, checks
	}
	total, inUse := s.Endpoints.Total, s.Endpoints.Total-s.Endpoints.Unhealthy
	if inUse == 0 {
		return false, append(checks, c.masked(d))
	}
	return true, append(checks, c.found("endpoints", OK, "%d of %s usable", inUse, difference.Plural(total, "endpoint is", "endpoints are")))
}

// correct says where to correct a resource.
func (c *Cluster) correct(source string) string {
	switch source {
	case "push":
		return "push a valid version; lbd check FILE shows the errors without a daemon"
	case "file":
		return "correct the resource file; lbd check FILE shows the errors"
	case "ads", "cache":
		return "correct it on the management server; GET /v1/xds shows the state of each resource"
	default:
		return fmt.Sprintf("push it (lbd ctl push endpoints %s FILE), or correct the name where it is used", c.Name)
	}
}

// part checks one cluster with endpoints. ok is true if it has any that picks may use, by its sources.
func (c *Cluster) part(p Part, leaf bool) (check Check, ok bool) {
	name := "the cluster"
	if leaf {
		name = fmt.Sprintf("leaf %q", p.Name)
	}
	of := "ClusterLoadAssignment/" + p.Assignment
	switch {
	case p.Err != nil:
		return c.found("leaves", Problem, "%s of the aggregate cannot be used: %v", name, p.Err).do("push the Cluster %q, or remove it from the aggregate", p.Name), false
	case p.Host != "" && p.AssignmentErr != nil && !p.Assigned:
		return c.found("DNS", Problem, "the name %q does not resolve: %v", p.Host, p.AssignmentErr).
			do("correct the name in the Cluster, or the DNS records; lbd asks again by itself"), false
	case p.Host != "" && p.AssignmentErr != nil:
		return c.found("DNS", Warning, "the name %q does not resolve any more, and its last addresses stay in use: %v", p.Host, p.AssignmentErr).
			do("check the DNS records and servers; lbd asks again by itself"), p.Usable > 0
	case p.AssignmentErr != nil && !p.Assigned:
		return c.found("resources", Problem, "%s has no endpoints: %s", name, strings.TrimPrefix(p.AssignmentErr.Error(), "no endpoints: ")).
			do("push %s, or correct the EDS service name in the Cluster", of), false
	case p.Pending:
		what := of
		if p.Host != "" {
			what = fmt.Sprintf("the addresses of %q", p.Host)
		}
		check := c.found("resources", Problem, "%s waits for %s, and its picks wait", name, what).do("check the management server, or push the resource")
		if p.Host != "" {
			check.Check, check.Remedy = "DNS", "the DNS servers do not answer: check those of /etc/resolv.conf on the host of lbd, and the network between"
		}
		return check, false
	case p.Endpoints == 0 && p.LeftOut > 0:
		return c.found("endpoints", Problem, "%s has no endpoints: %s left out of %s from %s, as load_balancing_weight is 0 or absent",
			name, difference.Plural(p.LeftOut, "locality is", "localities are"), of, resource.PhraseOf(p.Source)).do("%s", giveWeights), false
	case p.Endpoints == 0:
		return c.found("endpoints", Problem, "%s has no endpoints: %s from %s has none", name, of, resource.PhraseOf(p.Source)).
			do("add endpoints to %s", of), false
	case p.Usable == 0:
		return c.found("endpoints", Problem, "%s has %s, and none is usable: EDS health is %s", name, difference.Count(p.Endpoints, "endpoint"), c.healths(p.Name)).
			do("endpoints get picks with health HEALTHY or UNKNOWN: correct health_status in %s from %s", of, resource.PhraseOf(p.Source)), false
	}
	return Check{Status: OK}, true
}

// healths counts the endpoints of the cluster, or of a leaf, by EDS health.
func (c *Cluster) healths(leaf string) string {
	counts := make(map[string]int)
	for p, e := range endpoints(c.State.Priorities) {
		if p.Cluster == "" || p.Cluster == leaf {
			counts[e.Health]++
		}
	}
	var texts []string
	for _, h := range []string{"UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED", "HEALTHY", "UNKNOWN"} {
		if n := counts[h]; n > 0 {
			texts = append(texts, fmt.Sprintf("%s (%d)", h, n))
		}
	}
	return strings.Join(texts, ", ")
}

// masked names the overlays that take all usable endpoints out of use.
func (c *Cluster) masked(d *Daemon) Check {
	out, ids := c.outOfUse(d, c.State.Priorities)
	if ids == nil {
		return c.found("endpoints", Problem, "none of %s is usable: EDS health is %s", difference.Count(c.State.Endpoints.Total, "endpoint"), c.healths("")).do("correct health_status in the ClusterLoadAssignment")
	}
	return c.found("overlays", Problem, "%s all usable endpoints out of use: %s", difference.Plural(len(ids), "overlay takes", "overlays take"), out[0]).
		do("delete the overlay: DELETE %s", ids[0]).with(out...)
}

// outOfUse returns the overlays that take endpoints of priorities out of use: a description, and the path.
func (c *Cluster) outOfUse(d *Daemon, priorities []observe.PriorityState) (details, paths []string) {
	by := make(map[[2]string]int)
	for p, e := range endpoints(priorities) {
		if e.Overlay != "" {
			by[[2]string{cmp.Or(p.Cluster, c.Name), e.Overlay}]++
		}
	}
	for i := range c.State.Overlays {
		o := &c.State.Overlays[i]
		if n := by[[2]string{o.Cluster, o.ID}]; n > 0 {
			details = append(details, describeOverlay(o, d.Now)+": "+difference.Count(n, "endpoint"))
			paths = append(paths, overlayPath(o.Cluster, o.ID))
		}
	}
	return details, paths
}

func overlayPath(cluster, id string) string {
	return "/v1/clusters/" + url.PathEscape(cluster) + "/overlays/" + id
}

// overlays returns the overlays of the cluster.
func (c *Cluster) overlays(d *Daemon) []Check {
	if len(c.State.Overlays) == 0 {
		return []Check{c.found("overlays", OK, "no overlay changes the cluster")}
	}
	var all, without []string
	of := c.Name
	for i := range c.State.Overlays {
		o := &c.State.Overlays[i]
		if o.Cluster != of { // a leaf
			of = "CLUSTER"
		}
		text := describeOverlay(o, d.Now)
		if why := idle(o); why != "" {
			without = append(without, text+": "+why)
			continue
		}
		all = append(all, text)
	}
	undo := "delete those that are not needed any more: DELETE " + overlayPath(of, "ID")
	var out []Check
	if len(all) > 0 {
		out = append(out, c.found("overlays", Warning, "%s the cluster: %s", difference.Plural(len(all), "overlay changes", "overlays change"), all[0]).do("%s", undo).with(all...))
	}
	if len(without) > 0 {
		out = append(out, c.found("overlays", Warning, "%s no effect: %s", difference.Plural(len(without), "overlay has", "overlays have"), without[0]).do("%s", undo).with(without...))
	}
	return out
}

// covers warns about the resources of the cluster that a push or a file covers.
func (c *Cluster) covers() []Check {
	var out []Check
	for _, cover := range c.State.Covers {
		by := cover.By
		if cover.Author != "" {
			by += " of " + cover.Author
		}
		out = append(out, c.found("sources", Warning, "a %s covers %s of another source (%s), whose changes have no effect: %s", by, cover.Resource, cover.Source, cmp.Or(cover.Differs, "they do not differ")).
			do("delete the push if the other source should apply"))
	}
	return out
}
