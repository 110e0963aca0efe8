package resource

import (
	"cmp"
	"errors"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

// Bundle is a body that holds any number of resources.
type Bundle struct {
	// Version is the body's version_info, or version; it may be empty.
	Version string
	// Items are in the order of the body. No Key is there twice.
	Items []Item
	// Warnings and Notes are those of all resources, up to MaxProblems each. Their
	// fields begin at the top of the body.
	Warnings, Notes []Problem
}

// Item is one resource, as a Bundle has it.
type Item struct {
	Key Key
	// Field is where the resource stands in the body, such as resources[3];
	// empty for one that is the body itself.
	Field string
	// Raw is what Decoded has in Raw.
	Raw []byte
	// Unapplied are the fields that are set and not applied, each once. Only
	// DecodeResource sets it.
	Unapplied []UnappliedField
	// One of these is the value, by Key.Type; the others are nil.
	Listener   *Listener
	Routes     *RouteConfiguration
	Cluster    *Cluster
	Assignment *Assignment
}

// Same reports whether two items have the same value, by its pointer: one that an
// update leaves as it was keeps it.
func (i Item) Same(o Item) bool {
	return i.Listener == o.Listener && i.Routes == o.Routes && i.Cluster == o.Cluster && i.Assignment == o.Assignment
}

// typeBundle is what a problem of a bundle as a whole has in Resource.
const typeBundle Type = "DiscoveryResponse"

// DecodeBundle reads a DiscoveryResponse, which is also the form of the files
// that Envoy's file-based LDS, RDS, CDS and EDS read, with any number of
// Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments; its
// version_info may be called version. With Options.Bare it also takes a single
// resource, of the type that its @type or else its fields tell; Options.Name names
// such a Cluster or ClusterLoadAssignment if it has no name.
//
// Each resource is judged as DecodeCluster and the like judge it, and all or none
// is accepted. The error is a *SyntaxError where the body as a whole
// cannot be read, a *SizeError where it is too large to be; else an *InvalidError
// that lists the problems of all resources, up to MaxProblems. Each problem names
// its resource; its field begins at the top of the body, as in
// resources[3].endpoints[0].priority, so that [Locate] finds it. A value of the
// wrong type in one of several resources is a problem like others.
func DecodeBundle(body []byte, o Options) (b *Bundle, err error) {
	defer refusePanic(Key{Type: typeBundle}, &err)
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
		text, err := yamlToJSON(body)
		if err != nil {
			return err
		}
		return d.json(text)
	default:
		return d.json(body)
	}
}

// bundling is a bundle on its way to be decoded.
type bundling struct {
	options Options
	bundle  *Bundle
	// places are where each key stands first.
	places   map[Key]string
	problems ledger
	warnings ledger
	notes    ledger
	// broken tells, for each of the bundle's items, whether it breaks a rule.
	broken []bool
}

func newBundling(o Options) *bundling {
	return &bundling{options: o, bundle: &Bundle{}, places: map[Key]string{}}
}

// begin returns an empty verdict on what has the key.
func (d *bundling) begin(k Key) *verdict {
	return d.options.begin(k)
}

// end takes over what was found out about what stands at a path.
func (d *bundling) end(v *verdict, at string) {
	d.problems.take(v.rejection(), v.key, at)
	d.warnings.take(v.remarks(), v.key, at)
	d.notes.take(&v.notes, v.key, at)
}

// refuse notes a broken rule of the bundle as a whole.
func (d *bundling) refuse(field, format string, args ...any) {
	v := d.begin(Key{Type: typeBundle})
	v.refuse(field, format, args...)
	d.end(v, "")
}

// tooMany refuses a bundle of more resources than are looked at.
func (d *bundling) tooMany(n int) bool {
	if n > MaxResources {
		d.refuse("resources", "holds %d resources, of at most %d", n, MaxResources)
	}
	return n > MaxResources
}

// typed returns the type that a URL names. Where lbd does not take it, it says
// so of the resource at a path, and returns none.
func (d *bundling) typed(url, name, at string) Type {
	const holds = "a bundle holds Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments"
	if t := typeOf(url); t != "" {
		return t
	}
	v := d.begin(Key{Type: typeBundle})
	switch t := Type(shortType(url)); {
	case url == "":
		v.refuse("@type", "is absent: it must be one of %s", strings.Join(typeURLs(), ", "))
	case otherTypes[url]:
		v.key = Key{t, name}
		v.refuse("@type", "is %s, which is not supported: %s", t, holds)
	default:
		v.refuse("@type", "is %q, which is not supported: %s (%s)", url, holds, strings.Join(typeURLs(), ", "))
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
func (d *bundling) item(at string, k Key, read func(*verdict, proto.Message) error) error {
	v := d.begin(k)
	it := Item{Field: at}
	name := ""
	if at == "" && (k.Type == TypeAssignment || k.Type == TypeCluster) {
		name = d.options.Name
	}
	err := v.item(&it, name, read)
	var size *SizeError
	var syntax *SyntaxError
	var invalid *InvalidError
	switch {
	case errors.As(err, &size):
		return size
	case errors.As(err, &syntax) && at == "":
		return syntax
	case errors.As(err, &syntax):
		v.refuse(syntax.Field, "%s", syntax.Reason)
	case errors.As(err, &invalid) && v.problems.empty():
		v.problems.list = invalid.Problems
	case err != nil && invalid == nil:
		v.refuse("", "%s", err.Error())
	}
	if v.key.Name != "" {
		if first, twice := d.places[v.key]; twice {
			v.refuse(nameField(v.key.Type), "is %q, as that of %s is: each resource may be there once", v.key.Name, first)
		} else {
			d.places[v.key] = at
		}
	}
	d.broken = append(d.broken, !v.rejection().empty())
	d.end(v, at)
	it.Key = v.key
	d.bundle.Items = append(d.bundle.Items, it)
	return nil
}

// item reads and judges a resource of the verdict's type, which is called name if it
// has no name of its own.
func (v *verdict) item(it *Item, name string, read func(*verdict, proto.Message) error) (err error) {
	defer refusePanic(v.key, &err)
	m, err := newMessage(v.key.Type)
	if err != nil {
		return err
	}
	if err := read(v, m); err != nil {
		return err
	}
	switch m := m.(type) {
	case *listenerv3.Listener:
		m.Name = v.name("name", m.GetName(), "")
		it.Listener = v.listener(m)
	case *routev3.RouteConfiguration:
		m.Name = v.name("name", m.GetName(), "")
		it.Routes = v.routes(m, "")
	case *clusterv3.Cluster:
		m.Name = v.name("name", m.GetName(), cmp.Or(m.GetName(), name))
		it.Cluster = v.cluster(m)
	case *endpointv3.ClusterLoadAssignment:
		m.ClusterName = v.name("cluster_name", m.GetClusterName(), cmp.Or(m.GetClusterName(), name))
		it.Assignment = v.assignment(m)
	}
	if it.Raw, err = v.encode(m); err == nil && v.problems.empty() {
		v.fields(m, "")
	}
	return err
}

// nameField is the field that bears the name of a resource.
func nameField(t Type) string {
	if t == TypeAssignment {
		return "cluster_name"
	}
	return "name"
}
