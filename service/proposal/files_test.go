package proposal_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

const noEndpointsOfA = `cluster "a" would have no usable endpoints; it has 2`

// TestWhatComesIntoUse: each row is scans of a directory, and what is in use after the last.
func TestWhatComesIntoUse(t *testing.T) {
	a2, a1, a0, b1 := file(endpoints("a", 2)), file(endpoints("a", 1)), file(endpoints("a", 0)), file(endpoints("b", 1))
	all := func(names ...string) directory {
		d := directory{}
		for _, name := range names {
			d[name] = file(endpoints(name, 1))
		}
		return d
	}
	misspelled := `{cluster_name: a, endpoints: [{locality: {}, load_balancing_weight: 1, lb_endpoint: []}]}`
	// A file that came beside the removals counts at the next scan.
	const of = "3 of 4"
	again := map[string]string{"held removals do not hold others": "3 of 5"}
	for name, c := range map[string]struct {
		scans []directory
		want  string
	}{
		"a good change": {[]directory{{"f": a2}, {"f": a1}}, "a=1"},
		"a misspelled field": {
			[]directory{{"f": a2}, {"f": misspelled}}, "a=2, !f kept",
		},
		"a file that cannot be read":          {[]directory{{"f": a2}, {"f": bad}}, "a=2, !f kept"},
		"a bad file without a last good one":  {[]directory{{"f": misspelled}}, "a=0, !f partial"},
		"a bad file of which nothing is good": {[]directory{{"f": "x: ["}}, "!f not used"},
		"a file of which a part is good":      {[]directory{{"f": file(endpoints("a", 1), `{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: STATIC}`)}}, "a=1, rejected c, !f partial"},
		"a bad file that is mended":           {[]directory{{"f": misspelled}, {"f": a1}}, "a=1"},
		"a bad file that is another bad file": {[]directory{{"f": misspelled}, {"f": file(endpoints("a", 1), "{foo: 1}")}}, "a=1, !f partial"},
		"no usable endpoint":                  {[]directory{{"f": a2}, {"f": a0}}, "a=2, held(modified f: " + noEndpointsOfA + ")"},
		"none from the beginning":             {[]directory{{"f": a0}}, "a=0"},
		"none, as before":                     {[]directory{{"f": a0}, {"f": file(endpoints("a", 0), endpoints("b", 1))}}, "a=0, b=1"},
		"none, of a new cluster":              {[]directory{{"f": a2}, {"f": file(endpoints("a", 2), endpoints("b", 0))}}, "a=2, b=0"},
		"held, and corrected":                 {[]directory{{"f": a2}, {"f": a0}, {"f": a1}}, "a=1"},
		"held, and then bad":                  {[]directory{{"f": a2}, {"f": a0}, {"f": bad}}, "a=2, !f kept"},
		"held does not hold others":           {[]directory{{"f": a2, "g": b1}, {"f": a0, "g": file(endpoints("b", 3))}}, "a=2, b=3, held(modified f: " + noEndpointsOfA + ")"},
		"an assignment that a Cluster needs": {
			[]directory{{"c": file(cluster("c", "a")), "f": a2}, {"c": file(cluster("c", "a"))}},
			"a=2, cluster c, held(removed f: cluster \"c\" would have no usable endpoints; it has 2)",
		},
		"a Cluster that is led to nowhere": {
			[]directory{{"c": file(cluster("c", "a")), "f": a2}, {"c": file(cluster("c", "nowhere")), "f": a2}},
			"a=2, cluster c, held(modified c: cluster \"c\" would have no usable endpoints; it has 2)",
		},
		"an aggregate that keeps a leaf": {
			[]directory{
				{"c": file(aggregate("a", "b")), "f": a2, "g": b1, "x": file(endpoints("x", 1))},
				{"c": file(aggregate("a", "b")), "g": b1, "x": file(endpoints("x", 1))},
			},
			"cluster all, b=1, x=1",
		},
		"an aggregate whose last leaf goes": {
			[]directory{{"c": file(aggregate("a")), "f": a2}, {"c": file(aggregate("a"))}},
			"a=2, cluster all, held(removed f: cluster \"all\" would have no usable endpoints; it has 2)",
		},
		"the only file is removed":  {[]directory{{"f": a2}, {}}, ""},
		"one of two is removed":     {[]directory{all("a", "b"), all("b")}, "b=1"},
		"both are removed":          {[]directory{all("a", "b"), {}}, "a=1, b=1, held(removed a + removed b: removes 2 of 2 clusters, limit 1 (--max-removed))"},
		"half of four are removed":  {[]directory{all("a", "b", "c", "d"), all("c", "d")}, "c=1, d=1"},
		"three of four are removed": {[]directory{all("a", "b", "c", "d"), all("d")}, "a=1, b=1, c=1, d=1, held(removed a + removed b + removed c: removes 3 of 4 clusters, limit 2 (--max-removed))"},
		"clusters of one file are removed": {
			[]directory{{"f": file(endpoints("a", 1), endpoints("b", 1), endpoints("c", 1))}, {"f": file(endpoints("c", 1))}},
			"a=1, b=1, c=1, held(modified f: removes 2 of 3 clusters, limit 1 (--max-removed))",
		},
		"a file is emptied": {
			[]directory{{"f": file(endpoints("a", 1), endpoints("b", 1))}, {"f": "resources: []"}},
			"a=1, b=1, held(modified f: removes 2 of 2 clusters, limit 1 (--max-removed))",
		},
		"held removals do not hold others": {
			[]directory{all("a", "b", "c", "d"), {"d": file(endpoints("d", 5)), "e": file(endpoints("e", 1))}},
			"a=1, b=1, c=1, d=5, e=1, held(removed a + removed b + removed c: removes 3 of 4 clusters, limit 2 (--max-removed))",
		},
		"files are renamed": {
			[]directory{all("a", "b", "c"), {"x": file(endpoints("a", 1)), "y": file(endpoints("b", 1)), "z": file(endpoints("c", 1))}},
			"a=1, b=1, c=1",
		},
		"files become one": {
			[]directory{all("a", "b", "c"), {"x": file(endpoints("a", 1), endpoints("b", 1), endpoints("c", 1))}},
			"a=1, b=1, c=1",
		},
		// b moved from g to f, which is held because it empties a: g alone would remove b.
		"a move into a held file": {
			[]directory{{"f": a2, "g": b1}, {"f": file(endpoints("a", 0), endpoints("b", 1))}},
			"a=2, b=1, held(modified f + removed g: " + noEndpointsOfA + ")",
		},
		"two files hold the same": {[]directory{{"f": a2, "g": a1}}, "a=2, !g twice"},
		"a new file empties another's cluster": {
			[]directory{{"g": a2}, {"f": a0, "g": a2}}, "a=2, held(added f: " + noEndpointsOfA + ")",
		},
		"a file that has what is not changed is not held": {
			[]directory{{"c": file(cluster("c", "a"), endpoints("b", 1)), "f": a2}, {"c": file(cluster("c", "a"), endpoints("b", 3)), "f": a0}},
			"a=2, b=3, cluster c, held(modified f: " + noEndpointsOfA + "; cluster \"c\" would have no usable endpoints; it has 2)",
		},
		"two changes are held apart": {
			[]directory{{"f": a2, "g": b1}, {"f": a0, "g": file(endpoints("b", 0))}},
			"a=2, b=1, held(modified f: " + noEndpointsOfA + "), held(modified g: cluster \"b\" would have no usable endpoints; it has 1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, setting{}).play(c.scans, c.want, strings.Replace(c.want, of, cmp.Or(again[name], of), 1))
		})
	}
}

