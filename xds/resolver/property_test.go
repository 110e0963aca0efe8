package resolver_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// targetResource is a resource that a management server is asked for, for a target.
type targetResource struct {
	target string
	key    resource.Key
}

// model has the updates and the results of a resolver.
type model struct {
	server   bool
	content  map[resource.Source]map[resource.Key]resource.Update // the last value, and the last error, of each
	received map[targetResource]resource.Update                   // the same of a management server
	hosts    map[string]bool                                      // names that resolved
	demanded map[string]bool
	asked    map[targetResource]bool
	current  map[string]*resource.Config
	routed   map[string][]string // the roots of the newest routes that were known
	overlaid map[string][]*resource.Overlay
}

// byHand are the sources whose resources people write.
var byHand = slices.DeleteFunc(slices.Clone(resource.Sources[:]), func(s resource.Source) bool { return !s.ByHand() })

func newModel(o resolver.Options) *model {
	m := &model{
		server:  o.Server,
		content: make(map[resource.Source]map[resource.Key]resource.Update), received: make(map[targetResource]resource.Update),
		hosts: make(map[string]bool), demanded: make(map[string]bool), asked: make(map[targetResource]bool),
		current: make(map[string]*resource.Config), routed: make(map[string][]string), overlaid: make(map[string][]*resource.Overlay),
	}
	for _, s := range resource.Sources {
		m.content[s] = make(map[resource.Key]resource.Update)
	}
	return m
}

// top is what counts for a key and a target: with a value, or an error, or neither.
func (m *model) top(target string, key resource.Key) resource.Update {
	for _, s := range byHand {
		if u, ok := m.content[s][key]; ok {
			return u
		}
	}
	server, kept := m.received[targetResource{target, key}], m.content[cache][key]
	if server.Raw == nil && kept.Raw != nil && (!server.Final || server.Fallback) {
		return kept
	}
	return server
}

func (m *model) covered(key resource.Key) bool {
	return slices.ContainsFunc(byHand, func(s resource.Source) bool {
		_, has := m.content[s][key]
		return has
	})
}

// take is what Apply does to the content.
func (m *model) take(s resource.Source, u resource.Update) {
	if s == ads {
		replace(m.received, targetResource{u.Target, u.Key}, u)
		return
	}
	replace(m.content[s], u.Key, u)
}

func replace[K comparable](content map[K]resource.Update, k K, u resource.Update) {
	was := content[k]
	switch {
	case u.Raw == nil && u.Err == nil:
		delete(content, k)
	case u.Raw == nil && u.Ambient && was.Raw != nil:
		was.Err = u.Err
		content[k] = was
	default:
		content[k] = u
	}
}

// targets returns the hosted targets.
func (m *model) targets() map[string]bool {
	all := maps.Clone(m.demanded)
	for _, s := range byHand {
		for key := range m.content[s] {
			switch key.Type {
			case resource.TypeListener:
				all["xds:///"+key.Name] = true
			case resource.TypeCluster, resource.TypeAssignment:
				all[resolver.Target(key.Name)] = true
			}
		}
	}
	return all
}

// follow updates the routes of the targets.
func (m *model) follow() {
	for target := range m.targets() {
		name, ok := strings.CutPrefix(target, "xds:///")
		if !ok {
			continue
		}
		from := m.top(target, resource.Key{Type: resource.TypeListener, Name: name})
		if from.Listener != nil && from.Listener.Routes == nil {
			from = m.top(target, resource.Key{Type: resource.TypeRoutes, Name: from.Listener.RouteName})
		} else if from.Listener != nil {
			from.Routes = from.Listener.Routes
		}
		switch {
		case from.Routes == nil && (from.Err != nil || !m.server):
			m.routed[target] = nil
		case from.Routes != nil:
			m.routed[target] = nil
			if h := from.Routes.VirtualHost(name); h != nil {
				for _, r := range h.Routes {
					for _, c := range r.Clusters {
						m.routed[target] = append(m.routed[target], c.Name)
					}
				}
			}
		}
	}
}

