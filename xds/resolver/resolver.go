package resolver

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return clusterScheme + cluster }

// Cluster returns the cluster of a "cluster:NAME" target; ok is false for any
// other target.
func Cluster(target string) (name string, ok bool) { return strings.CutPrefix(target, clusterScheme) }

// TargetConfig is a new config of a target.
type TargetConfig struct {
	Target string           // "cluster:NAME" or "xds:///NAME"
	Config *resource.Config // nil if the target was removed
	// Adopted is true for a cluster: target that stays, as if Host were called, although the push or the file that
	// hosted it was removed.
	Adopted bool
}

// Options are the parameters of a Resolver.
type Options struct {
	// Policies validates the configs of load balancing policies; nil if no policy is
	// available by its gRPC name.
	Policies decode.Policies
	// Certificates describes the certificate providers; nil without a bootstrap.
	Certificates decode.CertificateProviders
	// ListenerName returns the name of the Listener of an xds: target, which it gets
	// without "xds:", or "xds:///" without an authority; nil for the name of the target.
	ListenerName func(target string) string
	// Server is true if there is a management server, so that a config waits for unknown
	// resources. Otherwise they are errors.
	Server bool
}

// Resolver has the resources of all sources as values, and the configs of all targets. Its
// methods are not safe for concurrent use.
type Resolver struct {
	options Options

	layers layers
	hosts  map[string]*result // the assignment of each DNS name
	// overlays are those of each cluster that has any.
	overlays map[string]*overlays
	// base is the resolver that this one is a fork of, and that has the DNS names, and the overlays of other
	// clusters; nil for none.
	base *Resolver
	// touches are the clusters that a proposal changes, with their needs; nil if this is not a fork that
	// previews one.
	touches map[touch][]resource.Key
	covered map[resource.Key]struct{} // those of AllCovered

	targets map[string]*target // by name

	needs     map[resource.Key]*few.Map[*target, *need]
	hostNames map[string]bool // of the needs
	requests  requests
	reused    reused
	failing   failing

	held    map[resource.Key]map[*target]struct{} // what targets that wait use: target.held
	waiting map[string][]resource.Key             // see Waiting
}

// New returns a Resolver without resources.
func New(o Options) *Resolver {
	return &Resolver{
		options:   o,
		layers:    layers{shared: make(map[resource.Key]*sources), ads: make(map[targetResource]*result)},
		hosts:     make(map[string]*result),
		overlays:  make(map[string]*overlays),
		covered:   make(map[resource.Key]struct{}),
		targets:   make(map[string]*target),
		needs:     make(map[resource.Key]*few.Map[*target, *need]),
		hostNames: make(map[string]bool),
		held:      make(map[resource.Key]map[*target]struct{}),
		waiting:   make(map[string][]resource.Key),
		requests:  requests{current: make(map[targetResource]struct{}), unchecked: make(map[targetResource]struct{})},
		failing:   failing{keys: make(map[string]map[resource.Key]struct{}), changed: make(map[string]struct{})},
	}
}

// Proposal is a change of resources.
type Proposal struct {
	// Updates are of the source From.
	From    resource.Source
	Updates []resource.Update
	// Overlays has all overlays of each cluster whose overlays change, the oldest first.
	Overlays map[string][]*resource.Overlay
	// Hosted are the targets to host (true), or no longer (false), as [Resolver.Host] and [Resolver.Unhost] do it.
	Hosted map[string]bool
}

// Accept makes the changes of a proposal at once, and returns the changed targets by name.
func (r *Resolver) Accept(p *Proposal) []TargetConfig {
	b := batch{byHand: p.From.ByHand()}
	r.apply(p.From, p.Updates, &b)
	for cluster, list := range p.Overlays {
		r.applyOverlays(cluster, list, &b)
	}
	for name, hosted := range p.Hosted {
		r.demand(name, hosted, &b)
	}
	return r.settle(&b)
}

// Apply applies the updates of a source, and returns the changed targets by name. It ignores
// updates of a management server for resources that are not requested.
func (r *Resolver) Apply(s resource.Source, updates []resource.Update) []TargetConfig {
	return r.Accept(&Proposal{From: s, Updates: updates})
}