func TestMaxRemoved(t *testing.T) {
	for most, want := range map[int]bool{0: true, 1: true, 2: false, 100: false} {
		d := start(t, setting{maxRemoved: &most})
		d.scan(directory{"a": file(endpoints("a", 1)), "b": file(endpoints("b", 1))})
		d.scan(directory{})
		if held := len(d.last.Held) > 0; held != want {
			t.Errorf("two of two are removed, at most %d: held %t, want %t", most, held, want)
		}
	}
}

func TestADecisionPermitsOneChangeOnce(t *testing.T) {
	two, one, none := directory{"f": file(endpoints("a", 2))}, directory{"f": file(endpoints("a", 1))}, directory{"f": file(endpoints("a", 0))}
	held := "a=2, held(modified f: " + noEndpointsOfA + ")"
	d := start(t, setting{})
	d.scan(two)
	d.expect("held", d.scan(none), held)
	hash, since := d.last.Held[0].Hash, d.last.Held[0].Since
	d.expect("held still", d.scan(none), held)
	if h := d.last.Held[0]; h.Hash != hash || !h.Since.Equal(since) {
		t.Errorf("the same change is %s since %v, and was %s since %v", h.Hash, h.Since, hash, since)
	}
	if _, _, ok := d.Permit("another", d.next()); ok {
		t.Error("a change that is not held was permitted")
	}
	d.expect("permitted", d.permit(), "a=0")
	if _, _, ok := d.Permit(hash, d.next()); ok {
		t.Error("it was permitted twice")
	}
	d.restart()
	d.expect("after a restart", d.scan(none), "a=0")
	d.scan(two)
	d.expect("made again", d.scan(none), held)
	if got := d.last.Held[0].Hash; got != hash {
		t.Errorf("the same change has the hash %s, and had %s", got, hash)
	}
	d.scan(one)
	d.scan(none)
	if got := d.last.Held[0].Hash; got == hash {
		t.Error("the same content after another has the same hash: another change was permitted")
	}
}