// needs returns everything that targets need. DNS names have no type.
func (m *model) needs() map[targetResource]bool {
	out := make(map[targetResource]bool)
	exist := m.targets()
	for target := range exist {
		if cluster, ok := resolver.Cluster(target); ok {
			m.closure(target, cluster, 0, make(map[string]bool), out)
			continue
		}
		key := resource.Key{Type: resource.TypeListener, Name: strings.TrimPrefix(target, "xds:///")}
		out[targetResource{target, key}] = true
		if l := m.top(target, key).Listener; l != nil && l.Routes == nil {
			out[targetResource{target, resource.Key{Type: resource.TypeRoutes, Name: l.RouteName}}] = true
		}
		roots := slices.Clone(m.routed[target])
		if c := m.current[target]; c != nil {
			roots = append(roots, c.Roots...)
		}
		for _, cluster := range roots {
			m.closure(target, cluster, 0, make(map[string]bool), out)
		}
	}
	return out
}

func (m *model) closure(target, cluster string, depth int, seen map[string]bool, out map[targetResource]bool) {
	if depth >= 16 || seen[cluster] {
		return
	}
	seen[cluster] = true
	key := resource.Key{Type: resource.TypeCluster, Name: cluster}
	out[targetResource{target, key}] = true
	own := resource.Key{Type: resource.TypeAssignment, Name: cluster}
	c := m.top(target, key).Cluster
	switch {
	case c == nil && m.covered(key): // it is invalid
	case c == nil && m.covered(own):
		out[targetResource{target, own}] = true
	case c == nil:
	case c.Type == resource.ClusterLogicalDNS:
		out[targetResource{target, resource.Key{Name: c.DNSHostname}}] = true
	case c.Type == resource.ClusterAggregate:
		for _, leaf := range c.Leaves {
			m.closure(target, leaf, depth+1, seen, out)
		}
	default:
		out[targetResource{target, resource.Key{Type: resource.TypeAssignment, Name: c.AssignmentName()}}] = true
	}
}

// wanted returns the resources to request.
func (m *model) wanted() map[targetResource]bool {
	out := m.needs()
	maps.DeleteFunc(out, func(w targetResource, _ bool) bool { return w.key.Type == "" || m.covered(w.key) && !m.watched(w) })
	return out
}

// watched reports whether what covers a resource covers one of a management server.
func (m *model) watched(w targetResource) bool {
	return (w.key.Type == resource.TypeCluster || w.key.Type == resource.TypeAssignment) &&
		(m.received[w].Raw != nil || m.content[cache][w.key].Raw != nil)
}

func (m *model) note(changes []resolver.TargetConfig) {
	for _, c := range changes {
		if c.Config == nil {
			delete(m.current, c.Target)
			delete(m.routed, c.Target)
		} else {
			m.current[c.Target] = c.Config
			if c.Adopted {
				m.demanded[c.Target] = true
			}
		}
	}
}

// scratch returns the configs of new targets in a resolver with all updates.
func (m *model) scratch(o resolver.Options) map[string]*resource.Config {
	out := make(map[string]*resource.Config)
	for target := range m.targets() {
		out[target] = m.alone(o, target)
	}
	return out
}

// alone returns the config of a new target in a resolver without other targets that need a
// management server.
func (m *model) alone(o resolver.Options, target string) *resource.Config {
	o.ListenerName = func(target string) string { return strings.TrimPrefix(target, "//now/") }
	r := resolver.New(o)
	for name, ok := range m.hosts {
		r.ApplyHost(name, []string{"10.0.0.1:80"}, nil)
		if !ok {
			r.ApplyHost(name, nil, errAway)
		}
	}
	for _, s := range slices.DeleteFunc(slices.Clone(resource.Sources[:]), func(s resource.Source) bool { return s == ads }) {
		r.Apply(s, parted(slices.Collect(maps.Values(m.content[s]))))
	}
	for cluster, list := range m.overlaid {
		r.ApplyOverlays(cluster, list)
	}
	name := "xds://now/" + strings.TrimPrefix(target, "xds:///")
	begin := func() *resource.Config { return r.Host(name)[0].Config }
	end := func() { r.Unhost(name) }
	if cluster, ok := resolver.Cluster(target); ok {
		name = "xds:///now " + cluster
		listener := inline("now "+cluster, "*: "+cluster)
		begin = func() *resource.Config { return r.Apply(push, []resource.Update{listener})[0].Config }
		end = func() { r.Apply(push, []resource.Update{without(listener)}) }
	}
	begin()
	for range 20 { // each time it asks for more
		var updates []resource.Update
		for w, u := range m.received {
			if w.target == target {
				u.Target = name
				updates = append(updates, u)
			}
		}
		r.Apply(ads, parted(updates))
	}
	end() // the updates stay until Wanted
	return begin()
}

