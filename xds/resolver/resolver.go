package resolver

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return clusterScheme + cluster }

// Cluster returns the cluster of a "cluster:NAME" target; ok is false for any
// other target.
func Cluster(target string) (name string, ok bool) { return strings.CutPrefix(target, clusterScheme) }

// Update is what a source says of one resource.
type Update struct {
	// Item is the resource: Raw as the decoder wrote it, and its value where
	// it is known already. Where Raw and Err are nil the source has the
	// resource no more.
	resource.Item
	// Updated is since when the resource is as it is.
	Updated time.Time
	// Version is the management server's version_info.
	Version string
	// Err is, without Raw, why the source has no resource that can be used. A
	// *client.NotFoundError can be trusted: what was kept of the resource is of
	// no use any more either. Any other error leaves that in use.
	Err error
	// Ambient is true where Err leaves what the source itself had in use.
	Ambient bool
}

// Change is a target's new config.
type Change struct {
	// Target is "cluster:NAME" or "xds:///NAME".
	Target string
	// Config is nil where the target is no more.
	Config *resource.Config
}

// Options are what a Resolver needs from around it.
type Options struct {
	// Custom knows the policies that are available beside the decoder's own;
	// nil is none.
	Custom resource.CustomPolicies
	// Certificates reports which certificate provider instances there are; nil
	// is none.
	Certificates func(instance string) bool
	// ListenerName gives the name of the Listener of an xds: target, which it
	// is handed without "xds:" or, where there is no authority, "xds:///"; nil
	// takes the target's name.
	ListenerName func(target string) string
	// Server tells that there is a management server: what nobody knows yet is
	// waited for. Without one it is an error at once.
	Server bool
}

// Resolver holds the resources of every source as values, and every target's
// config. Its methods must be called one after another.
type Resolver struct {
	options Options

	listeners   layers[resource.Listener]
	routes      layers[resource.RouteConfiguration]
	clusters    layers[resource.Cluster]
	assignments layers[resource.Assignment]
	hosts       map[string]*result[resource.Assignment] // by DNS name

	targets map[string]*target // by name
	roots   map[string]*root   // by cluster
	parts   map[string]*part   // by cluster

	needs     map[resource.Key]*need
	hostNames map[string]struct{} // of the needs
	asked     asked
}

// New returns a Resolver without resources.
func New(o Options) *Resolver {
	return &Resolver{
		options:     o,
		listeners:   make(layers[resource.Listener]),
		routes:      make(layers[resource.RouteConfiguration]),
		clusters:    make(layers[resource.Cluster]),
		assignments: make(layers[resource.Assignment]),
		hosts:       make(map[string]*result[resource.Assignment]),
		targets:     make(map[string]*target),
		roots:       make(map[string]*root),
		parts:       make(map[string]*part),
		needs:       make(map[resource.Key]*need),
		hostNames:   make(map[string]struct{}),
		asked:       asked{told: make(map[resource.Key]struct{}), open: make(map[resource.Key]struct{})},
	}
}

// Apply takes what a source says, and returns the targets that this changes, in
// the order of their names. What a management server says of what it is not
// asked for is passed over.
func (r *Resolver) Apply(s resource.Source, updates []Update) []Change {
	var b batch
	for _, u := range updates {
		if s == resource.SourceADS && !r.asks(u.Key) {
			continue
		}
		covered := r.covered(u.Key)
		r.take(s, u)
		b.touch(r.needs[u.Key])
		if !byHand(s) {
			continue
		}
		if covered != r.covered(u.Key) {
			r.reconsider(u.Key)
		}
		r.hosting(u.Key, &b)
	}
	return r.settle(&b)
}

// byHand reports whether a source is one of those that host targets and cover
// what a management server says.
func byHand(s resource.Source) bool { return s == resource.SourcePush || s == resource.SourceFile }

// take puts what a source says of a resource where it belongs.
func (r *Resolver) take(s resource.Source, u Update) {
	o := resource.Options{
		Origin: resource.FromServer, Format: resource.FormatProtobuf, Stored: true, Name: u.Key.Name,
		Custom: r.options.Custom, Certificates: r.options.Certificates,
	}
	if byHand(s) {
		o.Origin = resource.ByHand
	}
	switch u.Key.Type {
	case resource.TypeListener:
		r.listeners.take(s, u, u.Listener, o, resource.DecodeListener)
	case resource.TypeRoutes:
		r.routes.take(s, u, u.Routes, o, resource.DecodeRouteConfiguration)
	case resource.TypeCluster:
		r.clusters.take(s, u, u.Cluster, o, resource.DecodeCluster)
	case resource.TypeAssignment:
		// What trees use now is what they should find unchanged, whichever
		// source it was of.
		before := r.assignments.top(u.Key.Name).value
		r.assignments.take(s, u, u.Assignment, o, resource.DecodeAssignment)
		if at := r.assignments[u.Key.Name]; at != nil && at[s].good() {
			at[s].value = at[s].value.Reuse(before)
		}
	}
}