func TestADecisionLeavesOtherChangesHeld(t *testing.T) {
	d := start(t, setting{})
	d.scan(directory{"f": file(endpoints("a", 2)), "g": file(endpoints("b", 1))})
	d.scan(directory{"f": file(endpoints("a", 0)), "g": file(endpoints("b", 0))})
	for _, h := range d.last.Held {
		if h.Files[0].File != "g" {
			continue
		}
		o, _, _ := d.Permit(h.Hash, d.next())
		d.expect("g is permitted", d.take(o), "a=2, b=0, held(modified f: "+noEndpointsOfA+")")
	}
}

// TestADirectoryThatIsAwayRemovesNothing: files that seem removed may be unreadable.
func TestADirectoryThatIsAwayRemovesNothing(t *testing.T) {
	files1 := directory{"f": file(endpoints("a", 2))}
	d := start(t, setting{})
	d.scan(files1)
	away := &files.Scan{Err: errors.New("open: too many open files")}
	d.expect("cannot be read", d.take(d.Scanned(away, d.next())), "a=2, !. kept")
	since := d.last.Bad[0].Since
	d.take(d.Scanned(away, d.next()))
	if got := d.last.Bad[0].Since; !got.Equal(since) {
		t.Errorf("away since %v, want %v", got, since)
	}

	// The directory below a mount that is gone is another one, and empty. That the
	// only cluster may be removed does not matter.
	below := files.Identity{Inode: 2}
	const held = "a=2, held(removed f: the directory is another one than before, and holds no resource files: is its file system mounted?)"
	d.expect("unmounted", d.scanOf(below, directory{}), held)
	d.expect("unmounted still", d.scanOf(below, directory{}), held)
	d.expect("mounted again", d.scan(files1), "a=2")
	d.expect("unmounted again", d.scanOf(below, directory{}), held)
	d.restart()
	d.expect("unmounted before a restart", d.scanOf(below, directory{}), held)
	d.expect("permitted", d.permit(), "")
	d.expect("from then on", d.scanOf(below, directory{}), "")
	d.expect("removed", d.scanOf(below, files1)+d.scanOf(below, directory{}), "a=2")
}

