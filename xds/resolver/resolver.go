package resolver

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return clusterScheme + cluster }

// Cluster returns the cluster of a "cluster:NAME" target; ok is false for any
// other target.
func Cluster(target string) (name string, ok bool) { return strings.CutPrefix(target, clusterScheme) }

// Change is a target's new config.
type Change struct {
	// Target is "cluster:NAME" or "xds:///NAME".
	Target string
	// Config is nil where the target is no more.
	Config *resource.Config
}

// Options are what a Resolver needs from around it.
type Options struct {
	// Policies knows the load balancing policies and judges their configs; nil means
	// that none is available by its gRPC name.
	Policies decode.Policies
	// Certificates describes the bootstrap's certificate providers; nil means that
	// there is no bootstrap.
	Certificates decode.CertificateProviders
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

	needs     map[resource.Key]map[*target]*need
	hostNames map[string]struct{} // of the needs
	asked     asked
	reused    reused
	failing   failing
}

// New returns a Resolver without resources.
func New(o Options) *Resolver {
	return &Resolver{
		options:     o,
		listeners:   newLayers[resource.Listener](),
		routes:      newLayers[resource.RouteConfiguration](),
		clusters:    newLayers[resource.Cluster](),
		assignments: newLayers[resource.Assignment](),
		hosts:       make(map[string]*result[resource.Assignment]),
		targets:     make(map[string]*target),
		needs:       make(map[resource.Key]map[*target]*need),
		hostNames:   make(map[string]struct{}),
		asked:       asked{told: make(map[wish]struct{}), open: make(map[wish]struct{})},
		failing:     failing{keys: make(map[string]map[resource.Key]struct{}), changed: make(map[string]struct{})},
	}
}

// Apply takes what a source says, and returns the targets that this changes, in
// the order of their names. What a management server says of what it is not
// asked for is passed over.
func (r *Resolver) Apply(s resource.Source, updates []resource.Update) []Change {
	var b batch
	for _, u := range updates {
		if s == resource.SourceADS {
			if r.asks(wish{u.Target, u.Key}) {
				r.take(s, u)
				t := r.targets[u.Target]
				b.touch(t, r.needs[u.Key][t])
			}
			continue
		}
		covered := r.covered(u.Key)
		r.take(s, u)
		r.touch(u.Key, &b)
		if !byHand(s) {
			continue
		}
		if covered != r.covered(u.Key) {
			for t := range r.needs[u.Key] {
				r.reconsider(t, u.Key)
			}
		}
		r.hosting(u.Key, &b)
	}
	return r.settle(&b)
}

// byHand reports whether a source is one of those that host targets and cover
// what a management server says.
func byHand(s resource.Source) bool { return s == resource.SourcePush || s == resource.SourceFile }

// take puts what a source says of a resource where it belongs.
func (r *Resolver) take(s resource.Source, u resource.Update) {
	o := decode.Options{
		Origin: decode.FromServer, Format: decode.FormatProtobuf, Stored: true, Name: u.Key.Name,
		Policies: r.options.Policies, Certificates: r.options.Certificates,
	}
	if byHand(s) {
		o.Origin = decode.ByHand
	}
	switch u.Key.Type {
	case resource.TypeListener:
		r.listeners.take(s, u, u.Listener, o, decode.Listener)
	case resource.TypeRoutes:
		r.routes.take(s, u, u.Routes, o, decode.RouteConfiguration)
	case resource.TypeCluster:
		r.clusters.take(s, u, u.Cluster, o, decode.Cluster)
	case resource.TypeAssignment:
		// What trees use now is what they should find unchanged, whichever
		// source it was of.
		before := r.assignments.top(r.example(s, u), u.Key.Name).value
		r.assignments.take(s, u, u.Assignment, o, decode.Assignment)
		if is := r.assignments.get(s, u.Target, u.Key.Name); is.good() {
			is.value = r.reuse(is.value, before)
		}
	}
	if s == resource.SourceADS {
		r.recordError(u.Target, u.Key)
	}
}

// example is the target whose present assignment a new one is compared with: the one
// that is told of it, or any that needs it.
func (r *Resolver) example(s resource.Source, u resource.Update) string {
	if s == resource.SourceADS {
		return u.Target
	}
	for t := range r.needs[u.Key] {
		return t.name
	}
	return ""
}

// reuse is Assignment.Reuse. What several targets are told, one after another, is one
// value for all.
func (r *Resolver) reuse(is, before *resource.Assignment) *resource.Assignment {
	if last := &r.reused; last.is != is || last.before != before {
		*last = reused{is: is, before: before, value: is.Reuse(before)}
	}
	return r.reused.value
}

// reused is the last result of Assignment.Reuse.
type reused struct{ is, before, value *resource.Assignment }

// Value returns a resource as a source has it, for the management server as it is
// told to a target: its key and its value, without Raw; no value where the source has
// none that can be used.
func (r *Resolver) Value(s resource.Source, target string, key resource.Key) resource.Item {
	i := resource.Item{Key: key}
	switch key.Type {
	case resource.TypeListener:
		i.Listener = r.listeners.get(s, target, key.Name).get()
	case resource.TypeRoutes:
		i.Routes = r.routes.get(s, target, key.Name).get()
	case resource.TypeCluster:
		i.Cluster = r.clusters.get(s, target, key.Name).get()
	case resource.TypeAssignment:
		i.Assignment = r.assignments.get(s, target, key.Name).get()
	}
	return i
}

// HostAddresses returns what a DNS name last resolved to.
func (r *Resolver) HostAddresses(host string) []string {
	is := r.hosts[host]
	if is == nil || is.value == nil {
		return nil
	}
	return is.value.Localities[0].Endpoints[0].Addresses
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
		r.touch(resource.Key{Type: resource.TypeCluster, Name: key.Name}, b)
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
	r.touch(resource.Key{Type: typeHost, Name: host}, &b)
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

// touch notes who needs what has changed, of all targets.
func (r *Resolver) touch(key resource.Key, b *batch) {
	for t, n := range r.needs[key] {
		b.touch(t, n)
	}
}

// touch notes what a target needs that has changed; n is nil where it does not.
func (b *batch) touch(t *target, n *need) {
	if n == nil {
		return
	}
	for x := range n.roots {
		insert(&b.roots, x)
	}
	if n.routed {
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
		if r.resolve(x) && x.chosen {
			b.publish(x.target)
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
