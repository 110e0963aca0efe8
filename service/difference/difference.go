// Package difference describes in words the difference between two versions of a
// resource: "orders: 3 endpoints removed from us-east1/a; weight of us-east1/b
// 3 → 1; drop throttle 5 % → 10 %". It compares decoded values, which are immutable,
// so it may run anywhere and at any time.
package difference

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// MaxParts is how many differences of one resource are described.
	MaxParts = 8
	// MaxBytes is the maximum length of the description of one resource.
	MaxBytes = 500
)

// Describe returns the difference between two versions of a resource in words,
// without its name. A version without Raw and value does not exist. The text is empty if
// nothing that lbd uses differs.
func Describe(before, after resource.Item) string {
	var p parts
	switch {
	case !exists(before) && !exists(after):
	case !exists(before):
		p.add("added%s", with(after))
	case !exists(after):
		p.add("removed%s", with(before))
	case before.Assignment != nil && after.Assignment != nil:
		p.assignment(before.Assignment, after.Assignment)
	case before.Cluster != nil && after.Cluster != nil:
		p.cluster(before.Cluster, after.Cluster)
	case before.Routes != nil && after.Routes != nil:
		p.routes(before.Routes, after.Routes)
	case before.Listener != nil && after.Listener != nil:
		p.listener(before.Listener, after.Listener)
	default:
		p.add("modified")
	}
	return p.String()
}

func exists(i resource.Item) bool {
	return i.Raw != nil || i.Listener != nil || i.Routes != nil || i.Cluster != nil || i.Assignment != nil
}

func with(i resource.Item) string {
	switch {
	case i.Assignment != nil:
		return " with " + Count(i.Assignment.Usable(), "usable endpoint")
	case i.Routes != nil:
		return " with " + Count(len(i.Routes.VirtualHosts), "virtual host")
	case i.Cluster != nil:
		return " as " + i.Cluster.Type.String()
	default:
		return ""
	}
}

// Count returns a number and its noun: "1 endpoint", "2 endpoints".
func Count(n int, what string) string { return Plural(n, what, what+"s") }

// Plural returns a number and what it counts: "1 endpoint is", "2 endpoints are".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Few joins the first of some names, and says how many more there are.
func Few(names []string, limit int) string {
	if more := len(names) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), more)
	}
	return strings.Join(names, ", ")
}

type parts struct {
	list []string
	more int
}