func TestPushesAndPicksCountForTheGuard(t *testing.T) {
	picked := setting{guard: proposal.Guard{Picked: func(cluster string) bool { return cluster == "a" }}}
	for name, c := range map[string]struct {
		setting

		scans [2]directory
		held  bool
	}{
		"a pushed Cluster needs a file's assignment": {
			setting{pushed: []string{cluster("a", "a")}}, [2]directory{{"f": file(endpoints("a", 1))}, {}}, true,
		},
		"a pushed Cluster of another name needs it": {
			setting{pushed: []string{cluster("c", "a")}}, [2]directory{{"f": file(endpoints("a", 1))}, {}}, true,
		},
		"a file's Cluster is led away from a pushed assignment": {
			setting{pushed: []string{endpoints("a", 1)}}, [2]directory{{"f": file(cluster("c", "a"))}, {"f": file(cluster("c", "nowhere"))}}, true,
		},
		"a push covers what is emptied, and could be deleted": {
			setting{pushed: []string{endpoints("a", 1)}}, [2]directory{{"f": file(endpoints("a", 1))}, {"f": file(endpoints("a", 0))}}, true,
		},
		"an overlay masks what stays": {
			setting{overlay: &resource.Overlay{Cluster: "a", Kind: resource.OverlayDrain, Endpoint: "a-0:80"}},
			[2]directory{{"f": file(endpoints("a", 2))}, {"f": file(endpoints("a", 1))}},
			true,
		},
		"a server's Cluster needs it, and the server may have it": {
			setting{configured: []string{cluster("c", "a")}}, [2]directory{{"f": file(endpoints("a", 1))}, {}}, false,
		},
		"a server may have the assignment": {
			setting{server: true}, [2]directory{{"f": file(cluster("c", "a"), endpoints("a", 1))}, {"f": file(cluster("c", "elsewhere"), endpoints("a", 1))}}, false,
		},
		"no cluster needs it":                       {setting{}, [2]directory{{"f": file(endpoints("a", 1))}, {}}, false},
		"its cluster has picks":                     {picked, [2]directory{{"f": file(endpoints("a", 1))}, {}}, true},
		"its cluster has picks, and the file stays": {picked, [2]directory{{"f": file(endpoints("a", 1))}, {"f": "{resources: []}"}}, true},
		"its cluster has picks, and no endpoint":    {picked, [2]directory{{"f": file(endpoints("a", 0))}, {}}, false},
		"its cluster has picks, and it moves":       {picked, [2]directory{{"f": file(endpoints("a", 1))}, {"g": file(endpoints("a", 1))}}, false},
		"another cluster has picks":                 {picked, [2]directory{{"f": file(endpoints("b", 1))}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, c.setting)
			d.scan(c.scans[0])
			got := d.scan(c.scans[1])
			if held := len(d.last.Held) == 1; held != c.held {
				t.Errorf("held %t, want %t: %s", held, c.held, got)
			}
		})
	}
}

// TestAHeldChangeSaysWhatItWouldDo: a held change lists its losses, up to a limit.
func TestAHeldChangeSaysWhatItWouldDo(t *testing.T) {
	d := start(t, setting{})
	before := directory{}
	for i := range 2*proposal.MaxHeldClusters + 2 {
		name := fmt.Sprintf("c%02d", i)
		before[name] = file(endpoints(name, 1))
	}
	d.scan(before)
	d.scan(directory{})
	h := d.last.Held[0]
	if len(h.Files) != len(before) || len(h.Clusters) != proposal.MaxHeldClusters+1 || len(h.Differences) != proposal.MaxHeldClusters+1 {
		t.Errorf("%d files, %d clusters, %d differences", len(h.Files), len(h.Clusters), len(h.Differences))
	}
	if got, want := h.Differences[0], "c00: c00: removed with 1 usable endpoint"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := h.Clusters[proposal.MaxHeldClusters], "and 22 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAFileHasItsWarningsAfterARestart: warnings come from the file, not from the archive.
func TestAFileHasItsWarningsAfterARestart(t *testing.T) {
	dir := directory{"f": `{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS, connect_timeout: 1s}`}
	d := start(t, setting{})
	d.scan(dir)
	want := len(d.last.Warnings["f"])
	d.restart()
	d.scan(dir)
	if got := len(d.last.Warnings["f"]); want == 0 || got != want {
		t.Errorf("%d warnings, before the restart %d", got, want)
	}
}

// TestWhatIsKeptStaysInUse: a version that was accepted stays in use, with a warning, if it is
// rejected now.
func TestWhatIsKeptStaysInUse(t *testing.T) {
	content := file(edsWith("c", strings.Replace(tls, "system_root_certs: {}", "ca_certificate_provider_instance: {instance_name: gone}", 1)))
	old := byHand
	old.Stored = true // as with the bootstrap that had the provider
	b, err := decode.All([]byte(content), old)
	noError(t, err)
	d := start(t, setting{})
	d.kept["f"] = &files.Version{Sum: content, Modified: begin, Items: b.Items}
	d.restart()
	d.expect("rejected now", d.scan(directory{"f": content}), "cluster c, !f kept")
	if w := d.last.Warnings["f"]; len(w) != 1 || !strings.HasPrefix(w[0].Field, "transport_socket") {
		t.Errorf("warnings: %v", w)
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]int{
		endpoints("a", 1): 0,
		endpoints("a", 0): 1,
		cluster("c", "a"): 0,
		cluster("c", "a") + ", " + endpoints("a", 0): 2,
		cluster("c", "a") + ", " + endpoints("a", 1): 0,
		cluster("a", "a") + ", " + endpoints("a", 0): 1,
		aggregate("a") + "," + endpoints("a", 1):     0,
	} {
		b, err := decode.All([]byte(file(text)), byHand)
		noError(t, err)
		if got := proposal.Check(b.Items); len(got) != want {
			t.Errorf("%s: %v, want %d", text, got, want)
		}
	}
}

// begin is when every test begins; each scan is a minute later than the one before.
var begin = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

var byHand = decode.Options{Origin: decode.ByHand, Format: decode.FormatYAML, Bare: true}

// endpoints is an assignment of a name with n usable endpoints.
func endpoints(name string, n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s-%d, port_value: 80}}}}", name, i))
	}
	localities := ""
	if n > 0 {
		localities = "{load_balancing_weight: 1, locality: {}, lb_endpoints: [" + strings.Join(list, ", ") + "]}"
	}
	return fmt.Sprintf("{\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: %s, endpoints: [%s]}", name, localities)
}

