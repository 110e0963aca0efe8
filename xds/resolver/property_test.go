package resolver_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// model is what a resolver was told, and what it has answered.
type model struct {
	server   bool
	content  map[resource.Source]map[resource.Key]resolver.Update // the last value, and the last error, of each
	hosts    map[string]bool                                      // names that resolved
	demanded map[string]bool
	asked    map[resource.Key]bool
	current  map[string]*resource.Config
	routed   map[string][]string // the roots of the newest routes that were known
}

func newModel(o resolver.Options) *model {
	m := &model{
		server:  o.Server,
		content: make(map[resource.Source]map[resource.Key]resolver.Update), hosts: make(map[string]bool),
		demanded: make(map[string]bool), asked: make(map[resource.Key]bool),
		current: make(map[string]*resource.Config), routed: make(map[string][]string),
	}
	for _, s := range resource.Sources {
		m.content[s] = make(map[resource.Key]resolver.Update)
	}
	return m
}

// top is what counts for a key: with a value, or an error, or neither.
func (m *model) top(key resource.Key) resolver.Update {
	for _, s := range []resource.Source{push, file} {
		if u, ok := m.content[s][key]; ok {
			return u
		}
	}
	server, kept := m.content[ads][key], m.content[cache][key]
	_, gone := errors.AsType[*client.NotFoundError](server.Err)
	if server.Raw == nil && kept.Raw != nil && !gone {
		return kept
	}
	return server
}

func (m *model) covered(key resource.Key) bool {
	_, pushed := m.content[push][key]
	_, filed := m.content[file][key]
	return pushed || filed
}

// take is what Apply does to the content.
func (m *model) take(s resource.Source, u resolver.Update) {
	was := m.content[s][u.Key]
	switch {
	case u.Raw == nil && u.Err == nil:
		delete(m.content[s], u.Key)
	case u.Raw == nil && u.Ambient && was.Raw != nil:
		was.Err = u.Err
		m.content[s][u.Key] = was
	default:
		m.content[s][u.Key] = u
	}
}