// parted splits each update with a value and an error in two, the value first.
func parted(all []resource.Update) []resource.Update {
	var out []resource.Update
	for _, u := range all {
		if u.Raw == nil || u.Err == nil {
			out = append(out, u)
			continue
		}
		good, bad := u, without(u)
		good.Err = nil
		bad.Target, bad.Err, bad.Ambient = u.Target, u.Err, true
		out = append(out, good, bad)
	}
	return out
}

var errAway = errors.New("away")

// picture describes a config without the name of the target and times.
func picture(target string, c *resource.Config) string {
	var b strings.Builder
	if _, ok := resolver.Cluster(target); !ok {
		fmt.Fprint(&b, c.Err)
		if r := c.Routing; r != nil {
			fmt.Fprint(&b, r.RouteName, r.ListenerFrom, r.RoutesFrom, r.VirtualHost.Name, r.Listener.Name)
		}
	}
	fmt.Fprint(&b, c.Roots)
	clusters := maps.Collect(c.Clusters.All())
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		cc := *clusters[name]
		if cc.AssignmentFrom.Source == resource.SourceDNS {
			cc.AssignmentFrom = resource.Provenance{}
		}
		fmt.Fprintf(&b, "\n%s: %v %v %v %v %v %v", name, cc.Err, cc.Pending, cc.Leaves, cc.AssignmentErr, cc.ClusterFrom, cc.AssignmentFrom)
		if cc.Cluster != nil {
			fmt.Fprint(&b, cc.Cluster.Name, cc.Cluster.Type, cc.Cluster.EDSServiceName, cc.Cluster.DNSHostname, cc.Cluster.Leaves, cc.Cluster.MaxRequests)
		}
		if cc.Assignment != nil {
			fmt.Fprint(&b, cc.Assignment.Name, cc.Assignment.Localities[0].Endpoints[0].Addresses, cc.Assignment.Usable())
		}
	}
	return b.String()
}

// randomUpdate is one of a few resources, that comes or goes or fails.
func randomUpdate(t *rapid.T, s resource.Source, version int) resource.Update {
	clusters := []string{"a", "b", "c", "d"}
	name := rapid.SampledFrom(clusters)
	var u resource.Update
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		listener := rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "listener")
		u = lds(listener, rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "routes"))
		if rapid.Bool().Draw(t, "inline") {
			u = inline(listener, "*: "+name.Draw(t, "to"))
		}
	case 1:
		to := strings.Join(rapid.SliceOfN(name, 0, 3).Draw(t, "to"), " ")
		u = rds(rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "name"), rapid.SampledFrom([]string{"*: ", "t1: "}).Draw(t, "domain")+to)
	case 2, 3:
		c := resource.DefaultCluster(name.Draw(t, "name"))
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			c.Type, c.DNSHostname = resource.ClusterLogicalDNS, rapid.SampledFrom([]string{"h1:80", "h2:80"}).Draw(t, "host")
		case 1:
			c.Type, c.Leaves = resource.ClusterAggregate, rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(t, "leaves")
		default:
			c.EDSServiceName = rapid.SampledFrom([]string{"", "a", "s"}).Draw(t, "service")
		}
		u = made(c)
	default:
		service := rapid.SampledFrom([]string{"a", "b", "s"}).Draw(t, "service")
		e := &resource.Endpoint{Addresses: []string{rapid.SampledFrom([]string{"x:1", "y:1"}).Draw(t, "address")}}
		u = item(resource.Item{
			Key:   resource.Key{Type: resource.TypeAssignment, Name: service},
			Value: resource.Value{Assignment: &resource.Assignment{Name: service, Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}}}},
		})
	}
	u.Version = fmt.Sprint(version)
	failures := 2 // of an own kind: no more there
	if s == ads {
		failures = 5
	}
	out := u
	switch rapid.IntRange(0, 6+failures).Draw(t, "what") {
	case 0, 1:
		out = without(u)
	case 2:
		out = without(u)
		out.Err = fmt.Errorf("refused %s", u.Key)
		if s != ads {
			out = u
		}
	case 3:
		if s == ads {
			out = notFound(u)
			out.Fallback, out.Final = rapid.Bool().Draw(t, "fallback"), rapid.Bool().Draw(t, "final")
		}
	case 4:
		if s == ads {
			out = ambient(u)
		}
	}
	return out
}

