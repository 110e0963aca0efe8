package resolver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ambientErrors describes those of a target as "Listener/shop | a: Listener/shop" and
// so on: all resources, then those of the routing and of each cluster.
func ambientErrors(r *resolver.Resolver, target string) string {
	keys := func(errors []resolver.AmbientError) string {
		var out []string
		for _, e := range errors {
			out = append(out, e.Key.String())
		}
		return strings.Join(out, " ")
	}
	is := r.AmbientErrors(target)
	var out strings.Builder
	out.WriteString(keys(is.All))
	if len(is.Routing) > 0 {
		out.WriteString(" | routing: " + keys(is.Routing))
	}
	for _, cluster := range slices.Sorted(maps.Keys(is.Clusters)) {
		out.WriteString(fmt.Sprintf(" | %s: %s", cluster, keys(is.Clusters[cluster])))
	}
	return out.String()
}

// TestAmbientErrors: which resources of a target are in use in spite of an error, after
// each step, and whether the step is reported as a change.
func TestAmbientErrors(t *testing.T) {
	const target = "xds:///shop"
	deleted := func(u resource.Update) resource.Update {
		out := missing(u)
		out.Ambient = true
		return out
	}
	routes := rds("r", "*: a b")
	world := []resource.Update{lds("shop", "r"), routes, cds(t, "a", "s"), cds(t, "b", "b"), eds(t, "s", "h1"), eds(t, "b", "h2")}
	type step struct {
		from    resource.Source
		update  []resource.Update
		want    string
		changed bool
	}
	for name, steps := range map[string][]step{
		"a deleted cluster": {
			{ads, world, "", false},
			{ads, []resource.Update{deleted(cds(t, "a", ""))}, "Cluster/a | a: Cluster/a", true},
			{ads, []resource.Update{cds(t, "a", "s")}, "", true},
		},
		"a deleted Listener concerns all clusters": {
			{ads, world, "", false},
			{
				ads,
				[]resource.Update{deleted(lds("shop", "")), ambient(eds(t, "s"))},
				"ClusterLoadAssignment/s Listener/shop | routing: Listener/shop | a: ClusterLoadAssignment/s", true,
			},
		},
		"what was kept, and is deleted since": {
			{cache, world, "", false},
			{ads, []resource.Update{missing(cds(t, "a", ""))}, "Cluster/a | a: Cluster/a", true},
			{ads, []resource.Update{notFound(cds(t, "a", ""))}, "", true}, // which may not be used
		},
		"a resource without a value is in no use": {
			{ads, world[:3], "", false},
			{ads, []resource.Update{missing(eds(t, "s"))}, "", true},
		},
		"a push covers the error": {
			{ads, world, "", false},
			{ads, []resource.Update{ambient(eds(t, "s"))}, "ClusterLoadAssignment/s | a: ClusterLoadAssignment/s", true},
			{push, []resource.Update{eds(t, "s", "p1")}, "", true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := resolver.New(resolver.Options{Server: true})
			r.Host(target)
			r.Wanted()
			for i, s := range steps {
				for _, u := range s.update {
					if s.from == ads {
						u.Target = target
					}
					r.Apply(s.from, []resource.Update{u})
					r.Wanted()
				}
				if got := ambientErrors(r, target); got != s.want {
					t.Errorf("step %d: %s, want %s", i, got, s.want)
				}
				if changed := slices.Contains(r.AmbientChanges(), target); changed != s.changed {
					t.Errorf("step %d: changed is %v", i, changed)
				}
			}
			r.Unhost(target)
			r.Wanted()
			if got := r.AmbientChanges(); slices.Contains(got, target) {
				t.Error("a target that is gone is listed")
			}
		})
	}
}

// TestAmbientErrorSince: an error begins when its text is first reported, and
// makes no new config.
func TestAmbientErrorSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const target = "cluster:a"
		r := resolver.New(resolver.Options{Server: true})
		r.Host(target)
		r.Wanted()
		from := func(u resource.Update) []resolver.TargetConfig {
			u.Target = target
			return r.Apply(ads, []resource.Update{u})
		}
		from(cds(t, "a", "a"))
		r.Wanted()
		from(eds(t, "a", "h1"))
		began := time.Now()
		for range 2 {
			if changes := from(ambient(cds(t, "a", ""))); len(changes) > 0 {
				t.Errorf("the error makes a config: %s", describe(changes))
			}
			time.Sleep(time.Minute)
		}
		if got := r.AmbientErrors(target).All; len(got) != 1 || !got[0].Since.Equal(began) || got[0].Err.Error() != cannotReach {
			t.Errorf("%+v, want since %v", got, began)
		}
		again := time.Now()
		other := missing(cds(t, "a", ""))
		other.Ambient = true
		from(other)
		if got := r.AmbientErrors(target).All; !got[0].Since.Equal(again) {
			t.Errorf("another error began at %v, want %v", got[0].Since, again)
		}
	})
}