// cluster is an EDS Cluster whose endpoints are of an assignment.
func cluster(name, assignment string) string {
	return fmt.Sprintf("{\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %s, type: EDS, eds_cluster_config: {service_name: %s}}", name, assignment)
}

// aggregate is the Cluster "all", which is made of others.
func aggregate(of ...string) string {
	return fmt.Sprintf("{\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: all, cluster_type: {name: envoy.clusters.aggregate, "+
		"typed_config: {\"@type\": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [%s]}}}", strings.Join(of, ", "))
}

// directory is what lies in the directory: the resources of each file, or why it is
// bad.
type directory map[string]string

func file(resources ...string) string { return "resources: [" + strings.Join(resources, ", ") + "]" }

// items are resources that a test writes.
func items(t *testing.T, resources ...string) []resource.Item {
	t.Helper()
	b, err := decode.All([]byte(file(resources...)), byHand)
	noError(t, err)
	return b.Items
}

// setting is what there is beside the files.
type setting struct {
	pushed []string
	// configured are resources of a management server; with them, or with server, there is one.
	configured []string
	server     bool
	overlay    *resource.Overlay
	guard      proposal.Guard
	maxRemoved *int
}

// bad is a file that cannot be read.
const bad = "!"

// driver drives a Files as the watcher and the service do.
type driver struct {
	*testing.T
	*proposal.Files

	setting  setting
	resolver *resolver.Resolver
	now      time.Time
	known    map[string]*files.File
	kept     map[string]*files.Version // as an archive has them
	last     files.Set
}

func start(t *testing.T, s setting) *driver {
	d := &driver{T: t, setting: s, now: begin, known: map[string]*files.File{}, kept: map[string]*files.Version{}}
	d.begin(nil, files.Identity{})
	return d
}

// begin begins with a new resolver, and with what an archive has kept.
func (d *driver) begin(kept map[string]*files.Version, id files.Identity) {
	s := d.setting
	d.resolver = resolver.New(resolver.Options{Server: s.server || s.configured != nil})
	pushed := map[resource.Key]bool{}
	for _, i := range items(d.T, s.pushed...) {
		pushed[i.Key] = true
		d.resolver.Apply(resource.SourcePush, []resource.Update{{Item: i}})
	}
	for _, i := range items(d.T, s.configured...) {
		target := resolver.Target(i.Key.Name)
		d.resolver.Host(target)
		d.resolver.Apply(resource.SourceADS, []resource.Update{{Target: target, Item: i}})
	}
	if s.overlay != nil {
		d.resolver.Accept(&resolver.Proposal{Overlays: map[string][]*resource.Overlay{s.overlay.Cluster: {s.overlay}}})
	}
	d.Files = proposal.NewFiles(proposal.FilesOptions{
		Evaluate: func(p *resolver.Proposal, earlier ...*resolver.Proposal) *proposal.Outcome {
			return proposal.Evaluate(d.resolver, p, earlier...)
		},
		Guard: s.guard, MaxRemoved: s.maxRemoved, Pushed: func(key resource.Key) bool { return pushed[key] },
		InUse: proposal.Restore(kept, byHand), Directory: id,
	})
	d.last = files.Set{}
}

