package decode

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Bundle is a body that holds any number of resources.
type Bundle struct {
	// Version is the body's version_info, or version; it may be empty.
	Version string
	// Items are in the order of the body. No Key is there twice.
	Items []resource.Item
	// Rejected are the Clusters that break a rule. Only Valid sets it.
	Rejected []Rejected
	// Warnings and Notes are those of all resources, up to MaxProblems each. Their
	// fields begin at the top of the body.
	Warnings, Notes []Problem
}

// typeBundle is what a problem of a bundle as a whole has in Resource.
const typeBundle resource.Type = "DiscoveryResponse"

// All reads a DiscoveryResponse, which is also the form of the files
// that Envoy's file-based LDS, RDS, CDS and EDS read, with any number of
// Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments; its
// version_info may be called version. With Options.Bare it also takes a single
// resource, of the type that its @type or else its fields tell; Options.Name names
// such a Cluster or ClusterLoadAssignment if it has no name.
//
// Each resource is judged as Cluster and the like judge it, and all or none
// is accepted. The error is a *SyntaxError where the body as a whole
// cannot be read, a *SizeError where it is too large to be; else an *InvalidError
// that lists the problems of all resources, up to MaxProblems. Each problem names
// its resource; its field begins at the top of the body, as in
// resources[3].endpoints[0].priority, so that [Locate] finds it. A value of the
// wrong type in one of several resources is a problem like others.
func All(body []byte, o Options) (b *Bundle, err error) {
	defer rejectPanic(resource.Key{Type: typeBundle}, &err)
	d := newBundling(o)
	if err = d.read(body); err == nil && !d.problems.empty() {
		err = &InvalidError{Problems: d.problems.ofBundle()}
	}
	if err != nil {
		placeError(err, body, o.Format, false)
		return nil, err
	}
	d.bundle.Warnings, d.bundle.Notes = d.warnings.ofBundle(), d.notes.ofBundle()
	if o.Places {
		Place(body, o.Format, false, d.bundle.Warnings, d.bundle.Notes)
	}
	return d.bundle, nil
}

// read reads and judges a body in whichever format.
func (d *bundling) read(body []byte) error {
	switch d.options.Format {
	case FormatProtobuf:
		return d.binary(body)
	case FormatYAML:
		body, err := fromYAML(body)
		if err != nil {
			return err
		}
		return d.json(body)
	default:
		return d.json(body)
	}
}

// bundling is a bundle on its way to be decoded.
type bundling struct {
	options Options
	bundle  *Bundle
	// places are where each key stands first.
	places   map[resource.Key]string
	problems problemList
	warnings problemList
	notes    problemList
	// broken tells, for each of the bundle's items, whether it breaks a rule.
	broken []bool
	// rejected are the Clusters that do, where each resource is judged by itself.
	valid    bool
	rejected []Rejected
}

func newBundling(o Options) *bundling {
	return &bundling{options: o, bundle: &Bundle{}, places: map[resource.Key]string{}}
}

// begin returns an empty report on what has the key.
func (d *bundling) begin(k resource.Key) *report {
	return d.options.begin(k)
}

// end takes over what was found out about what stands at a path.
func (d *bundling) end(v *report, at string) {
	d.problems.take(v.rejection(), v.key, at)
	d.warnings.take(v.remarks(), v.key, at)
	d.notes.take(&v.notes, v.key, at)
}

// reject notes a broken rule of the bundle as a whole.
func (d *bundling) reject(field, format string, args ...any) {
	v := d.begin(resource.Key{Type: typeBundle})
	v.reject(field, format, args...)
	d.end(v, "")
}

// tooMany refuses a bundle of more resources than are looked at.
func (d *bundling) tooMany(n int) bool {
	if n > MaxResources {
		d.reject("resources", "holds %d resources, of at most %d", n, MaxResources)
	}
	return n > MaxResources
}

// typed returns the type that a URL names. Where lbd does not take it, it says
// so of the resource at a path, and returns none.
func (d *bundling) typed(url, name, at string) resource.Type {
	const holds = "a bundle holds Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments"
	if t := typeOf(url); t != "" {
		return t
	}
	v := d.begin(resource.Key{Type: typeBundle})
	switch t := resource.Type(shortType(url)); {
	case url == "":
		v.reject("@type", "is absent: it must be one of %s", strings.Join(typeURLs(), ", "))
	case otherTypes[url]:
		v.key = resource.Key{Type: t, Name: name}
		v.reject("@type", "is %s, which is not supported: %s", t, holds)
	default:
		v.reject("@type", "is %q, which is not supported: %s (%s)", url, holds, strings.Join(typeURLs(), ", "))
	}
	d.end(v, at)
	return ""
}

// typeURLs are those of the types that a bundle holds.
func typeURLs() []string {
	urls := make([]string, len(types))
	for i, t := range types {
		urls[i] = t.URL()
	}
	return urls
}

// otherTypes are the other types of resources that xDS serves and gRPC or Envoy
// read from files.
var otherTypes = map[string]bool{
	typeURLPrefix + "envoy.config.route.v3.ScopedRouteConfiguration":   true,
	typeURLPrefix + "envoy.config.route.v3.VirtualHost":                true,
	typeURLPrefix + "envoy.config.endpoint.v3.LbEndpoint":              true,
	typeURLPrefix + "envoy.config.core.v3.TypedExtensionConfig":        true,
	typeURLPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret": true,
	typeURLPrefix + "envoy.service.runtime.v3.Runtime":                 true,
}

// item judges the resource at a path, which read reads, and takes it in. The
// name in k is what it seems to bear. An error is a *SizeError, or a *SyntaxError
// of a body that is the resource itself.
func (d *bundling) item(at string, k resource.Key, read func(*report, proto.Message) error) error {
	v := d.begin(k)
	it := resource.Item{Field: at}
	name := ""
	if at == "" && (k.Type == resource.TypeAssignment || k.Type == resource.TypeCluster) {
		name = d.options.Name
	}
	err := decodeItem(v, &it, name, read)
	var size *SizeError
	var syntax *SyntaxError
	var invalid *InvalidError
	switch {
	case errors.As(err, &size):
		return size
	case errors.As(err, &syntax) && at == "":
		k.Name = cmp.Or(k.Name, name)
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
			v.reject(nameField(v.key.Type), "is %q, as that of %s is: each resource may be there once", v.key.Name, first)
		} else {
			d.places[v.key] = at
		}
	}
	broken := v.rejection()
	if d.valid && broken.empty() {
		broken = v.misspelledSecurity()
	}
	d.broken = append(d.broken, !broken.empty())
	d.keepRejected(v.key, broken, at)
	d.end(v, at)
	it.Key = v.key
	d.bundle.Items = append(d.bundle.Items, it)
	return nil
}

// nameField is the field that bears the name of a resource.
func nameField(t resource.Type) string {
	if t == resource.TypeAssignment {
		return "cluster_name"
	}
	return "name"
}

// take appends another's problems as those of the resource k at a path.
func (l *problemList) take(from *problemList, k resource.Key, at string) {
	for _, p := range from.list {
		if l.full() {
			l.more++
			continue
		}
		p.Resource, p.Field = k.String(), within(at, p.Field)
		l.list = append(l.list, p)
	}
	l.more += from.more
}

// ofBundle returns the problems, which name their resources already.
func (l *problemList) ofBundle() []Problem {
	if l.more == 0 {
		return l.list
	}
	return append(l.list, Problem{Resource: string(typeBundle), Reason: fmt.Sprintf("and %d more like these", l.more)})
}