// targets are those that exist.
func (m *model) targets() map[string]bool {
	all := maps.Clone(m.demanded)
	for _, s := range []resource.Source{push, file} {
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

// follow notes the routes of the targets that exist.
func (m *model) follow() {
	for target := range m.targets() {
		name, ok := strings.CutPrefix(target, "xds:///")
		if !ok {
			continue
		}
		from := m.top(resource.Key{Type: resource.TypeListener, Name: name})
		if from.Listener != nil && from.Listener.Routes == nil {
			from = m.top(resource.Key{Type: resource.TypeRoutes, Name: from.Listener.RouteName})
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

// needs is everything that targets need, found from scratch. DNS names have no
// type.
func (m *model) needs() map[resource.Key]bool {
	out := make(map[resource.Key]bool)
	exist := m.targets()
	for target := range exist {
		if cluster, ok := resolver.Cluster(target); ok {
			m.closure(cluster, 0, make(map[string]bool), out)
			continue
		}
		key := resource.Key{Type: resource.TypeListener, Name: strings.TrimPrefix(target, "xds:///")}
		out[key] = true
		if l := m.top(key).Listener; l != nil && l.Routes == nil {
			out[resource.Key{Type: resource.TypeRoutes, Name: l.RouteName}] = true
		}
		roots := slices.Clone(m.routed[target])
		if c := m.current[target]; c != nil {
			roots = append(roots, c.Roots...)
		}
		for _, cluster := range roots {
			m.closure(cluster, 0, make(map[string]bool), out)
		}
	}
	return out
}

func (m *model) closure(cluster string, depth int, seen map[string]bool, out map[resource.Key]bool) {
	if depth >= 16 || seen[cluster] {
		return
	}
	seen[cluster] = true
	key := resource.Key{Type: resource.TypeCluster, Name: cluster}
	out[key] = true
	own := resource.Key{Type: resource.TypeAssignment, Name: cluster}
	c := m.top(key).Cluster
	switch {
	case c == nil && m.covered(key): // it cannot be read
	case c == nil && m.covered(own):
		out[own] = true
	case c == nil:
	case c.Type == resource.ClusterLogicalDNS:
		out[resource.Key{Name: c.DNSHostname}] = true
	case c.Type == resource.ClusterAggregate:
		for _, leaf := range c.Leaves {
			m.closure(leaf, depth+1, seen, out)
		}
	default:
		out[resource.Key{Type: resource.TypeAssignment, Name: c.AssignmentName()}] = true
	}
}

// wanted is what a management server is to be asked for.
func (m *model) wanted() map[resource.Key]bool {
	out := m.needs()
	maps.DeleteFunc(out, func(key resource.Key, _ bool) bool { return key.Type == "" || m.covered(key) })
	return out
}

func (m *model) note(changes []resolver.Change) {
	for _, c := range changes {
		if c.Config == nil {
			delete(m.current, c.Target)
			delete(m.routed, c.Target)
		} else {
			m.current[c.Target] = c.Config
		}
	}
}

// scratch is what the configs would be of targets that begin only now, when
// everything is told.
func (m *model) scratch(o resolver.Options) map[string]*resource.Config {
	o.ListenerName = func(target string) string { return strings.TrimPrefix(target, "//now/") }
	r, fresh := resolver.New(o), newModel(o)
	for target := range m.demanded {
		if cluster, ok := resolver.Cluster(target); ok {
			fresh.note(r.Demand(cluster))
		} else {
			fresh.note(r.Host(target))
		}
	}
	for name, ok := range m.hosts {
		fresh.note(r.ApplyHost(name, []string{"10.0.0.1:80"}, nil))
		if !ok {
			fresh.note(r.ApplyHost(name, nil, errAway))
		}
	}
	for range 20 { // each time it asks for more
		for _, s := range []resource.Source{push, file, cache, ads} { // no error before what it leaves in use
			var updates []resolver.Update
			for _, u := range m.content[s] {
				if u.Raw == nil || u.Err == nil {
					updates = append(updates, u)
					continue
				}
				good, bad := u, without(u)
				good.Err = nil
				bad.Err, bad.Ambient = u.Err, true
				updates = append(updates, good, bad)
			}
			fresh.note(r.Apply(s, updates))
		}
	}
	out := make(map[string]*resource.Config)
	for target := range m.targets() {
		var changes []resolver.Change
		if cluster, ok := resolver.Cluster(target); ok {
			changes = r.Apply(push, []resolver.Update{inline("now "+cluster, "*: "+cluster)})
		} else {
			changes = r.Host("xds://now/" + strings.TrimPrefix(target, "xds:///"))
		}
		out[target] = changes[0].Config
	}
	return out
}

var errAway = errors.New("away")

// picture tells all that a config says of a target but its name, and when.
func picture(target string, c *resource.Config) string {
	var b strings.Builder
	if _, ok := resolver.Cluster(target); !ok {
		fmt.Fprint(&b, c.Err, c.RouteName, c.ListenerFrom, c.RoutesFrom)
		if c.VirtualHost != nil {
			fmt.Fprint(&b, c.VirtualHost.Name, c.Listener.Name)
		}
	}
	fmt.Fprint(&b, c.Roots)
	for _, name := range slices.Sorted(maps.Keys(c.Clusters)) {
		cc := *c.Clusters[name]
		if cc.AssignmentFrom.Source == resource.SourceDNS {
			cc.AssignmentFrom = resource.Provenance{}
		}
		fmt.Fprintf(&b, "\n%s: %v %v %v %v %v %v", name, cc.Err, cc.Pending, cc.Leaves, cc.AssignmentErr, cc.ClusterFrom, cc.AssignmentFrom)
		if cc.Cluster != nil {
			fmt.Fprint(&b, cc.Cluster.Name, cc.Cluster.Type, cc.Cluster.EDSServiceName, cc.Cluster.DNSHostname, cc.Cluster.Leaves)
		}
		if cc.Assignment != nil {
			fmt.Fprint(&b, cc.Assignment.Name, cc.Assignment.Localities[0].Endpoints[0].Addresses)
		}
	}
	return b.String()
}

// randomUpdate is one of a few resources, that comes or goes or fails.
func randomUpdate(t *rapid.T, s resource.Source, version int) resolver.Update {
	clusters := []string{"a", "b", "c", "d"}
	name := rapid.SampledFrom(clusters)
	var u resolver.Update
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
			Key:        resource.Key{Type: resource.TypeAssignment, Name: service},
			Assignment: &resource.Assignment{Name: service, Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}}},
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
		}
	case 4:
		if s == ads {
			out = ambient(u)
		}
	}
	return out
}

// TestConfigsAndWantsHoldWhatWasTold: whatever is told, and in whichever order,
// what a server is asked for is what targets need and nobody covers, and each
// config is what a target that begins only then would have.
func TestConfigsAndWantsHoldWhatWasTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := resolver.Options{Server: rapid.Bool().Draw(t, "server")}
		r, m := resolver.New(options), newModel(options)
		for version := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				target := rapid.SampledFrom([]string{"xds:///t1", "xds:///t2", "cluster:a", "cluster:c"}).Draw(t, "target")
				m.demanded[target] = rapid.Bool().Draw(t, "hosted")
				cluster, ok := resolver.Cluster(target)
				switch {
				case ok && m.demanded[target]:
					m.note(r.Demand(cluster))
				case ok:
					m.note(r.Release(cluster))
				case m.demanded[target]:
					m.note(r.Host(target))
				default:
					m.note(r.Unhost(target))
				}
				maps.DeleteFunc(m.demanded, func(_ string, is bool) bool { return !is })
			case 1:
				name := rapid.SampledFrom([]string{"h1:80", "h2:80"}).Draw(t, "host")
				if m.hosts[name] = rapid.Bool().Draw(t, "resolves"); !m.hosts[name] {
					m.note(r.ApplyHost(name, []string{"10.0.0.1:80"}, nil)) // and not any more
					m.note(r.ApplyHost(name, nil, errAway))
				} else {
					m.note(r.ApplyHost(name, []string{"10.0.0.1:80"}, nil))
				}
			default:
				s := rapid.SampledFrom([]resource.Source{push, file, ads, ads, ads, cache}).Draw(t, "source")
				if s == ads && !options.Server {
					s = push
				}
				var updates []resolver.Update
				wanted := m.wanted()
				for i := range rapid.IntRange(1, 3).Draw(t, "updates") {
					u := randomUpdate(t, s, 10*version+i)
					updates = append(updates, u)
					if s != ads || m.asked[u.Key] || wanted[u.Key] {
						m.take(s, u)
					}
				}
				m.note(r.Apply(s, updates))
			}
			m.follow()
			if rapid.IntRange(0, 3).Draw(t, "asks") > 0 {
				m.check(t, r, options)
			}
		}
		m.check(t, r, options)
	})
}