func (p *parts) add(format string, args ...any) {
	if len(p.list) == MaxParts {
		p.more++
		return
	}
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

func changed[T comparable](p *parts, what string, before, after T) {
	if before != after {
		p.add("%s %v → %v", what, before, after)
	}
}

// differs adds a part that has no short description, if it differs.
func differs(p *parts, what string, before, after any) {
	if !reflect.DeepEqual(before, after) {
		p.add("%s changed", what)
	}
}

// String joins the parts, at most MaxBytes long.
func (p *parts) String() string {
	list := p.list
	if p.more > 0 {
		list = append(slices.Clip(list), fmt.Sprintf("and %d more", p.more))
	}
	return Clip(strings.Join(list, "; "), MaxBytes)
}

// Clip shortens a text to a number of bytes.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

func (p *parts) cluster(before, after *resource.Cluster) {
	changed(p, "type", before.Type, after.Type)
	changed(p, "endpoints of", before.AssignmentName(), after.AssignmentName())
	changed(p, "DNS name", before.DNSHostname, after.DNSHostname)
	if !reflect.DeepEqual(before.Leaves, after.Leaves) {
		p.add("clusters of the aggregate %s → %s", strings.Join(before.Leaves, ", "), strings.Join(after.Leaves, ", "))
	}
	changed(p, "max_requests", before.MaxRequests, after.MaxRequests)
	changed(p, "max_lease_share", before.MaxLeaseShare, after.MaxLeaseShare)
	changed(p, "limit of the fleet", before.FleetLimit, after.FleetLimit)
	changed(p, "policy", PolicyName(before.Policy), PolicyName(after.Policy))
	if PolicyName(before.Policy) == PolicyName(after.Policy) {
		differs(p, "configuration of the policy", before.Policy, after.Policy)
	}
	differs(p, "outlier_detection", before.OutlierDetection, after.OutlierDetection)
	differs(p, "transport_socket", before.Security, after.Security)
	changed(p, "max_backoff", before.MaxBackoff, after.MaxBackoff)
	changed(p, "connect mode", mode(before.Connect), mode(after.Connect))
	changed(p, "load reports to the server", before.LRSToSelf, after.LRSToSelf)
	differs(p, "metrics in load reports", before.LoadMetrics, after.LoadMetrics)
}

func mode(m resource.ConnectMode) string {
	if m == resource.ConnectDefault {
		return "default"
	}
	return string(m)
}

// PolicyName names a policy with its child.
func PolicyName(p resource.Policy) string {
	if p.Child == nil {
		return string(p.Name)
	}
	return string(p.Name) + "/" + PolicyName(*p.Child)
}

func (p *parts) listener(before, after *resource.Listener) {
	changed(p, "route_config_name", before.RouteName, after.RouteName)
	switch {
	case before.Routes != nil && after.Routes != nil:
		p.routes(before.Routes, after.Routes)
	case (before.Routes == nil) != (after.Routes == nil) && before.RouteName == after.RouteName:
		p.add("inline routes changed")
	}
}

func (p *parts) routes(before, after *resource.RouteConfiguration) {
	hosts := map[string]*resource.VirtualHost{}
	for _, h := range before.VirtualHosts {
		hosts[h.Name] = h
	}
	for _, h := range after.VirtualHosts {
		was := hosts[h.Name]
		delete(hosts, h.Name)
		switch {
		case was == nil:
			p.add("virtual host %q added with %s", h.Name, Count(len(h.Routes), "route"))
		case len(was.Routes) != len(h.Routes):
			p.add("virtual host %q: %s → %d", h.Name, Count(len(was.Routes), "route"), len(h.Routes))
		case !reflect.DeepEqual(was.Domains, h.Domains):
			p.add("domains of virtual host %q changed", h.Name)
		default:
			p.routesOf(was, h)
		}
	}
	for _, h := range before.VirtualHosts {
		if hosts[h.Name] != nil {
			p.add("virtual host %q removed", h.Name)
		}
	}
}

// routesOf compares the routes of a virtual host, as many before as after.
func (p *parts) routesOf(before, after *resource.VirtualHost) {
	for i, r := range after.Routes {
		was := before.Routes[i]
		same := reflect.DeepEqual(was.Match.Words(), r.Match.Words()) && reflect.DeepEqual(was.Hash, r.Hash)
		if to := clustersOf(r); !same {
			p.add("route %d of virtual host %q changed", i, after.Name)
		} else if from := clustersOf(was); from != to {
			p.add("route %d of virtual host %q: %s → %s", i, after.Name, from, to)
		}
	}
}

func clustersOf(r *resource.Route) string {
	if len(r.Clusters) == 0 {
		return "no cluster"
	}
	var names []string
	for _, c := range r.Clusters {
		name := c.Name
		if len(r.Clusters) > 1 {
			name += fmt.Sprintf(" (%d)", c.Weight)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// MaxListed limits how many changes of one push an event lists.
const MaxListed = 20

// MaxSentence is the maximum length of an event's sentence about changes.
const MaxSentence = 2000

// Version is a resource before and after a change; both have its key, except Before if it did
// not exist. Its values are immutable.
type Version struct{ Before, After resource.Item }

// Sentence is Describe with the resource's name before it: the name alone for an
// assignment, which most changes are about.
func (v Version) Sentence() string {
	what := Describe(v.Before, v.After)
	if what == "" {
		return ""
	}
	return strings.TrimPrefix(v.After.Key.String(), string(resource.TypeAssignment)+"/") + ": " + what
}

// Versions are those of several resources.
type Versions []Version

// Change is what happened to one resource.
type Change struct {
	Resource string `json:"resource"` // "ClusterLoadAssignment/orders"
	Change   string `json:"change" enums:"added,modified,removed"`
	// Difference describes it in words, for the first changes of an answer or event.
	Difference string `json:"difference,omitempty"`
}

// Key returns the key of the changed resource.
func (c Change) Key() resource.Key {
	kind, name, _ := strings.Cut(c.Resource, "/")
	return resource.Key{Type: resource.Type(kind), Name: name}
}

// Changes lists the versions that differ, each resource once: the first few with words.
func (vs Versions) Changes() []Change {
	var out []Change
	listed := make(map[resource.Key]bool)
	for _, v := range vs {
		change, same := v.change()
		if same || listed[v.After.Key] {
			continue
		}
		listed[v.After.Key] = true
		if len(out) < MaxListed {
			if change.Difference = Describe(v.Before, v.After); change.Difference == "" {
				continue
			}
		}
		out = append(out, change)
	}
	return out
}

// change is what happened to the resource, without words.
func (v Version) change() (c Change, same bool) {
	was, is := v.Before, v.After
	c = Change{Resource: is.Key.String(), Change: "modified"}
	switch absent := (resource.Value{}); {
	case was.Value == is.Value:
		return c, true
	case was.Value == absent:
		c.Change = "added"
	case is.Value == absent:
		c.Change = "removed"
	}
	return c, false
}

// Summary is a sentence: how many resources changed, and how.
func Summary(changes []Change) string { return SummaryOf(changes, len(changes)) }

// SummaryOf is Summary of the first few of a number of changes.
func SummaryOf(changes []Change, count int) string {
	var b strings.Builder
	b.WriteString(Count(count, "resource") + " changed")
	separator := ": "
	for i, c := range changes[:min(len(changes), MaxListed)] {
		if c.Difference == "" {
			continue
		}
		part := separator + strings.TrimPrefix(c.Resource, string(resource.TypeAssignment)+"/") + ": " + c.Difference
		if b.Len()+len(part) > MaxSentence {
			fmt.Fprintf(&b, "; and %d more", count-i)
			break
		}
		b.WriteString(part)
		separator = "; "
	}
	return b.String()
}

// WithoutWords returns the first few changes without Difference, as an event lists them: its
// sentence has the words.
func WithoutWords(changes []Change) []Change {
	listed := slices.Clone(changes[:min(len(changes), MaxListed)])
	for i := range listed {
		listed[i].Difference = ""
	}
	return listed
}
