package resolver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	push  = resource.SourcePush
	file  = resource.SourceFile
	ads   = resource.SourceADS
	cache = resource.SourceCache
)

// item is a resource that no decoder has made.
func item(i resource.Item) resource.Update {
	i.Raw = []byte{1}
	return resource.Update{Item: i}
}

// lds is a Listener whose routes are another resource.
func lds(name, routes string) resource.Update {
	return item(resource.Item{
		Key:   resource.Key{Type: resource.TypeListener, Name: name},
		Value: resource.Value{Listener: &resource.Listener{Name: name, RouteName: routes}},
	})
}

// inline is a Listener with its routes: see routes.
func inline(name string, domains ...string) resource.Update {
	return item(resource.Item{
		Key:   resource.Key{Type: resource.TypeListener, Name: name},
		Value: resource.Value{Listener: &resource.Listener{Name: name, Routes: routes("", domains...)}},
	})
}

// rds is a RouteConfiguration: see routes.
func rds(name string, domains ...string) resource.Update {
	return item(resource.Item{Key: resource.Key{Type: resource.TypeRoutes, Name: name}, Value: resource.Value{Routes: routes(name, domains...)}})
}

// routes makes a virtual host of each "domain: a+b c": for the domain, with a route
// to a and b by weight and one to c.
func routes(name string, domains ...string) *resource.RouteConfiguration {
	c := &resource.RouteConfiguration{Name: name}
	for _, d := range domains {
		domain, all, _ := strings.Cut(d, ": ")
		h := &resource.VirtualHost{Name: domain, Domains: []string{domain}}
		for clusters := range strings.FieldsSeq(all) {
			r := &resource.Route{}
			for cluster := range strings.SplitSeq(clusters, "+") {
				r.Clusters = append(r.Clusters, resource.WeightedCluster{Name: cluster, Weight: 1})
			}
			h.Routes = append(h.Routes, r)
		}
		c.VirtualHosts = append(c.VirtualHosts, h)
	}
	return c
}

// without returns an update that removes the resource.
func without(u resource.Update) resource.Update {
	return resource.Update{Item: resource.Item{Key: u.Key}}
}

func notFound(u resource.Update) resource.Update {
	out := without(u)
	out.Err, out.Final = &client.ResourceError{Kind: client.ErrorDeleted, Key: u.Key, Server: "up:1"}, true
	return out
}

// missing is notFound of a server without fail_on_data_errors.
func missing(u resource.Update) resource.Update {
	out := notFound(u)
	out.Final = false
	return out
}

// byFallback is an update of a server to which another one is preferred.
func byFallback(u resource.Update) resource.Update {
	u.Fallback = true
	return u
}

func silent(u resource.Update) resource.Update {
	out := without(u)
	out.Err = &client.ResourceError{Kind: client.ErrorSilent, Key: u.Key, Server: "up:1"}
	return out
}

func unreachable(u resource.Update) resource.Update {
	out := without(u)
	out.Err = &client.ResourceError{Kind: client.ErrorUnreachable, Server: "up:1", Err: errors.New("refused")}
	return out
}

func ambient(u resource.Update) resource.Update {
	out := unreachable(u)
	out.Ambient = true
	return out
}

const (
	doesNotExist = ` does not exist: management server "up:1" no longer sends it`
	sentNothing  = ` is not known to exist: management server "up:1", which is connected, has sent nothing within 15s`
	cannotReach  = `management server "up:1" cannot be reached: refused`
)

// step is something that happens to a resolver, which targets change by it, and
// what a management server is asked for then.
type step struct {
	do   func(*resolver.Resolver) []resolver.TargetConfig
	want string
	asks string
}

func apply(s resource.Source, updates ...resource.Update) func(*resolver.Resolver) []resolver.TargetConfig {
	return func(r *resolver.Resolver) []resolver.TargetConfig { return r.Apply(s, toAll(r, s, updates)) }
}

// toAll sends updates of a management server to all targets that request them.
func toAll(r *resolver.Resolver, s resource.Source, updates []resource.Update) []resource.Update {
	if s != ads {
		return updates
	}
	var out []resource.Update
	for _, u := range updates {
		for _, u.Target = range r.Asking(u.Key) {
			out = append(out, u)
		}
	}
	return out
}

