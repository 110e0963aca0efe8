package sources_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// archive is a FileArchive in memory.
type archive struct {
	kept map[string]*files.Version
	id   files.Identity
	err  error // of Save

	scanned func(*files.Scan) // after watch
}

func (a *archive) watch(scanned func(*files.Scan)) error {
	a.scanned = scanned
	return nil
}

func (a *archive) Load() (map[string]*files.Version, files.Identity) { return maps.Clone(a.kept), a.id }

func (a *archive) Save(versions map[string]*files.Version, id files.Identity) error {
	if a.err != nil {
		return a.err
	}
	a.id = id
	for name, v := range versions {
		if a.kept[name] = v; v == nil {
			delete(a.kept, name)
		}
	}
	return nil
}

// filed is a service that reads resource files, and what it logs.
type filed struct {
	*testing.T
	*service.Service

	archive *archive
	log     *bytes.Buffer
}

func startFiled(t *testing.T, a *archive) *filed {
	t.Helper()
	d := &filed{T: t, archive: a, log: new(bytes.Buffer)}
	if a.kept == nil {
		a.kept = map[string]*files.Version{}
	}
	d.Service, _ = servicetest.Start(t, "", func(o *service.Options) {
		o.Logger = slog.New(slog.NewTextHandler(d.log, nil))
		o.Sources.Changelog = changelog.Limits{Changes: 100, Bytes: 1 << 20}
	}, func(c *sources.Connections) { c.Files, c.WatchFiles = a, a.watch })
	return d
}

// scan takes a scan of files that each have the assignment of their name, with that
// many usable endpoints.
func (d *filed) scan(usable map[string]int) {
	d.Helper()
	s := &files.Scan{Identity: files.Identity{Inode: 1}, Files: map[string]*files.File{}}
	for name, n := range usable {
		body := []byte(`{"cluster_name":"` + name + `"}`)
		if n > 0 {
			body = servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints(name, n)))
		}
		b, err := decode.All(body, decode.Options{Bare: true, Name: name})
		servicetest.Must(d, err)
		s.Files[name] = &files.File{Sum: string(body), Modified: time.Unix(1000, 0), Bundle: b}
	}
	d.archive.scanned(s)
}

func (d *filed) picks(cluster string) fault.Code {
	servicetest.Must(d, d.Sources.Settle(d.Context()))
	_, err := servicetest.Pick(d.Service, picks.Request{Cluster: cluster})
	return servicetest.Code(err)
}