// read is a file as the watcher reads it.
func (d *driver) read(name, content string) *files.File {
	if old := d.known[name+content]; old != nil {
		return old
	}
	f := &files.File{Sum: content, Modified: d.now}
	if content == bad {
		f = &files.File{Err: fmt.Errorf("cannot be read"), Since: d.now}
	} else if f.Bundle, f.Err = decode.All([]byte(content), byHand); f.Err != nil {
		lenient := byHand
		lenient.Lenient = true
		f.Valid, f.Since = decode.Valid([]byte(content), lenient), d.now
	}
	d.known[name+content] = f
	return f
}

// scan takes a scan of a directory, and returns what is in use then.
func (d *driver) scan(dir directory) string {
	return d.scanOf(files.Identity{Inode: 1}, dir)
}

func (d *driver) scanOf(id files.Identity, dir directory) string {
	s := &files.Scan{Identity: id, Files: map[string]*files.File{}}
	for name, content := range dir {
		s.Files[name] = d.read(name, content)
	}
	return d.take(d.Scanned(s, d.next()))
}

func (d *driver) next() time.Time {
	d.now = d.now.Add(time.Minute)
	return d.now
}

func (d *driver) take(o proposal.FilesOutcome) string {
	for name, v := range o.Changed {
		if d.kept[name] = v; v == nil {
			delete(d.kept, name)
		}
	}
	d.resolver.Apply(resource.SourceFile, proposal.Changes(&d.last, &o.Set))
	d.last = o.Set
	return summary(o.Set)
}

// restart begins again with what an archive has kept.
func (d *driver) restart() {
	kept := map[string]*files.Version{}
	for name, v := range d.kept {
		restored := &files.Version{Sum: v.Sum, Modified: v.Modified, Partial: v.Partial, Restored: true, Rejected: v.Rejected}
		for _, i := range v.Items {
			restored.Items = append(restored.Items, resource.Item{Key: i.Key, Field: i.Field, Raw: i.Raw})
		}
		kept[name] = restored
	}
	d.begin(kept, files.Identity{Inode: 1})
}

// permit permits the only change that is held, and returns what is in use then.
func (d *driver) permit() string {
	d.Helper()
	held := d.last.Held
	if len(held) != 1 {
		d.Fatalf("%d changes are held: %+v", len(held), held)
	}
	o, _, ok := d.Permit(held[0].Hash, d.next())
	if !ok {
		d.Fatalf("%s is not held", held[0].Hash)
	}
	return d.take(o)
}

// play takes scans one after another, and checks what is in use after the last, and after a
// restart and one more scan of the last directory.
func (d *driver) play(scans []directory, want, restarted string) {
	d.Helper()
	var got string
	for _, dir := range scans {
		got = d.scan(dir)
	}
	d.expect("in use", got, want)
	d.restart()
	d.expect("after a restart", d.scan(scans[len(scans)-1]), restarted)
}

func (d *driver) expect(what, got, want string) {
	d.Helper()
	if got != want {
		d.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// summary is "name=usable" of each assignment, "cluster name", "rejected name", then "!file" of what is
// bad with how it is used, then "held(files: reasons)".
func summary(s files.Set) string {
	var parts []string
	for _, key := range slices.SortedFunc(maps.Keys(s.Resources), func(a, b resource.Key) int { return strings.Compare(a.Name+string(a.Type), b.Name+string(b.Type)) }) {
		if a := s.Resources[key].Assignment; a != nil {
			parts = append(parts, fmt.Sprintf("%s=%d", key.Name, a.Usable()))
		} else {
			parts = append(parts, "cluster "+key.Name)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Rejected), func(a, b resource.Key) int { return strings.Compare(a.Name, b.Name) }) {
		parts = append(parts, "rejected "+key.Name)
	}
	for _, b := range s.Bad {
		how := "not used"
		switch {
		case b.Kept:
			how = "kept"
		case b.Partial:
			how = "partial"
		case b.Twice:
			how = "twice"
		}
		parts = append(parts, fmt.Sprintf("!%s %s", b.File, how))
	}
	for _, h := range s.Held {
		var names []string
		for _, c := range h.Files {
			names = append(names, c.Change+" "+c.File)
		}
		parts = append(parts, fmt.Sprintf("held(%s: %s)", strings.Join(names, " + "), strings.Join(h.Reasons, "; ")))
	}
	return strings.Join(parts, ", ")
}