// toCluster addresses an update to a cluster's own target alone.
func toCluster(cluster string, u resource.Update) resource.Update {
	u.Target = resolver.Target(cluster)
	return u
}

// fromServer returns an update for the target of cluster a only.
func fromServer(u resource.Update) func(*resolver.Resolver) []resolver.TargetConfig {
	return func(r *resolver.Resolver) []resolver.TargetConfig {
		return r.Apply(ads, []resource.Update{toCluster("a", u)})
	}
}

func host(target string) func(*resolver.Resolver) []resolver.TargetConfig {
	return func(r *resolver.Resolver) []resolver.TargetConfig { return r.Host(target) }
}

func unhost(target string) func(*resolver.Resolver) []resolver.TargetConfig {
	return func(r *resolver.Resolver) []resolver.TargetConfig { return r.Unhost(target) }
}

// asks returns the result of Wanted for all targets, such as "+Cluster/a -Listener/x".
func asks(r *resolver.Resolver) string {
	var add, drop []string
	for _, w := range r.Wanted() {
		for _, k := range w.Add {
			add = append(add, "+"+k.String())
		}
		for _, k := range w.Drop {
			drop = append(drop, "-"+k.String())
		}
	}
	slices.Sort(add)
	slices.Sort(drop)
	return strings.Join(append(slices.Compact(add), slices.Compact(drop)...), " ")
}

// describeTargets is describe with xds: targets as "shop{a=h1(ads) b!why}",
// "shop!why", "shop pending" or "shop gone".
func describeTargets(changes []resolver.TargetConfig) string {
	var out []string
	for _, c := range changes {
		if _, ok := resolver.Cluster(c.Target); ok {
			switch {
			case c.Config != nil && root(c).Pending:
				out = append(out, clusterOf(c)+" pending")
			default:
				out = append(out, describe([]resolver.TargetConfig{c}))
			}
			continue
		}
		name := strings.TrimPrefix(c.Target, "xds:///")
		switch {
		case c.Config == nil:
			out = append(out, name+" gone")
		case c.Config.Err != nil:
			out = append(out, name+"!"+c.Config.Err.Error())
		case c.Config.Pending:
			out = append(out, name+" pending")
		default:
			var clusters []string
			for _, cluster := range c.Config.Roots {
				part := &resource.Config{Clusters: c.Config.Clusters}
				clusters = append(clusters, describe([]resolver.TargetConfig{{Target: resolver.Target(cluster), Config: part}}))
			}
			out = append(out, name+"{"+strings.Join(clusters, " ")+"}")
		}
	}
	return strings.Join(out, "; ")
}

