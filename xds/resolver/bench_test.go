package resolver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// clusters are so many clusters with an assignment of their own.
func clusters(n int) (all []resource.Update, names []string) {
	for i := range n {
		c := resource.DefaultCluster(fmt.Sprint("c", i))
		all = append(all, made(c), assignment(c.Name, "x:1"))
		names = append(names, c.Name)
	}
	return all, names
}

func assignment(name, address string) resource.Update {
	e := &resource.Endpoint{Addresses: []string{address}}
	return item(resource.Item{
		Key: resource.Key{Type: resource.TypeAssignment, Name: name},
		Value: resource.Value{
			Assignment: &resource.Assignment{Name: name, Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}}},
		},
	})
}

// BenchmarkChange is one change among 10,000 clusters on demand, and what a
// management server is asked for then: of endpoints; of a cluster, which is made of
// others; of a push that covers a server's, and goes.
func BenchmarkChange(b *testing.B) {
	all, names := clusters(10_000)
	r := resolver.New(resolver.Options{Server: true})
	for _, name := range names {
		r.Host(resolver.Target(name))
	}
	r.Apply(ads, toAll(r, ads, all))
	r.Apply(ads, toAll(r, ads, all))
	r.Wanted()
	endpoints := [...]resource.Update{toCluster("c5000", assignment("c5000", "x:1")), toCluster("c5000", assignment("c5000", "y:1"))}
	cluster := [...]resource.Update{toCluster("c5000", aggregate("c5000", "c1", "c2")), toCluster("c5000", made(resource.DefaultCluster("c5000")))}
	push := [...]resource.Update{endpoints[0], without(endpoints[0])}
	for _, bb := range []struct {
		name    string
		from    resource.Source
		updates [2]resource.Update
	}{{"endpoints", ads, endpoints}, {"cluster", ads, cluster}, {"cover", resource.SourcePush, push}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Apply(bb.from, bb.updates[i%2:i%2+1])
				r.Wanted()
			}
		})
	}
}

// BenchmarkRouted is one change of endpoints of a target whose routes name so many
// clusters, and the load of all, of which a management server sends each by
// itself.
func BenchmarkRouted(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		all, names := clusters(n)
		var routes strings.Builder
		routes.WriteString("*:")
		for _, name := range names {
			routes.WriteString(" " + name)
		}
		load := func() *resolver.Resolver {
			r := resolver.New(resolver.Options{Server: true})
			r.Host("xds:///shop")
			r.Apply(ads, toAll(r, ads, []resource.Update{inline("shop", routes.String())}))
			for i := range all {
				all[i].Target = "xds:///shop"
				r.Apply(ads, all[i:i+1])
				r.Wanted()
			}
			return r
		}
		b.Run(fmt.Sprintf("load/%d", n), func(b *testing.B) {
			for b.Loop() {
				load()
			}
		})
		b.Run(fmt.Sprintf("change/%d", n), func(b *testing.B) {
			r := load()
			updates := [...]resource.Update{assignment("c500", "y:1"), assignment("c500", "x:1")}
			updates[0].Target, updates[1].Target = "xds:///shop", "xds:///shop"
			for i := 0; b.Loop(); i++ {
				if len(r.Apply(ads, updates[i%2:i%2+1])) != 1 {
					b.Fatal("nothing changed")
				}
			}
		})
	}
}

// BenchmarkPreview previews a push of the endpoints of one among so many pushed clusters. Apply is the push itself.
func BenchmarkPreview(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		all, _ := clusters(n)
		r := resolver.New(resolver.Options{})
		r.Apply(push, all)
		updates := [...]resource.Update{assignment("c50", "x:1"), assignment("c50", "y:1")}
		b.Run(fmt.Sprintf("apply/%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				r.Apply(push, updates[i%2:i%2+1])
			}
		})
		b.Run(fmt.Sprintf("preview/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if len(r.Preview(&resolver.Proposal{From: push, Updates: updates[i%2 : i%2+1]})) != 1 {
					b.Fatal("it touches nothing")
				}
			}
		})
	}
}