func (r *Resolver) apply(s resource.Source, updates []resource.Update, b *batch) {
	for i := range updates {
		yield(i)
		u := &updates[i]
		if s == resource.SourceADS {
			if !r.accepts(targetResource{u.Target, u.Key}) {
				continue
			}
			r.take(s, u)
			t := r.targets[u.Target]
			b.touch(t, r.needs[u.Key].Get(t))
			if r.layers.covered(u.Key) {
				r.recheck(t, u.Key)
			}
			r.updateCovered(u.Key)
			continue
		}
		covered := r.layers.covered(u.Key)
		r.take(s, u)
		r.touch(u.Key, b)
		r.updateCovered(u.Key)
		now := r.layers.covered(u.Key)
		if covered != now || now && s == resource.SourceCache {
			for t := range r.needs[u.Key].All() {
				r.recheck(t, u.Key)
				if _, failed := r.failing.keys[t.name][u.Key]; failed { // it came into use, or went out of use
					r.failing.changed[t.name] = struct{}{}
				}
			}
		}
		if s.ByHand() {
			r.updateHosted(u.Key, b)
		}
	}
}

func (r *Resolver) take(s resource.Source, u *resource.Update) {
	if u.Key.Type.URL() == "" {
		return
	}
	is := &result{
		Value: u.Value, Err: u.Err, Server: u.Server, Version: u.Version, Updated: u.Updated,
		Fallback: u.Fallback, Final: u.Final, source: s,
	}
	switch {
	case u.Raw != nil:
		is.Err = nil
		if !is.good() {
			var item resource.Item
			item, is.Err = r.decode(s, u.Item)
			is.Value = item.Value
		}
		if is.Assignment != nil {
			// Trees find equal parts by pointers: reuse those of the assignment in use.
			before := r.layers.top(r.example(s, u), u.Key)
			is.Assignment = r.reuse(is.Assignment, before.Assignment)
		}
	case u.Err == nil:
		is = nil
	default:
		was := r.layers.get(s, u.Target, u.Key)
		is.errSince, is.rejected = time.Now(), s == resource.SourceFile
		if was != nil && text(was.Err) == text(u.Err) {
			is.errSince = was.errSince
		}
		if u.Ambient && was.good() {
			failed := *was
			failed.Err, failed.errSince, failed.rejected = is.Err, is.errSince, is.rejected
			is = &failed
		}
	}
	r.layers.put(s, u.Target, u.Key, is)
	if s == resource.SourceADS {
		r.recordError(u.Target, u.Key, is != nil && is.Err != nil)
	}
}

func (r *Resolver) decode(s resource.Source, i resource.Item) (resource.Item, error) {
	o := decode.Options{
		Origin: decode.FromServer, Format: decode.FormatProtobuf, Stored: true, Name: i.Key.Name,
		Policies: r.options.Policies, Certificates: r.options.Certificates,
	}
	if s.ByHand() {
		o.Origin = decode.ByHand
	}
	i, _, err := decode.Item(i, o)
	return i, err
}

// example returns a target that uses the assignment of an update.
func (r *Resolver) example(s resource.Source, u *resource.Update) string {
	if s == resource.SourceADS {
		return u.Target
	}
	for t := range r.needs[u.Key].All() {
		return t.name
	}
	return ""
}

// reuse is Assignment.Reuse. Consecutive updates of several targets share the result.
func (r *Resolver) reuse(is, before *resource.Assignment) *resource.Assignment {
	if last := &r.reused; last.is != is || last.before != before {
		*last = reused{is: is, before: before, value: is.Reuse(before)}
	}
	return r.reused.value
}

type reused struct{ is, before, value *resource.Assignment }

// Value returns the key of a resource with its value of a source, without Raw; without a
// value if the source has no usable one. Only SourceADS uses target.
func (r *Resolver) Value(s resource.Source, target string, key resource.Key) resource.Item {
	item := resource.Item{Key: key}
	if is := r.layers.get(s, target, key); is != nil {
		item.Value = is.Value
	}
	return item
}

// HostAddresses returns the last addresses of a DNS name.
func (r *Resolver) HostAddresses(host string) []string {
	if is := r.hosts[host]; is.good() {
		return is.Assignment.Localities[0].Endpoints[0].Addresses
	}
	return nil
}