func TestTargets(t *testing.T) {
	const shop = "xds:///shop"
	everything := []resource.Update{lds("shop", "r"), rds("r", "*: a"), cds(t, "a", "a"), eds(t, "a", "h1")}
	hosted := []step{
		{host(shop), "shop pending", "+Listener/shop"},
		{apply(ads, lds("shop", "r")), "", "+RouteConfiguration/r"},
		{apply(ads, rds("r", "*: a")), "", "+Cluster/a"},
		{apply(ads, cds(t, "a", "s")), "", "+ClusterLoadAssignment/s"},
		{apply(ads, eds(t, "s", "h1")), "shop{a=h1(ads)}", ""},
	}
	after := func(first []step, then ...step) []step { return append(slices.Clip(first), then...) }
	for name, tt := range map[string]struct {
		options resolver.Options
		steps   []step
	}{
		"a target waits for all that it needs": {steps: hosted},
		"the target is removed":                {steps: after(hosted, step{unhost(shop), "shop gone", "-Cluster/a -ClusterLoadAssignment/s -Listener/shop -RouteConfiguration/r"})},
		"a resource that is requested again must be sent again": {steps: after(hosted,
			step{unhost(shop), "shop gone", "-Cluster/a -ClusterLoadAssignment/s -Listener/shop -RouteConfiguration/r"},
			step{apply(ads, eds(t, "s", "h2")), "", ""}, // of before, on its way
			step{host(shop), "shop pending", "+Listener/shop"},
			step{apply(ads, lds("shop", "r")), "", "+RouteConfiguration/r"})},
		"needed again before Wanted: the state is kept": {steps: after(hosted,
			step{func(r *resolver.Resolver) []resolver.TargetConfig { return append(r.Unhost(shop), r.Host(shop)...) }, "shop gone; shop{a=h1(ads)}", ""})},
		"everything at once": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{apply(cache, everything...), "shop{a=h1(cache)}", "+Cluster/a +ClusterLoadAssignment/a +RouteConfiguration/r"},
		}},
		"inline routes": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{apply(ads, inline("shop", "*: a")), "", "+Cluster/a"},
			{apply(ads, cds(t, "a", "a")), "", "+ClusterLoadAssignment/a"},
			{apply(ads, eds(t, "a", "h1")), "shop{a=h1(ads)}", ""},
		}},
		"each cluster that routes name, once, sorted": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{
				apply(cache, inline("shop", "*: c+a b a"), cds(t, "a", "s"), cds(t, "b", "s"), cds(t, "c", "s"), eds(t, "s", "h1")), "shop{a=h1(cache) b=h1(cache) c=h1(cache)}",
				"+Cluster/a +Cluster/b +Cluster/c +ClusterLoadAssignment/s",
			},
		}},
		"the virtual host of the target's name": {steps: []step{
			{apply(push, inline("shop", "*: a", "shop: b"), eds(t, "b", "h1")), "b=h1(push); shop{b=h1(push)}", "+Cluster/b"},
		}},
		"no virtual host fits, and then one does": {steps: after(hosted,
			step{apply(ads, rds("r", "cart: a")), `shop!RouteConfiguration/r has no virtual host for "shop"`, "-Cluster/a -ClusterLoadAssignment/s"},
			step{apply(ads, rds("r", "sh*: a")), "", "+Cluster/a"},
			step{apply(ads, cds(t, "a", "s")), "", "+ClusterLoadAssignment/s"},
			step{apply(ads, eds(t, "s", "h2")), "shop{a=h2(ads)}", ""})},

		"there is no such Listener": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{apply(ads, notFound(lds("shop", ""))), "shop!Listener/shop" + doesNotExist, ""},
			{apply(ads, inline("shop", "*: a")), "", "+Cluster/a"},
			{apply(ads, notFound(cds(t, "a", "a"))), "shop{a!Cluster/a" + doesNotExist + "}", ""},
		}},
		"the server cannot be reached": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{apply(ads, unreachable(lds("shop", ""))), "shop!Listener/shop cannot be used: " + cannotReach, ""},
			{apply(ads, unreachable(lds("shop", ""))), "", ""},
		}},
		"the Listener is deleted: its clusters go": {steps: after(hosted,
			step{apply(ads, notFound(lds("shop", ""))), "shop!Listener/shop" + doesNotExist, "-Cluster/a -ClusterLoadAssignment/s -RouteConfiguration/r"})},
		"the routes are deleted": {steps: after(hosted,
			step{apply(ads, notFound(rds("r"))), "shop!RouteConfiguration/r" + doesNotExist, "-Cluster/a -ClusterLoadAssignment/s"})},
		"an ambient error changes nothing": {steps: after(hosted,
			step{apply(ads, ambient(lds("shop", "")), ambient(rds("r")), ambient(cds(t, "a", ""))), "", ""})},
		"an error of endpoints with the last good ones": {steps: after(hosted,
			step{apply(ads, ambient(eds(t, "s"))), "shop{a=h1(ads)?" + cannotReach + "}", ""},
			step{apply(ads, eds(t, "s", "h1")), "shop{a=h1(ads)}", ""})},
		"endpoints that are deleted are the cluster's own trouble": {steps: after(hosted,
			step{apply(ads, notFound(eds(t, "s"))), "shop{a!ClusterLoadAssignment/s" + doesNotExist + "}", ""})},
		"one cluster of two cannot be used": {steps: after(hosted,
			step{apply(ads, rds("r", "*: a b")), "", "+Cluster/b"},
			step{apply(ads, notFound(cds(t, "b", ""))), "shop{a=h1(ads) b!Cluster/b" + doesNotExist + "}", ""})},

		"routes to a new cluster wait for it, and the old one stays": {steps: after(hosted,
			step{apply(ads, rds("r", "*: b")), "", "+Cluster/b"},
			step{apply(ads, eds(t, "s", "h2")), "", ""},
			step{apply(ads, cds(t, "b", "s")), "shop{b=h2(ads)}", "-Cluster/a"})},
		"back to the old cluster before the new one is known": {steps: after(hosted,
			step{apply(ads, rds("r", "*: b")), "", "+Cluster/b"},
			step{apply(ads, eds(t, "s", "h2")), "", ""},
			step{apply(ads, rds("r", "*: a")), "shop{a=h2(ads)}", "-Cluster/b"})},
		"other routes: the last ones stay until these are known": {steps: after(hosted,
			step{apply(ads, lds("shop", "r2")), "", "+RouteConfiguration/r2 -RouteConfiguration/r"},
			step{apply(ads, eds(t, "s", "h2")), "shop{a=h2(ads)}", ""},
			step{apply(ads, rds("r2", "*: a a")), "shop{a=h2(ads)}", ""})},
		"another service for a cluster waits for its endpoints": {steps: after(hosted,
			step{apply(ads, cds(t, "a", "s2")), "", "+ClusterLoadAssignment/s2 -ClusterLoadAssignment/s"},
			step{apply(ads, eds(t, "s2", "h2")), "shop{a=h2(ads)}", ""})},

		"what was kept serves until the server speaks": {steps: []step{
			{apply(cache, everything...), "", ""},
			{host(shop), "shop{a=h1(cache)}", "+Cluster/a +ClusterLoadAssignment/a +Listener/shop +RouteConfiguration/r"},
			{
				apply(ads, unreachable(lds("shop", "")), unreachable(rds("r")), unreachable(cds(t, "a", "")), unreachable(eds(t, "a"))),
				"shop{a=h1(cache)?" + cannotReach + "}", "",
			},
			{apply(ads, everything...), "shop{a=h1(ads)}", ""},
		}},
		"what was kept serves while the server is silent": {steps: []step{
			{apply(cache, everything...), "", ""},
			{host(shop), "shop{a=h1(cache)}", "+Cluster/a +ClusterLoadAssignment/a +Listener/shop +RouteConfiguration/r"},
			{
				apply(ads, silent(lds("shop", "")), silent(rds("r")), silent(cds(t, "a", "")), silent(eds(t, "a"))),
				"shop{a=h1(cache)?ClusterLoadAssignment/a" + sentNothing + "}", "",
			},
			{apply(ads, everything...), "shop{a=h1(ads)}", ""},
		}},
		"what was kept stays in use if the server no longer has it": {steps: []step{
			{apply(cache, everything...), "", ""},
			{host(shop), "shop{a=h1(cache)}", "+Cluster/a +ClusterLoadAssignment/a +Listener/shop +RouteConfiguration/r"},
			{
				apply(ads, missing(lds("shop", "")), missing(rds("r")), missing(cds(t, "a", "")), missing(eds(t, "a"))),
				"shop{a=h1(cache)?ClusterLoadAssignment/a" + doesNotExist + "}", "",
			},
			{apply(ads, everything...), "shop{a=h1(ads)}", ""},
		}},
		"nothing was kept, and the server is silent": {steps: []step{
			{host(shop), "shop pending", "+Listener/shop"},
			{apply(ads, silent(lds("shop", ""))), "shop!Listener/shop" + sentNothing, ""},
		}},
		"what was kept and does not exist any more": {steps: []step{
			{apply(cache, everything...), "", ""},
			{host(shop), "shop{a=h1(cache)}", "+Cluster/a +ClusterLoadAssignment/a +Listener/shop +RouteConfiguration/r"},
			{apply(ads, notFound(eds(t, "a"))), "shop{a!ClusterLoadAssignment/a" + doesNotExist + "}", ""},
			{apply(ads, notFound(lds("shop", ""))), "shop!Listener/shop" + doesNotExist, "-Cluster/a -ClusterLoadAssignment/a -RouteConfiguration/r"},
		}},
		"what was kept cannot be read": {steps: []step{
			{apply(cache, resource.Update{Item: resource.Item{Key: lds("shop", "").Key, Raw: []byte{0x12, 0x01}}}), "", ""},
			{host(shop), "shop pending", "+Listener/shop"},
		}},

		"a push covers the server's, which is watched all the same": {steps: after(hosted,
			step{apply(push, eds(t, "s", "p1")), "s=p1(push); shop{a=p1(push)}", "+Cluster/s"},
			step{apply(ads, eds(t, "s", "h2")), "", ""},
			step{apply(push, without(eds(t, "s"))), "s=p1(push); shop{a=h2(ads)}", ""}, // cluster:s stays until it is known whether there is one
			step{apply(ads, eds(t, "s", "h3")), "shop{a=h3(ads)}", ""},
			step{apply(ads, notFound(cds(t, "s", ""))), "s!Cluster/s" + doesNotExist, ""})},
		"the server deletes what a push covers, and is not asked any more": {steps: after(hosted,
			step{apply(push, eds(t, "s", "p1")), "s=p1(push); shop{a=p1(push)}", "+Cluster/s"},
			step{apply(ads, notFound(eds(t, "s"))), "", "-ClusterLoadAssignment/s"},
			step{apply(push, without(eds(t, "s"))), "s=p1(push)", "+ClusterLoadAssignment/s"}, // the pushed ones stay until the server speaks
			step{apply(ads, eds(t, "s", "h3")), "shop{a=h3(ads)}", ""})},
		"what was kept serves when a cover goes": {steps: after(hosted,
			step{apply(file, eds(t, "s", "f1")), "s=f1(file); shop{a=f1(file)}", "+Cluster/s"},
			step{apply(cache, eds(t, "s", "h1")), "", "+ClusterLoadAssignment/s"}, // for cluster:s, too
			step{apply(ads, notFound(eds(t, "s"))), "", ""},
			step{apply(cache, without(eds(t, "s"))), "", "-ClusterLoadAssignment/s"},
			step{apply(cache, eds(t, "s", "h1")), "", "+ClusterLoadAssignment/s"},
			step{apply(file, without(eds(t, "s"))), "s=f1(file); shop{a=h1(cache)}", "-ClusterLoadAssignment/s"})},
		"a pushed Listener hosts its target": {steps: []step{
			{apply(push, lds("shop", "r")), "shop pending", "+RouteConfiguration/r"},
			{apply(push, rds("r", "*: a"), eds(t, "a", "h1")), "a=h1(push); shop{a=h1(push)}", "+Cluster/a -RouteConfiguration/r"},
			{host(shop), "", ""},
			{apply(push, without(lds("shop", ""))), "", "+Listener/shop"},
			{unhost(shop), "shop gone", "-Cluster/a -Listener/shop"}, // cluster:a still asks
		}},
		"endpoints by hand make a cluster at once, and ask who else knows it": {steps: []step{
			{apply(push, eds(t, "a", "p1")), "a=p1(push)", "+Cluster/a"},
			{apply(ads, notFound(cds(t, "a", ""))), "", ""},
			{apply(ads, cds(t, "a", "s")), "", "+ClusterLoadAssignment/s"},
			{apply(ads, eds(t, "s", "h1")), "a=h1(ads)", ""},
			{apply(push, without(eds(t, "a"))), "a=h1(ads)", ""}, // as if it were on demand
			{unhost("cluster:a"), "a gone", "-Cluster/a -ClusterLoadAssignment/s"},
		}},

		"a cluster on demand": {steps: []step{
			{host("cluster:a"), "a pending", "+Cluster/a"},
			{host("cluster:a"), "", ""},
			{apply(ads, cds(t, "a", "s")), "", "+ClusterLoadAssignment/s"},
			{apply(ads, eds(t, "s", "h1")), "a=h1(ads)", ""},
			{unhost("cluster:a"), "a gone", "-Cluster/a -ClusterLoadAssignment/s"},
			{unhost("cluster:a"), "", ""},
		}},
		"an unknown one on demand": {steps: []step{
			{host("cluster:a"), "a pending", "+Cluster/a"},
			{apply(ads, notFound(cds(t, "a", ""))), "a!Cluster/a" + doesNotExist, ""},
			{unhost("cluster:a"), "a gone", "-Cluster/a"},
		}},
		"one on demand that routes know": {steps: after(hosted,
			step{host("cluster:a"), "a pending", "+Cluster/a"},
			step{fromServer(cds(t, "a", "s")), "", "+ClusterLoadAssignment/s"},
			step{fromServer(eds(t, "s", "h1")), "a=h1(ads)", ""},
			step{unhost(shop), "shop gone", "-Cluster/a -ClusterLoadAssignment/s -Listener/shop -RouteConfiguration/r"},
			step{apply(ads, eds(t, "s", "h2")), "a=h2(ads)", ""})},
		"an update for one target does not affect another": {steps: after(hosted,
			step{host("cluster:a"), "a pending", "+Cluster/a"},
			step{fromServer(notFound(cds(t, "a", ""))), "a!Cluster/a" + doesNotExist, ""},
			step{fromServer(cds(t, "a", "other")), "", "+ClusterLoadAssignment/other"},
			step{fromServer(eds(t, "other", "h2")), "a=h2(ads)", ""},
			step{fromServer(notFound(eds(t, "s"))), "", ""})},
		"a fallback server does not rule out what is kept": {steps: []step{
			{apply(cache, cds(t, "a", "s"), eds(t, "s", "k1")), "", ""},
			{host("cluster:a"), "a=k1(cache)", "+Cluster/a +ClusterLoadAssignment/s"},
			{apply(ads, byFallback(notFound(cds(t, "a", ""))), byFallback(notFound(eds(t, "s")))), "a=k1(cache)?ClusterLoadAssignment/s" + doesNotExist, ""},
			{apply(ads, notFound(cds(t, "a", ""))), "a!Cluster/a" + doesNotExist, "-ClusterLoadAssignment/s"},
		}},
		"an aggregate on demand asks for its leaves": {steps: []step{
			{host("cluster:a"), "a pending", "+Cluster/a"},
			{apply(ads, aggregate("a", "x", "y")), "", "+Cluster/x +Cluster/y"},
			{apply(ads, cds(t, "y", "y"), notFound(cds(t, "x", ""))), "", "+ClusterLoadAssignment/y"},
			{apply(ads, eds(t, "y", "h2")), "a=x!Cluster/x" + doesNotExist + ",y", ""},
			{apply(ads, cds(t, "x", "x")), "", "+ClusterLoadAssignment/x"},
			{apply(ads, eds(t, "x", "h1")), "a=x,y", ""},
			{apply(ads, notFound(cds(t, "x", ""))), "a=x!Cluster/x" + doesNotExist + ",y", "-ClusterLoadAssignment/x"},
			{apply(ads, cds(t, "x", "x")), "", "+ClusterLoadAssignment/x"},
			{apply(ads, notFound(eds(t, "x", "h1"))), "a=x,y", ""},
			{apply(ads, aggregate("a", "y")), "a=y", "-Cluster/x -ClusterLoadAssignment/x"},
		}},
		"an aggregate of itself is released": {steps: []step{
			{host("cluster:a"), "a pending", "+Cluster/a"},
			{apply(ads, aggregate("a", "b")), "", "+Cluster/b"},
			{apply(ads, aggregate("b", "a")), "a!aggregate cluster graph has no leaf clusters", ""},
			{unhost("cluster:a"), "a gone", "-Cluster/a -Cluster/b"},
		}},

		"without a management server nothing is waited for": {options: resolver.Options{}, steps: []step{
			{host(shop), "shop!Listener/shop is not known", ""},
			{apply(push, lds("shop", "r")), "shop!RouteConfiguration/r is not known", ""},
			{apply(push, rds("r", "*: a b")), "shop{a!Cluster/a is not known b!Cluster/b is not known}", ""},
			{apply(push, cds(t, "a", "a")), "a!no endpoints: ClusterLoadAssignment/a is not known; shop{a!no endpoints: ClusterLoadAssignment/a is not known b!Cluster/b is not known}", ""},
			{host("cluster:b"), "b!Cluster/b is not known", ""},
			{unhost("cluster:b"), "b gone", ""},
		}},

		"the bootstrap names Listeners": {
			options: resolver.Options{Server: true, ListenerName: func(target string) string { return "listener of " + target }},
			steps: []step{
				{host(shop), "shop pending", "+Listener/listener of shop"},
				{host("xds://corp/a/b"), "xds://corp/a/b pending", "+Listener/listener of //corp/a/b"},
				{apply(ads, inline("listener of //corp/a/b", "a%2Fb: ")), "xds://corp/a/b{}", ""},
				{apply(push, inline("shop", "*: ")), "shop{}", "-Listener/listener of shop"},
				{apply(push, without(inline("shop"))), "", "+Listener/listener of shop"},
				{unhost("xds://corp/a/b"), "xds://corp/a/b gone", "-Listener/listener of //corp/a/b"},
				{host("xds:///a%2Fb%20"), "a%2Fb%20 pending", "+Listener/listener of a%2Fb%20"},
				{apply(ads, inline("listener of a%2Fb%20", "a%2Fb%20: ")), "a%2Fb%20{}", ""},
				{host("xds:///100%"), "100% pending", "+Listener/listener of 100%"},
				{apply(ads, inline("listener of 100%", "100%25: ")), "100%{}", ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.options.ListenerName == nil {
				tt.options.Server = !strings.HasPrefix(name, "without")
			}
			r := resolver.New(tt.options)
			for i, s := range tt.steps {
				if got := describeTargets(s.do(r)); got != s.want {
					t.Errorf("step %d:\ngot  %s\nwant %s", i, got, s.want)
				}
				if got := asks(r); got != s.asks {
					t.Errorf("step %d asks\ngot  %s\nwant %s", i, got, s.asks)
				}
			}
		})
	}
}

