package resolver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// eds is an update of an assignment with one endpoint for each host; no host
// takes it away.
func eds(t *testing.T, name string, hosts ...string) resource.Update {
	t.Helper()
	u := resource.Update{Item: resource.Item{Key: resource.Key{Type: resource.TypeAssignment, Name: name}}}
	if hosts == nil {
		return u
	}
	var es []string
	for _, h := range hosts {
		es = append(es, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}}`, h))
	}
	d, err := decode.One(resource.TypeAssignment,
		[]byte(`{"endpoints":[{"locality":{"zone":"z"},"load_balancing_weight":1,"lb_endpoints":[`+strings.Join(es, ",")+`]}]}`), decode.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	u.Raw = d.Raw
	return u
}

// cds is an update of a cluster that takes its endpoints from service; "" takes
// the cluster away.
func cds(t *testing.T, name, service string) resource.Update {
	t.Helper()
	u := resource.Update{Item: resource.Item{Key: resource.Key{Type: resource.TypeCluster, Name: name}}}
	if service == "" {
		return u
	}
	d, err := decode.One(resource.TypeCluster,
		[]byte(`{"type":"EDS","eds_cluster_config":{"service_name":"`+service+`","eds_config":{"ads":{}}}}`), decode.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	u.Raw = d.Raw
	return u
}

// describe returns changes of cluster: targets as "orders=a,b(push)", with "?why" after an
// error that left them in use, "orders!why" or "orders gone".
func describe(changes []resolver.TargetConfig) string {
	var out []string
	for _, c := range changes {
		name := clusterOf(c)
		if c.Config == nil {
			out = append(out, name+" gone")
			continue
		}
		cc := c.Config.Clusters.Get(name)
		switch {
		case cc.Err != nil:
			out = append(out, name+"!"+cc.Err.Error())
		case len(cc.Leaves) > 0:
			out = append(out, name+"="+leavesOf(c.Config, cc))
		case cc.Assignment == nil:
			out = append(out, name+"!"+cc.AssignmentErr.Error())
		default:
			var hosts []string
			for _, l := range cc.Assignment.Localities {
				for _, e := range l.Endpoints {
					hosts = append(hosts, strings.TrimSuffix(e.Addresses[0], ":80"))
				}
			}
			why := ""
			if cc.AssignmentErr != nil {
				why = "?" + cc.AssignmentErr.Error()
			}
			out = append(out, fmt.Sprintf("%s=%s(%s)%s", name, strings.Join(hosts, ","), cc.AssignmentFrom.Source, why))
		}
	}
	return strings.Join(out, " ")
}

func TestClusterTargets(t *testing.T) {
	type step struct {
		from    resource.Source
		updates []resource.Update
		want    string
	}
	one := func(u ...resource.Update) []resource.Update { return u }
	for name, steps := range map[string][]step{
		"endpoints alone make a cluster": {
			{push, one(eds(t, "a", "h1")), "a=h1(push)"},
			{push, one(eds(t, "a")), "a gone"},
		},
		"a configuration alone makes one without endpoints": {
			{push, one(cds(t, "a", "a")), "a!no endpoints: ClusterLoadAssignment/a is not known"},
			{push, one(eds(t, "a", "h1")), "a=h1(push)"},
			{push, one(cds(t, "a", "")), "a=h1(push)"},
			{push, one(eds(t, "a")), "a gone"},
		},
		"an assignment of several clusters": {
			{push, one(eds(t, "s", "h1"), cds(t, "a", "s"), cds(t, "b", "s")), "a=h1(push) b=h1(push) s=h1(push)"},
			{push, one(eds(t, "s", "h2")), "a=h2(push) b=h2(push) s=h2(push)"},
			{push, one(cds(t, "b", "b")), "b!no endpoints: ClusterLoadAssignment/b is not known"},
			{push, one(eds(t, "s")), "a!no endpoints: ClusterLoadAssignment/s is not known s gone"},
			{push, one(cds(t, "a", "")), "a gone"},
		},
		"what is pushed covers what a file has": {
			{file, one(eds(t, "a", "f1")), "a=f1(file)"},
			{push, one(eds(t, "a", "p1")), "a=p1(push)"},
			{file, one(eds(t, "a", "f2")), ""},
			{push, one(eds(t, "a")), "a=f2(file)"},
			{file, one(eds(t, "a")), "a gone"},
		},
		"each resource is covered by itself": {
			{file, one(eds(t, "f", "f1"), cds(t, "a", "f")), "a=f1(file) f=f1(file)"},
			{push, one(cds(t, "a", "p"), eds(t, "p", "p1")), "a=p1(push) p=p1(push)"},
			{push, one(cds(t, "a", "")), "a=f1(file)"},
		},
		"the same again changes nothing": {
			{push, one(eds(t, "a", "h1", "h2")), "a=h1,h2(push)"},
			{push, one(eds(t, "a", "h1", "h2")), ""},
		},
		"a stored resource that breaks a rule fails its cluster": {
			{push, one(resource.Update{Item: resource.Item{Key: resource.Key{Type: resource.TypeCluster, Name: "a"}, Raw: []byte{0x12, 0x01}}}), "a!read protobuf: byte 1: type: the message is cut short"},
			{push, one(cds(t, "a", "a"), eds(t, "a", "h1")), "a=h1(push)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := resolver.New(resolver.Options{})
			for i, s := range steps {
				if got := describe(r.Apply(s.from, s.updates)); got != s.want {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func TestReuse(t *testing.T) {
	r := resolver.New(resolver.Options{})
	clusterA := func(changes []resolver.TargetConfig) *resource.ClusterConfig {
		return changes[0].Config.Clusters.Get("a")
	}
	first := clusterA(r.Apply(resource.SourcePush, []resource.Update{eds(t, "a", "h1", "h2")}))
	next := clusterA(r.Apply(resource.SourcePush, []resource.Update{eds(t, "a", "h1", "h3")}))
	if first.Cluster != next.Cluster {
		t.Error("the default configuration is not shared")
	}
	old, now := first.Assignment.Localities[0].Endpoints, next.Assignment.Localities[0].Endpoints
	if old[0] != now[0] || old[1] == now[1] {
		t.Errorf("got %v and %v of %v", now[0], now[1], old)
	}
	// A file with what was pushed keeps the value, though its source changes.
	r.Apply(resource.SourceFile, []resource.Update{{Item: resource.Item{Key: resource.Key{Type: resource.TypeAssignment, Name: "a"}, Raw: eds(t, "a", "h1", "h3").Raw}, Updated: time.Unix(1, 0)}})
	uncovered := clusterA(r.Apply(resource.SourcePush, []resource.Update{eds(t, "a")}))
	if uncovered.Assignment != next.Assignment || uncovered.AssignmentFrom.Source != resource.SourceFile {
		t.Errorf("got %p from %v, want %p", uncovered.Assignment, uncovered.AssignmentFrom, next.Assignment)
	}
}

// made is an update of a value that no decoder has made.
func made(c *resource.Cluster) resource.Update {
	return resource.Update{Item: resource.Item{Key: resource.Key{Type: resource.TypeCluster, Name: c.Name}, Raw: []byte{1}, Value: resource.Value{Cluster: c}}}
}

func aggregate(name string, leaves ...string) resource.Update {
	c := resource.DefaultCluster(name)
	c.Type, c.Leaves = resource.ClusterAggregate, leaves
	return made(c)
}

// leaves returns the leaves of each changed cluster, each followed by "!" and its
// error if it has one; or the cluster's own error.
func leaves(changes []resolver.TargetConfig) string {
	var out []string
	for _, c := range changes {
		name := clusterOf(c)
		switch root := root(c); {
		case root == nil:
			out = append(out, name+" gone")
		case root.Err != nil:
			out = append(out, name+"!"+root.Err.Error())
		case root.Pending:
			out = append(out, name+" pending")
		default:
			out = append(out, name+"="+leavesOf(c.Config, root))
		}
	}
	return strings.Join(out, "; ")
}

func leavesOf(config *resource.Config, root *resource.ClusterConfig) string {
	names := slices.Clone(root.Leaves)
	for i, leaf := range names {
		if cc := config.Clusters.Get(leaf); cc.Err != nil {
			names[i] += "!" + cc.Err.Error()
		}
	}
	return strings.Join(names, ",")
}

// clusterOf is the cluster of a cluster: target.
func clusterOf(c resolver.TargetConfig) string { return strings.TrimPrefix(c.Target, "cluster:") }

func root(c resolver.TargetConfig) *resource.ClusterConfig {
	if c.Config == nil {
		return nil
	}
	return c.Config.Clusters.Get(clusterOf(c))
}

func TestAggregates(t *testing.T) {
	chain := func(n int) []resource.Update {
		all := []resource.Update{eds(t, fmt.Sprint("c", n), "h")}
		for i := range n {
			all = append(all, aggregate(fmt.Sprint("c", i), fmt.Sprint("c", i+1)))
		}
		return all
	}
	last := func(changes []resolver.TargetConfig) string { return leaves(changes[:1]) }
	for name, c := range map[string]struct {
		updates []resource.Update
		want    string
	}{
		"leaves in order":          {[]resource.Update{aggregate("a", "y", "x"), eds(t, "x", "h1"), eds(t, "y", "h2")}, "a=y,x"},
		"depth first, each once":   {[]resource.Update{aggregate("a", "b", "x", "y"), aggregate("b", "y", "z"), eds(t, "x", "h"), eds(t, "y", "h"), eds(t, "z", "h")}, "a=y,z,x"},
		"made of itself":           {[]resource.Update{aggregate("a", "a")}, "a!aggregate cluster graph has no leaf clusters"},
		"made of itself and more":  {[]resource.Update{aggregate("a", "b"), aggregate("b", "a", "x"), eds(t, "x", "h")}, "a=x"},
		"a leaf that is not known": {[]resource.Update{aggregate("a", "x")}, "a=x!Cluster/x is not known"},
		"the others of that leaf":  {[]resource.Update{aggregate("a", "x", "y"), eds(t, "y", "h")}, "a=x!Cluster/x is not known,y"},
		"a nested aggregate that is not known": {
			[]resource.Update{aggregate("a", "b", "z"), aggregate("b", "c", "y"), eds(t, "y", "h"), eds(t, "z", "h")},
			"a=c!Cluster/c is not known,y,z",
		},
		"a nested aggregate too deep beside a good leaf": {
			append(chain(16), aggregate("c0", "c1", "good"), eds(t, "good", "h")),
			"c0!aggregate cluster graph exceeds max depth (16)",
		},
		"fifteen deep": {chain(15), "c0=c15"},
		"sixteen deep": {chain(16), "c0!aggregate cluster graph exceeds max depth (16)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := last(resolver.New(resolver.Options{}).Apply(resource.SourcePush, c.updates)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAggregateChanges(t *testing.T) {
	r := resolver.New(resolver.Options{})
	push := func(want string, updates ...resource.Update) {
		t.Helper()
		if got := leaves(r.Apply(resource.SourcePush, updates)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	push("a=x; b=x; x=", aggregate("a", "b"), aggregate("b", "x"), eds(t, "x", "h1"))
	push("a=x; b=x; x=", eds(t, "x", "h2"))
	push("", eds(t, "x", "h2"))
	push("a=x; b=x; s=; x=", cds(t, "x", "s"), eds(t, "s", "h3"))
	push("a=x; b=x; s=; x=", eds(t, "s", "h4"))
	push("a=b!Cluster/b is not known; b gone", resource.Update{Item: resource.Item{Key: resource.Key{Type: resource.TypeCluster, Name: "b"}}})
}

func TestLogicalDNS(t *testing.T) {
	r := resolver.New(resolver.Options{})
	dns := resource.DefaultCluster("d")
	dns.Type, dns.DNSHostname = resource.ClusterLogicalDNS, "up.example:80"
	if got := leaves(r.Apply(resource.SourcePush, []resource.Update{made(dns), aggregate("a", "d")})); got != "a pending; d pending" {
		t.Errorf("at first: %q", got)
	}
	if hosts := r.Hosts(); len(hosts) != 1 || !hosts["up.example:80"] {
		t.Errorf("hosts %v", hosts)
	}
	failed := r.ApplyHost("up.example:80", nil, errors.New("no such host"))
	if cc := root(failed[1]); cc.Pending || cc.Assignment != nil || cc.AssignmentErr == nil {
		t.Errorf("a name that does not resolve: %+v", cc)
	}
	changes := r.ApplyHost("up.example:80", []string{"10.0.0.1:80", "10.0.0.2:80"}, nil)
	if got := leaves(changes); got != "a=d; d=" {
		t.Errorf("resolved: %q", got)
	}
	a := root(changes[1]).Assignment
	if e := a.Localities[0].Endpoints; len(a.Localities) != 1 || len(e) != 1 || len(e[0].Addresses) != 2 || e[0].Hostname != "up.example:80" {
		t.Errorf("one endpoint of all addresses: %+v", a)
	}
	again := r.ApplyHost("up.example:80", nil, errors.New("away"))
	if cc := root(again[1]); cc.Assignment != a || cc.AssignmentErr == nil {
		t.Errorf("an error takes away what was known: %+v", cc)
	}
	r.Apply(resource.SourcePush, []resource.Update{{Item: resource.Item{Key: resource.Key{Type: resource.TypeCluster, Name: "d"}}}})
	if hosts := r.Hosts(); len(hosts) != 0 {
		t.Errorf("unneeded hosts: %v", hosts)
	}
}