// gauges returns the series of some families, each as its name and the values of its labels.
func gauges(t *testing.T, g prometheus.Gatherer, names ...string) map[string]float64 {
	t.Helper()
	families, err := prometheus.Gatherers{g}.Gather() // which finds inconsistent series
	servicetest.Must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var series strings.Builder
			series.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				series.WriteString(" " + l.GetValue())
			}
			if slices.Contains(names, f.GetName()) {
				out[series.String()] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// The last cluster can be removed from the files, but not while it has picks.
func TestAClusterWithPicksIsNotRemoved(t *testing.T) {
	d := startFiled(t, &archive{})
	for _, c := range []struct {
		cluster string
		picks   int
		held    int
	}{{"a", 0, 0}, {"b", 1, 1}} {
		d.scan(map[string]int{c.cluster: 2})
		servicetest.Must(t, d.Sources.Settle(t.Context()))
		for range c.picks {
			if code := d.picks(c.cluster); code != "" {
				t.Fatalf("pick of %s: %s", c.cluster, code)
			}
		}
		d.scan(nil)
		if held := d.Sources.Files().Held; len(held) != c.held {
			t.Errorf("%s with %d picks: held %+v", c.cluster, c.picks, held)
		}
	}
	if code := d.picks("b"); code != "" {
		t.Errorf("pick of the cluster that is held: %s", code)
	}
}

func TestAHeldChangeIsReportedUntilItIsPermitted(t *testing.T) {
	d := startFiled(t, &archive{})
	d.scan(map[string]int{"a": 2, "b": 1})
	d.scan(map[string]int{"a": 0, "b": 3})
	d.scan(map[string]int{"a": 0, "b": 3})
	if a, b := d.picks("a"), d.picks("b"); a != "" || b != "" {
		t.Errorf("picks of a: %s, of b: %s", a, b)
	}
	const why = `cluster "a" would have no usable endpoints; it has 2`
	state := d.Sources.Files()
	if len(state.Held) != 1 || state.Held[0].Reasons[0] != why || state.Files[0].State != sources.FileHeld ||
		state.Files[0].Held != state.Held[0].Hash || state.Files[1].State != sources.FileGood {
		t.Fatalf("got %+v", state)
	}
	hash := state.Held[0].Hash
	if got := servicetest.Says(d.Service, observe.EventChangeHeld); len(got) != 1 || !strings.HasSuffix(got[0], why) {
		t.Errorf("events: %q", got)
	}
	if got := strings.Count(d.log.String(), "level=ERROR"); got != 1 || !strings.Contains(d.log.String(), hash) {
		t.Errorf("%d errors are logged:\n%s", got, d.log)
	}
	if got := d.State.Conditions(nil); len(got) != 1 || got[0].Kind != observe.ConditionChangeHeld || !strings.Contains(got[0].Remedy, sources.PermitPath(hash)) {
		t.Errorf("conditions: %+v", got)
	}
	if got := gauges(t, d.Metrics, "lbd_held_changes", "lbd_resource_files"); !maps.Equal(got, map[string]float64{
		"lbd_held_changes": 1, "lbd_resource_files bad": 0, "lbd_resource_files good": 1, "lbd_resource_files held": 1,
	}) {
		t.Errorf("series: %v", got)
	}

	if _, err := d.Sources.PermitFiles(t.Context(), "another", "me"); servicetest.Code(err) != fault.UnknownChange {
		t.Errorf("another: %v", err)
	}
	first, err := d.Sources.PermitFiles(t.Context(), hash, "me")
	if err != nil || first.By != "me" || !first.Kept {
		t.Errorf("permitted: %+v, %v", first, err)
	}
	servicetest.Expect(t, "picks of a", d.picks("a"), fault.NoReadyEndpoint)
	if again, err := d.Sources.PermitFiles(t.Context(), hash, "another"); err != nil || again != first {
		t.Errorf("permitted again: %+v, %v; want %+v", again, err, first)
	}
	if got := servicetest.Says(d.Service, observe.EventChangePermitted); len(got) != 1 || len(d.Sources.Files().Held) != 0 {
		t.Errorf("events: %q", got)
	}
	if got, want := servicetest.Says(d.Service, observe.EventFileChanged), []string{
		"2 resources changed: a: added with 2 usable endpoints; b: added with 1 usable endpoint",
		"1 resource changed: b: 2 endpoints added to /a", "1 resource changed: a: locality /a removed with 2 endpoints",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	// It counts once.
	d.scan(map[string]int{"a": 2, "b": 3})
	d.scan(map[string]int{"a": 0, "b": 3})
	if got := d.picks("a"); got != "" || len(d.Sources.Files().Held) != 1 || d.Sources.Files().Held[0].Hash != hash {
		t.Errorf("made again, picks of a: %s, held: %+v", got, d.Sources.Files().Held)
	}
}

// TestUnwritableArchive: files are in use, and changes can be permitted, if the disk is
// full.
func TestUnwritableArchive(t *testing.T) {
	d := startFiled(t, &archive{err: errors.New("no space")})
	d.scan(map[string]int{"a": 2})
	d.scan(map[string]int{"a": 0})
	p, err := d.Sources.PermitFiles(t.Context(), d.Sources.Files().Held[0].Hash, "me")
	if err != nil || p.Kept || d.picks("a") != fault.NoReadyEndpoint {
		t.Errorf("permitted: %+v, %v", p, err)
	}
}

func TestPermitFilesWithoutADirectory(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	if _, err := s.Sources.PermitFiles(t.Context(), "0", "me"); servicetest.Code(err) != fault.UnknownChange {
		t.Errorf("got %v", err)
	}
}

// TestPushesAreDescribed: the answer to a push, also to a dry run, and the event describe
// the change.
func TestPushesAreDescribed(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	body := func(n int) []byte {
		return servicetest.Usable("a", n)
	}
	servicetest.Push(t, s, sources.Endpoints, "orders", body(3))
	const want = "2 endpoints removed from /a"
	for _, dry := range []bool{true, false} {
		res, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body(1), Options: sources.ChangeOptions{DryRun: dry}})
		if err != nil || len(res.Changes) != 1 || res.Changes[0].Difference != want {
			t.Errorf("dry run %t: %+v, %v", dry, res, err)
		}
	}
	if got := servicetest.Says(s, observe.EventPushed); got[1] != "1 resource changed: orders: "+want {
		t.Errorf("events: %q", got)
	}
	res, err := s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{})
	if err != nil || res.Changes[0].Difference != "removed with 1 usable endpoint" {
		t.Errorf("deleted: %+v, %v", res, err)
	}
}

// TestSnapshotThatTakesEndpointsAway: a snapshot is blocked if it would delete the endpoints
// of a cluster that stays.
func TestSnapshotThatTakesEndpointsAway(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	s.Sources.FilesChanged(inFiles(t, map[resource.Key][]byte{{Type: sources.Config, Name: "a"}: servicetest.Config(7)}))
	servicetest.Push(t, s, sources.Endpoints, "a", servicetest.Usable("a", 2))
	servicetest.Push(t, s, sources.Endpoints, "b", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("b", 1))))
	without := sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Body: snapshot([]string{"b"})}
	if _, err := pushSnapshot(t, s, without); servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("without a's endpoints: %v", err)
	}
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "a"}); err != nil {
		t.Errorf("a pick: %v", err)
	}
	without.Options.AllowEmpty = true
	if _, err := pushSnapshot(t, s, without); err != nil {
		t.Errorf("with allow_empty: %v", err)
	}
}

// TestChangesByDNSAreDescribed: each new list of addresses of a DNS name is an event.
func TestChangesByDNSAreDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan []string, 2)
		answers <- []string{"10.0.0.1", "10.0.0.2"}
		answers <- []string{"10.0.0.2", "10.0.0.3"}
		s, stop := servicetest.Start(t, "", func(o *service.Options) {
			o.Sources.Lookup = func(context.Context, string) ([]string, error) {
				select {
				case a := <-answers:
					return a, nil
				default:
					return []string{"10.0.0.2", "10.0.0.3"}, nil
				}
			}
		})
		defer stop()
		servicetest.Push(t, s, sources.Config, "orders", []byte(`{"type":"LOGICAL_DNS","load_assignment":{"endpoints":[{"lb_endpoints":[`+
			`{"endpoint":{"address":{"socket_address":{"address":"orders.example","port_value":80}}}}]}]}}`))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got, want := servicetest.Says(s, observe.EventDNSChanged), []string{
			"orders.example:80 resolves to 2 addresses: added 10.0.0.1:80, 10.0.0.2:80",
			"orders.example:80 resolves to 2 addresses: removed 10.0.0.1:80; added 10.0.0.3:80",
		}; !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