// A config has the source and version of its parts.
func TestProvenance(t *testing.T) {
	r := resolver.New(resolver.Options{Server: true})
	r.Host("xds:///shop")
	var changes []resolver.TargetConfig
	for i, u := range []resource.Update{lds("shop", "r"), rds("r", "*: a"), cds(t, "a", "a"), eds(t, "a", "h1")} {
		u.Version = fmt.Sprint("v", i)
		changes = r.Apply(ads, toAll(r, ads, []resource.Update{u}))
	}
	c := changes[0].Config
	got := fmt.Sprint(c.Routing.ListenerFrom.Version, c.Routing.RoutesFrom.Version, c.Clusters.Get("a").ClusterFrom.Version, c.Clusters.Get("a").AssignmentFrom.Version)
	if got != "v0v1v2v3" || c.Routing.ListenerFrom.Source != ads || c.Routing.RouteName != "r" || c.Routing.Listener.Name != "shop" || c.Routing.VirtualHost.Name != "*" || c.Target != "xds:///shop" {
		t.Errorf("got %s of %+v", got, c)
	}
}

// TestConfigsShareWhatIsUnchanged: targets have the same values of one cluster, and
// keep those of clusters that a change does not concern.
func TestConfigsShareWhatIsUnchanged(t *testing.T) {
	r := resolver.New(resolver.Options{})
	first := r.Apply(push, []resource.Update{inline("shop", "*: a b g"), aggregate("g", "a"), eds(t, "a", "h1"), eds(t, "b", "h2")})
	shop, a := first[3].Config, first[0].Config
	if shop.Clusters.Get("a").Assignment != a.Clusters.Get("a").Assignment || shop.Clusters.Get("g").Cluster != first[2].Config.Clusters.Get("g").Cluster {
		t.Error("two targets have two values of one cluster")
	}
	next := r.Apply(push, []resource.Update{eds(t, "b", "h3")})
	if len(next) != 2 || next[1].Config.Clusters.Get("a") != shop.Clusters.Get("a") || next[1].Config.Clusters.Get("g") != shop.Clusters.Get("g") || next[1].Config.Clusters.Get("b") == shop.Clusters.Get("b") {
		t.Errorf("got %s", describeTargets(next))
	}
}

// No state is left of removed targets.
func TestNoStateIsLeft(t *testing.T) {
	r := resolver.New(resolver.Options{Server: true})
	for i := range 100 {
		unknown, known, shop := fmt.Sprint("x", i), fmt.Sprint("a", i), fmt.Sprint("shop", i)
		r.Host(resolver.Target(unknown))
		r.Host(resolver.Target(known))
		r.Host("xds:///" + shop)
		r.Wanted()
		logical := resource.DefaultCluster("d")
		logical.Type, logical.DNSHostname = resource.ClusterLogicalDNS, "h:80"
		for _, u := range []resource.Update{notFound(cds(t, unknown, "s")), aggregate(known, "b", "d"), cds(t, "b", "s"), made(logical), eds(t, "s", "h1"), lds(shop, "r"), rds("r", "*: b")} {
			r.Apply(ads, toAll(r, ads, []resource.Update{u}))
			r.Wanted()
		}
		r.ApplyHost("h:80", nil, errAway)
		r.Unhost(resolver.Target(unknown))
		r.Unhost(resolver.Target(known))
		r.Unhost("xds:///" + shop)
		r.Wanted()
		r.Hosts()
	}
	if n := r.Held(); n != 0 {
		t.Errorf("%d things are left", n)
	}
}