// updateHosted updates the targets that a resource of a push or file hosts.
func (r *Resolver) updateHosted(key resource.Key, b *batch) {
	switch key.Type {
	case resource.TypeListener:
		r.host(xdsScheme+key.Name, b)
	case resource.TypeCluster:
		r.host(Target(key.Name), b)
	case resource.TypeAssignment:
		// It may also replace the Cluster. A new target has it already.
		r.touch(resource.Key{Type: resource.TypeCluster, Name: key.Name}, b)
		r.host(Target(key.Name), b)
	}
}

// ApplyHost applies the addresses of a DNS name. With an error, the last ones stay.
func (r *Resolver) ApplyHost(host string, addresses []string, err error) []TargetConfig {
	is := &result{source: resource.SourceDNS}
	if was := r.hosts[host]; was != nil {
		*is = *was
	}
	if is.Err = err; err == nil {
		if now := hostAssignment(host, addresses).Reuse(is.Assignment); now != is.Assignment {
			is.Assignment, is.Updated = now, time.Now()
		}
	}
	r.hosts[host] = is
	var b batch
	r.touch(resource.Key{Type: typeHost, Name: host}, &b)
	return r.settle(&b)
}

// hostAssignment returns the assignment of a LOGICAL_DNS cluster: all addresses in one endpoint.
func hostAssignment(host string, addresses []string) *resource.Assignment {
	e := &resource.Endpoint{Addresses: addresses, Hostname: host, Weight: 1}
	return &resource.Assignment{
		Name:       host,
		Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}},
	}
}

// Hosts returns the DNS names that clusters need, as "host:port". It drops the addresses of
// other names.
func (r *Resolver) Hosts() map[string]bool {
	maps.DeleteFunc(r.hosts, func(host string, _ *result) bool { return !r.hostNames[host] })
	return maps.Clone(r.hostNames)
}

// Host hosts a target such as "cluster:NAME", "xds:///NAME" or "xds://AUTHORITY/NAME" until
// Unhost.
func (r *Resolver) Host(target string) []TargetConfig {
	return r.Accept(&Proposal{Hosted: map[string]bool{target: true}})
}

// Unhost reverts Host. The target stays if a push or a file hosts it.
func (r *Resolver) Unhost(target string) []TargetConfig {
	return r.Accept(&Proposal{Hosted: map[string]bool{target: false}})
}

func (r *Resolver) demand(name string, hosted bool, b *batch) {
	t := r.targets[name]
	if t == nil && !hosted {
		return
	}
	if t == nil {
		t = &target{name: name}
		r.add(t, b)
	}
	t.demanded = hosted
	b.publish(t)
}

// batch has what a call affects.
type batch struct {
	byHand  bool                 // people make the change
	roots   map[*root]struct{}   // to resolve
	routed  map[*target]struct{} // to route
	targets map[*target]struct{} // to publish
}

// touch adds all uses of a changed resource.
func (r *Resolver) touch(key resource.Key, b *batch) {
	for t, n := range r.needs[key].All() {
		b.touch(t, n)
	}
	for t := range r.held[key] {
		b.publish(t)
	}
}

// touch adds the uses of a changed resource by a target; n may be nil.
func (b *batch) touch(t *target, n *need) {
	if n == nil {
		return
	}
	for x := range n.roots.All() {
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

// yieldUpdates is the number of updates, or of targets, after which other goroutines may run: about
// 0.5 ms of work.
const yieldUpdates = 32

// yield lets other goroutines run in a long loop, of which i counts the iterations.
func yield(i int) {
	if i%yieldUpdates == yieldUpdates-1 {
		runtime.Gosched()
	}
}

// settle updates what a batch affects, and returns the changed targets by name.
func (r *Resolver) settle(b *batch) []TargetConfig {
	for x := range b.roots {
		r.traced(x)
		if r.resolve(x) && x.chosen || x.target.waits() {
			b.publish(x.target)
		}
		r.traced(x)
	}
	for t := range b.routed {
		r.route(t)
		b.publish(t)
	}
	var changes []TargetConfig
	for i, t := range slices.SortedFunc(maps.Keys(b.targets), func(a, b *target) int { return strings.Compare(a.name, b.name) }) {
		yield(i)
		if c, ok := r.publish(t, b); ok {
			changes = append(changes, c)
		}
	}
	return changes
}