// After random updates, the requests are the resources that targets need and that neither
// a push nor a file has, and each config equals that of a new target.
func TestRandomUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := resolver.Options{Server: rapid.Bool().Draw(t, "server")}
		r, m := resolver.New(options), newModel(options)
		for version := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				target := rapid.SampledFrom([]string{"xds:///t1", "xds:///t2", "cluster:a", "cluster:c"}).Draw(t, "target")
				m.demanded[target] = rapid.Bool().Draw(t, "hosted")
				foreseen := m.foresee(t, r.Preview(&resolver.Proposal{Hosted: map[string]bool{target: m.demanded[target]}}))
				if m.demanded[target] {
					m.note(r.Host(target))
				} else {
					m.note(r.Unhost(target))
				}
				m.compare(t, foreseen)
				maps.DeleteFunc(m.demanded, func(_ string, is bool) bool { return !is })
			case 1:
				name := rapid.SampledFrom([]string{"h1:80", "h2:80"}).Draw(t, "host")
				if m.hosts[name] = rapid.Bool().Draw(t, "resolves"); !m.hosts[name] {
					m.note(r.ApplyHost(name, []string{"10.0.0.1:80"}, nil)) // and not any more
					m.note(r.ApplyHost(name, nil, errAway))
				} else {
					m.note(r.ApplyHost(name, []string{"10.0.0.1:80"}, nil))
				}
			case 2:
				cluster := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "overlaid")
				m.overlaid[cluster] = rapid.SampledFrom([][]*resource.Overlay{
					nil,
					{{Kind: resource.OverlayDrain, Endpoint: "x:1"}},
					{{Kind: resource.OverlayMaxRequests, MaxRequests: 7}, {Kind: resource.OverlayDrain, Endpoint: "y:1"}},
				}).Draw(t, "overlays")
				foreseen := m.foresee(t, r.Preview(&resolver.Proposal{Overlays: map[string][]*resource.Overlay{cluster: m.overlaid[cluster]}}))
				m.note(r.ApplyOverlays(cluster, m.overlaid[cluster]))
				m.compare(t, foreseen)
			default:
				s := rapid.SampledFrom(append(resource.Sources[:], ads, ads)).Draw(t, "source")
				if s == ads && !options.Server {
					s = push
				}
				var updates []resource.Update
				wanted := m.wanted()
				for i := range rapid.IntRange(1, 3).Draw(t, "updates") {
					u := randomUpdate(t, s, 10*version+i)
					if s == ads {
						u.Target = rapid.SampledFrom([]string{"xds:///t1", "xds:///t2", "cluster:a", "cluster:b", "cluster:c"}).Draw(t, "to")
					}
					updates = append(updates, u)
				}
				take := func(updates []resource.Update) {
					for _, u := range updates {
						if w := (targetResource{u.Target, u.Key}); s != ads || m.asked[w] || wanted[w] {
							m.take(s, u)
						}
					}
					m.note(r.Apply(s, updates))
				}
				if !s.ByHand() {
					take(updates)
					break
				}
				n := rapid.IntRange(0, len(updates)).Draw(t, "earlier")
				previews := r.Preview(&resolver.Proposal{From: s, Updates: updates[n:]}, &resolver.Proposal{From: s, Updates: updates[:n]})
				take(updates[:n])
				m.follow()
				foreseen := m.foresee(t, previews)
				take(updates[n:])
				m.compare(t, foreseen)
			}
			m.follow()
			if rapid.IntRange(0, 3).Draw(t, "asks") > 0 {
				m.check(t, r, options)
			}
		}
		m.check(t, r, options)
	})
}