func (m *model) check(t *rapid.T, r *resolver.Resolver, o resolver.Options) {
	add, drop := r.Wanted()
	for _, key := range add {
		if m.asked[key] {
			t.Fatalf("asks for %s again", key)
		}
		m.asked[key] = true
	}
	for _, key := range drop {
		if !m.asked[key] {
			t.Fatalf("does not ask for %s any more, for which it did not ask", key)
		}
		delete(m.asked, key)
		delete(m.content[ads], key)
	}
	wanted := m.wanted()
	if !o.Server {
		clear(wanted)
	}
	if !maps.Equal(m.asked, wanted) {
		t.Fatalf("asks for %v, should for %v", m.asked, wanted)
	}
	hosts := make(map[string]bool)
	for key := range m.needs() {
		if key.Type == "" {
			hosts[key.Name] = true
		}
	}
	if got := r.Hosts(); !maps.Equal(got, hosts) {
		t.Fatalf("looks up %v, should %v", got, hosts)
	}
	maps.DeleteFunc(m.hosts, func(name string, _ bool) bool { return !hosts[name] })

	fresh := m.scratch(o)
	if got, want := slices.Sorted(maps.Keys(m.current)), slices.Sorted(maps.Keys(m.targets())); !slices.Equal(got, want) {
		t.Fatalf("targets %v, should be %v", got, want)
	}
	for target, c := range m.current {
		want := fresh[target]
		if want.Pending { // then what there was before stays
			continue
		}
		if got, want := picture(target, c), picture(target, want); got != want {
			t.Fatalf("%s is\n%s\nshould be\n%s", target, got, want)
		}
	}
}
