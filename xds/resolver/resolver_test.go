package resolver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// eds is an update of an assignment with one endpoint for each host; no host
// takes it away.
func eds(t *testing.T, name string, hosts ...string) resolver.Update {
	t.Helper()
	u := resolver.Update{Key: resource.Key{Type: resource.TypeAssignment, Name: name}}
	if hosts == nil {
		return u
	}
	var es []string
	for _, h := range hosts {
		es = append(es, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}}`, h))
	}
	d, err := resource.DecodeAssignment(
		[]byte(`{"endpoints":[{"lb_endpoints":[`+strings.Join(es, ",")+`]}]}`), resource.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	u.Raw = d.Raw
	return u
}

// cds is an update of a cluster that takes its endpoints from service; "" takes
// the cluster away.
func cds(t *testing.T, name, service string) resolver.Update {
	t.Helper()
	u := resolver.Update{Key: resource.Key{Type: resource.TypeCluster, Name: name}}
	if service == "" {
		return u
	}
	d, err := resource.DecodeCluster(
		[]byte(`{"type":"EDS","eds_cluster_config":{"service_name":"`+service+`"}}`), resource.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	u.Raw = d.Raw
	return u
}

// say tells changes as "orders=a,b(push)", "orders!why" or "orders gone".
func say(changes []resolver.Change) string {
	var out []string
	for _, c := range changes {
		if c.Config == nil {
			out = append(out, c.Cluster+" gone")
			continue
		}
		cc := c.Config.Clusters[c.Cluster]
		switch {
		case cc.Err != nil:
			out = append(out, c.Cluster+"!"+cc.Err.Error())
		case cc.Assignment == nil:
			out = append(out, c.Cluster+"!"+cc.AssignmentErr.Error())
		default:
			var hosts []string
			for _, l := range cc.Assignment.Localities {
				for _, e := range l.Endpoints {
					hosts = append(hosts, strings.TrimSuffix(e.Addresses[0], ":80"))
				}
			}
			out = append(out, fmt.Sprintf("%s=%s(%s)", c.Cluster, strings.Join(hosts, ","), cc.AssignmentFrom.Source))
		}
	}
	return strings.Join(out, " ")
}

func TestTargetsFollowTheirResources(t *testing.T) {
	const push, file = resource.SourcePush, resource.SourceFile
	type step struct {
		from    resource.Source
		updates []resolver.Update
		want    string
	}
	one := func(u ...resolver.Update) []resolver.Update { return u }
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
		"an assignment serves whoever names it": {
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
			{push, one(resolver.Update{Key: resource.Key{Type: resource.TypeCluster, Name: "a"}, Raw: []byte{0x12, 0x01}}), "a!read protobuf: byte 1: type: the message is cut short"},
			{push, one(cds(t, "a", "a"), eds(t, "a", "h1")), "a=h1(push)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := resolver.New()
			for i, s := range steps {
				if got := say(r.Apply(s.from, s.updates)); got != s.want {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func TestUnchangedPartsAreShared(t *testing.T) {
	r := resolver.New()
	first := r.Apply(resource.SourcePush, []resolver.Update{eds(t, "a", "h1", "h2")})[0].Config.Clusters["a"]
	next := r.Apply(resource.SourcePush, []resolver.Update{eds(t, "a", "h1", "h3")})[0].Config.Clusters["a"]
	if first.Cluster != next.Cluster {
		t.Error("the default configuration was made anew")
	}
	old, now := first.Assignment.Localities[0].Endpoints, next.Assignment.Localities[0].Endpoints
	if old[0] != now[0] || old[1] == now[1] {
		t.Errorf("got %v and %v of %v", now[0], now[1], old)
	}
	// A file with what was pushed keeps the value, though its source changes.
	r.Apply(resource.SourceFile, []resolver.Update{{Key: resource.Key{Type: resource.TypeAssignment, Name: "a"}, Raw: eds(t, "a", "h1", "h3").Raw, Updated: time.Unix(1, 0)}})
	uncovered := r.Apply(resource.SourcePush, []resolver.Update{eds(t, "a")})[0].Config.Clusters["a"]
	if uncovered.Assignment != next.Assignment || uncovered.AssignmentFrom.Source != resource.SourceFile {
		t.Errorf("got %p from %v, want %p", uncovered.Assignment, uncovered.AssignmentFrom, next.Assignment)
	}
}
