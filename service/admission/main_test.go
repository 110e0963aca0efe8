package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

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

// view is the View of resources.
func view(t *testing.T, resources ...string) admission.View {
	t.Helper()
	b, err := decode.All([]byte(file(resources...)), byHand)
	if err != nil {
		t.Fatal(err)
	}
	return func(key resource.Key) (resource.Item, bool) {
		n := slices.IndexFunc(b.Items, func(i resource.Item) bool { return i.Key == key })
		if n < 0 {
			return resource.Item{}, false
		}
		return b.Items[n], true
	}
}

// bad is a file that cannot be read.
const bad = "!"

// driver drives a Files as the watcher and the service do.
type driver struct {
	*testing.T
	*admission.Files

	options admission.FilesOptions
	now     time.Time
	known   map[string]*files.File
	kept    map[string]*files.Version // as an archive has them
	last    files.Set
}

func start(t *testing.T, o admission.FilesOptions) *driver {
	return &driver{T: t, Files: admission.NewFiles(o), options: o, now: begin, known: map[string]*files.File{}, kept: map[string]*files.Version{}}
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

func (d *driver) take(o admission.Outcome) string {
	for name, v := range o.Changed {
		if d.kept[name] = v; v == nil {
			delete(d.kept, name)
		}
	}
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
	o := d.options
	o.InUse, o.Directory = admission.Restore(kept, byHand), files.Identity{Inode: 1}
	d.Files = admission.NewFiles(o)
}

// permit permits the only change that is held, and returns what is in use then.
func (d *driver) permit() string {
	d.Helper()
	held := d.Held()
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
