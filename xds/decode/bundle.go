package decode

import (
	"cmp"
	"errors"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Bundle is a body with any number of resources.
type Bundle struct {
	// Version is the body's version_info, or version; it may be empty.
	Version string
	// Items are in the order of the body. Their Keys are unique.
	Items []resource.Item
	// Rejected are the Clusters that break a rule. Only Valid sets it.
	Rejected []Rejected
	// Warnings and Notes are those of all resources, up to MaxProblems each. Their
	// fields begin at the top of the body.
	Warnings, Notes []Problem
}

// ClustersOf returns the Clusters of the bundle that have an assignment.
func (b *Bundle) ClustersOf(assignment string) []*resource.Cluster {
	var out []*resource.Cluster
	for _, i := range b.Items {
		if c := i.Cluster; c != nil && c.Type == resource.ClusterEDS && c.AssignmentName() == assignment {
			out = append(out, c)
		}
	}
	return out
}

// typeBundle is the Resource of a problem of a bundle as a whole.
const typeBundle resource.Type = "DiscoveryResponse"

// All reads a DiscoveryResponse, which is also the form of the files that Envoy's
// file-based LDS, RDS, CDS and EDS read, with any number of Listeners,
// RouteConfigurations, Clusters and ClusterLoadAssignments; its version_info may be called
// version. With Options.Bare it also takes a single resource, whose type follows from its
// @type or else from its fields; Options.Name names such a Cluster or
// ClusterLoadAssignment if it has no name.
//
// Each resource is validated as Cluster and the like validate it, and all or none is
// accepted. The error is a *SyntaxError if the body as a whole cannot be read, a *SizeError
// if it is too large; else an *InvalidError that lists the problems of all resources, up to
// MaxProblems. Each problem names its resource; its field begins at the top of the body,
// as in resources[3].endpoints[0].priority. A value of the wrong type in one of several
// resources is a problem like others.
func All(body []byte, o Options) (b *Bundle, err error) {
	defer rejectPanic(resource.Key{Type: typeBundle}, &err)
	d := newBundling(o)
	if err = d.read(body); err == nil && !d.problems.empty() {
		err = &InvalidError{Problems: d.problems.of(resource.Key{Type: typeBundle})}
	}
	if err != nil {
		placeError(err, body, o.Format, false)
		return nil, err
	}
	whole := resource.Key{Type: typeBundle}
	d.bundle.Warnings, d.bundle.Notes = JudgeWeights(d.warnings.of(whole), o.Policies, d.bundle.ClustersOf), d.notes.of(whole)
	if o.Places {
		Place(body, o.Format, false, d.bundle.Warnings, d.bundle.Notes)
	}
	return d.bundle, nil
}

// bundling is a bundle while it is being decoded.
type bundling struct {
	options Options
	bundle  *Bundle
	places  map[resource.Key]string // the first path of each key
	static  map[string]bool         // the names, as JSON, of STATIC Clusters of forms, whose endpoints are read

	problems, warnings, notes problemList

	valid bool // Valid reads the bundle: it has only the items that break no rule
}

func newBundling(o Options) *bundling {
	return &bundling{options: o, bundle: &Bundle{}, places: map[resource.Key]string{}}
}

func (d *bundling) read(body []byte) error {
	switch d.options.Format {
	case FormatProtobuf:
		return d.binary(body)
	case FormatYAML:
		body, err := fromYAML(body, &d.options)
		if err != nil {
			return err
		}
		return d.json(body)
	case FormatText:
		return d.list(body)
	default:
		return d.json(body)
	}
}

// list reads a list of endpoints, which is an assignment with the name of the Options.
func (d *bundling) list(body []byte) error {
	if !d.options.Bare {
		return errListOfOther(d.options.Format)
	}
	return d.item("", resource.Key{Type: resource.TypeAssignment, Name: d.options.Name}, func(v *report, it *resource.Item) error {
		return decodeList(v, it, body)
	})
}

// begin returns an empty report on the bundle as a whole.
func (d *bundling) begin() *report { return d.options.begin(resource.Key{Type: typeBundle}) }

// end adds what a report on the resource at a path found.
func (d *bundling) end(v *report, at string) {
	d.problems.take(v.rejection(), v.key, at)
	d.warnings.take(v.remarks(), v.key, at)
	d.notes.take(&v.notes, v.key, at)
}

func (d *bundling) reject(field, format string, args ...any) {
	v := d.begin()
	v.reject(field, format, args...)
	d.end(v, "")
}

func (d *bundling) tooMany(n int) bool {
	if n > MaxResources {
		d.reject("resources", "holds %d resources, of at most %d", n, MaxResources)
	}
	return n > MaxResources
}

// typed returns the type of a URL. It rejects the resource at a path, and returns no type,
// if lbd does not support the type.
func (d *bundling) typed(url, name, at string) resource.Type {
	const holds = "a bundle holds Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments"
	var urls []string
	for _, t := range types {
		if t.URL() == url {
			return t
		}
		urls = append(urls, t.URL())
	}
	v := d.begin()
	switch t := resource.Type(shortType(url)); {
	case url == "":
		v.reject("@type", "is absent: it must be one of %s", strings.Join(urls, ", "))
	case otherTypes[url]:
		v.key = resource.Key{Type: t, Name: name}
		v.reject("@type", "is %s, which is not supported: %s", t, holds)
	default:
		v.reject("@type", "is %q, which is not supported: %s (%s)", url, holds, strings.Join(urls, ", "))
	}
	d.end(v, at)
	return ""
}

// otherTypes are other types that xDS serves, or that gRPC or Envoy read from files.
var otherTypes = map[string]bool{
	typeURLPrefix + "envoy.config.route.v3.ScopedRouteConfiguration":   true,
	typeURLPrefix + "envoy.config.route.v3.VirtualHost":                true,
	typeURLPrefix + "envoy.config.endpoint.v3.LbEndpoint":              true,
	typeURLPrefix + "envoy.config.core.v3.TypedExtensionConfig":        true,
	typeURLPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret": true,
	typeURLPrefix + "envoy.service.runtime.v3.Runtime":                 true,
}

// item adds the resource at a path, with a preliminary key, that decode decodes. The error is
// a *SizeError, or a *SyntaxError of a body that is the resource itself.
func (d *bundling) item(at string, k resource.Key, decode func(*report, *resource.Item) error) error {
	d.options.pause()
	v := d.options.begin(k)
	it := resource.Item{Field: at}
	if at != "" || k.Type != resource.TypeAssignment && k.Type != resource.TypeCluster {
		v.Name = ""
	}
	err := decode(v, &it)
	var syntax *SyntaxError
	var invalid *InvalidError
	switch {
	case errors.As(err, new(*SizeError)), errors.As(err, new(*StoppedError)):
		return err
	case errors.As(err, &syntax) && at == "":
		k.Name = cmp.Or(k.Name, v.Name)
		d.keepRejected(k, &problemList{list: []Problem{{Reason: syntax.Error()}}}, at)
		return syntax
	case errors.As(err, &syntax):
		v.reject(syntax.Field, "%s", syntax.Reason)
	case errors.As(err, &invalid) && v.problems.empty():
		v.problems.list = invalid.Problems
	case err != nil && invalid == nil:
		v.reject("", "%s", err.Error())
	}
	if v.key.Name != "" {
		if first, twice := d.places[v.key]; twice {
			field := "name"
			if v.key.Type == resource.TypeAssignment {
				field = "cluster_name"
			}
			v.reject(field, "is %q, as that of %s is: each resource may be there once", v.key.Name, first)
		} else {
			d.places[v.key] = at
		}
	}
	broken := v.rejection()
	if d.valid && broken.empty() {
		broken = v.misspelledSecurity()
	}
	d.keepRejected(v.key, broken, at)
	d.end(v, at)
	if it.Key = v.key; !d.valid || broken.empty() {
		d.bundle.Items = append(d.bundle.Items, it)
	}
	return nil
}

// Rejected is a Cluster of a bundle that breaks a rule. Without the Cluster, its cluster
// would have the defaults, which may be less than what the author asks for: no TLS.
type Rejected struct {
	Key resource.Key
	Why string // the first broken rules, each with its field
}

const maxRejectedProblems = 3

// Valid returns, of a body that All rejects, the resources that are valid by themselves,
// and the Clusters that are not. It returns nil if there are none, or if the body as a
// whole cannot be read.
//
// A Cluster is not valid either if an unknown field was probably meant to be its
// transport_socket or is within that, even if Options.Lenient is set: it would have
// less TLS than it asks for.
func Valid(body []byte, o Options) (b *Bundle) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	d := newBundling(o)
	d.valid = true
	if d.read(body) != nil {
		d.bundle.Items = nil
	}
	if len(d.bundle.Items) == 0 && len(d.bundle.Rejected) == 0 {
		return nil
	}
	return d.bundle
}

// keepRejected adds the rules that the Cluster at a path breaks, for Valid.
func (d *bundling) keepRejected(k resource.Key, broken *problemList, at string) {
	if !d.valid || k.Type != resource.TypeCluster || k.Name == "" || broken.empty() {
		return
	}
	var words []string
	for _, p := range broken.list[:min(len(broken.list), maxRejectedProblems)] {
		p.Field = within(at, p.Field)
		words = append(words, p.String())
	}
	d.bundle.Rejected = append(d.bundle.Rejected, Rejected{Key: k, Why: strings.Join(words, "; ")})
}

// misspelledSecurity returns the unknown fields of a Cluster that are within its
// transport_socket, or were probably meant to be.
func (r *report) misspelledSecurity() *problemList {
	var l problemList
	for _, p := range r.unknown.list {
		if r.key.Type == resource.TypeCluster && strings.Contains(strings.ToLower(strings.ReplaceAll(p.String(), "_", "")), "transportsocket") {
			l.list = append(l.list, p)
		}
	}
	return &l
}