// covered reports whether push or file have the resource.
func (r *Resolver) covered(key resource.Key) bool {
	switch key.Type {
	case resource.TypeListener:
		return r.listeners.covered(key.Name)
	case resource.TypeRoutes:
		return r.routes.covered(key.Name)
	case resource.TypeCluster:
		return r.clusters.covered(key.Name)
	case resource.TypeAssignment:
		return r.assignments.covered(key.Name)
	default:
		return false
	}
}

// hosting follows a change of a resource of push or file, which may host a
// target.
func (r *Resolver) hosting(key resource.Key, b *batch) {
	switch key.Type {
	case resource.TypeListener:
		r.host(xdsScheme+key.Name, b)
	case resource.TypeCluster:
		r.host(Target(key.Name), b)
	case resource.TypeAssignment:
		r.host(Target(key.Name), b)
		// It may stand for the cluster, too.
		b.touch(r.needs[resource.Key{Type: resource.TypeCluster, Name: key.Name}])
	}
}

// ApplyHost takes what a DNS name resolves to, or why it does not. What it
// resolved to before stays where there is an error.
func (r *Resolver) ApplyHost(host string, addresses []string, err error) []Change {
	was := r.hosts[host]
	if was == nil {
		was = &result[resource.Assignment]{}
	}
	is := &result[resource.Assignment]{value: was.value, err: err, from: resource.Provenance{Source: resource.SourceDNS, Updated: was.from.Updated}}
	if err == nil {
		is.value = hostAssignment(host, addresses).Reuse(was.value)
		if is.value != was.value {
			is.from.Updated = time.Now()
		}
	}
	r.hosts[host] = is
	var b batch
	b.touch(r.needs[resource.Key{Type: typeHost, Name: host}])
	return r.settle(&b)
}

// hostAssignment is what a LOGICAL_DNS cluster takes for its assignment: one
// endpoint with all addresses.
func hostAssignment(host string, addresses []string) *resource.Assignment {
	e := &resource.Endpoint{Addresses: addresses, Hostname: host, Weight: 1}
	return &resource.Assignment{
		Name:       host,
		Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}},
	}
}

// Hosts are the DNS names that clusters need, as "host:port". What other names
// resolved to is forgotten.
func (r *Resolver) Hosts() map[string]bool {
	hosts := make(map[string]bool, len(r.hostNames))
	for host := range r.hostNames {
		hosts[host] = true
	}
	maps.DeleteFunc(r.hosts, func(host string, _ *result[resource.Assignment]) bool { return !hosts[host] })
	return hosts
}

// Demand hosts the target of a cluster, whether or not anything is known of it,
// until Release.
func (r *Resolver) Demand(cluster string) []Change { return r.demand(Target(cluster), true) }

// Release ends what Demand began. The target stays where push or file host it.
func (r *Resolver) Release(cluster string) []Change { return r.demand(Target(cluster), false) }

// Host hosts a target such as "xds:///NAME" or "xds://AUTHORITY/NAME", until
// Unhost.
func (r *Resolver) Host(target string) []Change { return r.demand(target, true) }

// Unhost ends what Host began. The target stays where a Listener of push or file
// hosts it.
func (r *Resolver) Unhost(target string) []Change { return r.demand(target, false) }

func (r *Resolver) demand(name string, hosted bool) []Change {
	t := r.targets[name]
	if t == nil && !hosted {
		return nil
	}
	var b batch
	if t == nil {
		t = &target{name: name}
		r.add(t, &b)
	}
	t.demanded = hosted
	b.publish(t)
	return r.settle(&b)
}

// batch is what a call concerns.
type batch struct {
	roots   map[*root]struct{}   // to be resolved anew
	routed  map[*target]struct{} // whose routes are to be found anew
	targets map[*target]struct{} // whose config may be another
}

// touch notes who needs what has changed; n is nil where nobody does.
func (b *batch) touch(n *need) {
	if n == nil {
		return
	}
	for x := range n.roots {
		insert(&b.roots, x)
	}
	for t := range n.targets {
		insert(&b.routed, t)
	}
}

func (b *batch) publish(t *target) { insert(&b.targets, t) }

func insert[K comparable](set *map[K]struct{}, k K) {
	if *set == nil {
		*set = make(map[K]struct{})
	}
	(*set)[k] = struct{}{}
}

// settle makes anew what a batch concerns, and returns the targets whose configs
// are others now, in the order of their names.
func (r *Resolver) settle(b *batch) []Change {
	for x := range b.roots {
		if r.resolve(x) {
			for t := range x.targets {
				b.publish(t)
			}
		}
	}
	for t := range b.routed {
		r.route(t)
		b.publish(t)
	}
	var changes []Change
	for _, t := range slices.SortedFunc(maps.Keys(b.targets), func(a, b *target) int { return strings.Compare(a.name, b.name) }) {
		if c, ok := r.publish(t); ok {
			changes = append(changes, c)
		}
	}
	return changes
}