// effect is picture without the sources.
func effect(target string, c *resource.Config) string {
	is := *c
	is.Clusters = few.Map[string, *resource.ClusterConfig]{}
	for name, cc := range c.Clusters.All() {
		out := *cc
		out.ClusterFrom, out.AssignmentFrom = resource.Provenance{}, resource.Provenance{}
		if out.Assignment != nil {
			out.AssignmentErr = nil
		}
		is.Clusters.Set(name, &out)
	}
	return picture(target, &is)
}

// one returns a picture of one cluster, which may be nil.
func one(cc *resource.ClusterConfig) string {
	var c resource.Config
	if cc != nil {
		c.Clusters.Set("", cc)
	}
	return picture("", &c)
}

// foresee returns a picture of each target as a proposal would make it. Once a target waits for nothing, its
// clusters are as they will be next.
func (m *model) foresee(t *rapid.T, all []resolver.Preview) map[string]string {
	out := make(map[string]string)
	for name, c := range m.current {
		out[name] = effect(name, c)
	}
	for _, is := range all {
		if was := m.current[is.Target]; is.Before != was && (is.Before == nil || was == nil || picture(is.Target, is.Before) != picture(is.Target, was)) {
			t.Fatalf("%s: Before is not its config", is.Target)
		}
		for _, x := range is.Touched {
			var now *resource.ClusterConfig
			if is.After != nil && slices.Contains(is.After.Roots, x.Cluster) {
				now = is.After.Clusters.Get(x.Cluster)
			}
			if !is.Waits && one(x.Next) != one(now) || x.Next != nil && len(x.Needs) == 0 {
				t.Fatalf("%s: %s is next %+v, after %+v, with the needs %v", is.Target, x.Cluster, x.Next, now, x.Needs)
			}
		}
		if is.After == nil {
			delete(out, is.Target)
		} else {
			out[is.Target] = effect(is.Target, is.After)
		}
	}
	return out
}

// compare compares the targets with what was foreseen.
func (m *model) compare(t *rapid.T, foreseen map[string]string) {
	if got, want := slices.Sorted(maps.Keys(m.current)), slices.Sorted(maps.Keys(foreseen)); !slices.Equal(got, want) {
		t.Fatalf("targets %v, foreseen: %v", got, want)
	}
	for name, c := range m.current {
		if got := effect(name, c); got != foreseen[name] {
			t.Fatalf("%s is\n%s\nforeseen:\n%s", name, got, foreseen[name])
		}
	}
}

func (m *model) check(t *rapid.T, r *resolver.Resolver, o resolver.Options) {
	for _, want := range r.Wanted() {
		for _, key := range want.Add {
			if m.asked[targetResource{want.Target, key}] {
				t.Fatalf("requests %s again, for %s", key, want.Target)
			}
			m.asked[targetResource{want.Target, key}] = true
		}
		for _, key := range want.Drop {
			if !m.asked[targetResource{want.Target, key}] {
				t.Fatalf("drops %s, which is not requested, for %s", key, want.Target)
			}
			delete(m.asked, targetResource{want.Target, key})
			delete(m.received, targetResource{want.Target, key})
		}
	}
	wanted := m.wanted()
	if !o.Server {
		clear(wanted)
	}
	if !maps.Equal(m.asked, wanted) {
		t.Fatalf("requests %v, want %v", m.asked, wanted)
	}
	hosts := make(map[string]bool)
	for w := range m.needs() {
		if w.key.Type == "" {
			hosts[w.key.Name] = true
		}
	}
	if got := r.Hosts(); !maps.Equal(got, hosts) {
		t.Fatalf("resolves %v, want %v", got, hosts)
	}
	maps.DeleteFunc(m.hosts, func(name string, _ bool) bool { return !hosts[name] })

	fresh := m.scratch(o)
	if got, want := slices.Sorted(maps.Keys(m.current)), slices.Sorted(maps.Keys(m.targets())); !slices.Equal(got, want) {
		t.Fatalf("targets %v, should be %v", got, want)
	}
	for target, c := range m.current {
		want := fresh[target]
		if pending(want) { // then what there was before stays, with the changes by hand
			m.checkHeld(t, r, c)
			continue
		}
		if waits := r.Waiting()[target]; waits != nil {
			t.Fatalf("%s waits for nothing, but %v", target, waits)
		}
		if got, want := picture(target, c), picture(target, want); got != want {
			t.Fatalf("%s is\n%s\nshould be\n%s", target, got, want)
		}
	}
}
