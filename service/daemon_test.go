package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// badFiles is a directory with these bad files.
func badFiles(since time.Time, names ...string) files.Set {
	var set files.Set
	for _, name := range names {
		set.Bad = append(set.Bad, files.Bad{File: name, Err: errors.New("not YAML"), Since: since, Kept: true})
	}
	return set
}

func TestDaemonHasConditionsOfAllSources(t *testing.T) {
	var failing []observe.Condition
	s, _ := servicetest.Start(t, "", func(o *service.Options) {
		o.Name, o.Conditions = "lbd-1", []func() []observe.Condition{func() []observe.Condition { return failing }}
	})
	if d := s.State.Daemon(nil); d.Name != "lbd-1" || d.Version != "test" || d.Started.IsZero() || d.Conditions == nil || len(d.Conditions) != 0 {
		t.Errorf("a healthy daemon: %+v", d)
	}
	since := time.Unix(1000, 0)
	s.Sources.FilesChanged(badFiles(since, "b.yaml"))
	failing = []observe.Condition{
		{Kind: observe.ConditionShortage, Subject: "descriptors", Since: since, Text: "no descriptors are left"},
		{Kind: observe.ConditionStoreFailing, Since: since, Text: "lbd.db was replaced", Remedy: "restart", NotReady: true},
	}
	var kinds []string
	for _, c := range s.State.Conditions(nil) {
		kinds = append(kinds, string(c.Kind))
	}
	if want := []string{"store_failing", "shortage", "file_bad"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
	var health []string
	for _, c := range s.Readiness(nil)[2:] {
		health = append(health, fmt.Sprint(c.Name, " ", c.OK, " ", c.Warning, ": ", c.Detail))
	}
	want := []string{
		"store_failing false false: lbd.db was replaced: restart",
		"shortage true true: no descriptors are left",
		"file_bad true true: resource file b.yaml is bad (not YAML); its last good content stays in use: correct the file; lbd check lists every error",
	}
	if !slices.Equal(health, want) {
		t.Errorf("got  %q\nwant %q", health, want)
	}
	var series strings.Builder
	for _, kind := range observe.ConditionKinds {
		n := 0
		if slices.Contains(kinds, string(kind)) {
			n = 1
		}
		fmt.Fprintf(&series, "lbd_conditions{kind=%q} %d\n", kind, n)
	}
	service.CompareSeries(t, s.Metrics, series.String())
}

// However many files are bad, an answer stays small, and says that there are more.
func TestConditionsOfAKindAreLimited(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	names := make([]string, observe.MaxConditions+3)
	for i := range names {
		names[i] = fmt.Sprintf("%02d.yaml", len(names)-i)
	}
	s.Sources.FilesChanged(badFiles(time.Unix(1000, 0), names...))
	got := s.State.Conditions(nil)
	if len(got) != observe.MaxConditions+1 {
		t.Fatalf("%d conditions", len(got))
	}
	if first, last := got[0], got[len(got)-1]; first.Subject != "01.yaml" || last.Kind != observe.ConditionFileBad || last.Text != "3 more of this kind" {
		t.Errorf("first %+v, last %+v", first, last)
	}
}

func TestWatchDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		begin := func() watching {
			return watch(t)(s.Watches.WatchDaemon(nil))
		}
		first := begin()
		conditions := func(m message) int { return len(read[observe.DaemonState](t, m.data).Conditions) }
		if n := conditions(first.must("daemon")); n != 0 {
			t.Errorf("at first: %d conditions", n)
		}
		if m, _ := first.within(time.Hour); m.kind != "" {
			t.Errorf("nothing changed, and %q came: %s", m.kind, m.data)
		}
		s.Sources.FilesChanged(badFiles(time.Now(), "b.yaml"))
		m, after := first.within(time.Minute)
		if m.kind != "daemon" || conditions(m) != 1 || after > time.Second {
			t.Errorf("a file became bad; after %v: %+v", after, m)
		}
		second := begin()
		if n := conditions(second.must("daemon")); n != 1 {
			t.Errorf("the second watcher begins with %d conditions", n)
		}
		s.Sources.FilesChanged(files.Set{})
		if n := conditions(first.must("daemon")); n != 0 {
			t.Errorf("the file is good: %d conditions", n)
		}
		first.Close()
		second.Close()
		s.Watches.Close() // waits for what looks
	})
}

// TestTimeoutNamesShortage: a pick that times out names a shortage that may keep
// endpoints from connecting, and no other.
func TestTimeoutNamesShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		connector := make(stuckConnector)
		s, _ := servicetest.Start(t, "", func(o *service.Options) {
			o.Overload, o.Connectors = m, map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer close(connector)
		go func() {
			servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("stuck", 1))))
		}()
		synctest.Wait()
		m.Report(overload.APIConnections, syscall.EMFILE)
		for _, tt := range []struct{ lacking, want overload.Resource }{{"", ""}, {overload.Descriptors, overload.Descriptors}} {
			if tt.lacking != "" {
				m.Report(tt.lacking, syscall.EMFILE)
			}
			_, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Wait: time.Second})
			if servicetest.Code(err) != fault.PickTimeout || strings.Contains(err.Error(), overload.APIConnections.Text()) {
				t.Errorf("%v", err)
			}
			if tt.want != "" && !strings.HasSuffix(err.Error(), tt.want.Text()) {
				t.Errorf("%v, want %s", err, tt.want.Text())
			}
		}
	})
}

// TestShortageIsReported: what lbd itself lacks is an event when it begins and when it
// ends, and meanwhile a condition, a metric and a warning of a daemon that is ready.
func TestShortageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Overload = m })
		metric := func(descriptors, localPorts int) {
			t.Helper()
			want := fmt.Sprintf(`
lbd_overload{resource="api_connections"} 0
lbd_overload{resource="buffers"} 0
lbd_overload{resource="cpu"} 0
lbd_overload{resource="descriptors"} %d
lbd_overload{resource="held_connections"} 0
lbd_overload{resource="local_ports"} %d
lbd_overload{resource="memory"} 0
lbd_overload{resource="memory_limit"} 0
lbd_overload{resource="source_memory"} 0
lbd_overload{resource="system_descriptors"} 0
lbd_overload{resource="watches"} 0
`, descriptors, localPorts)
			service.CompareSeries(t, s.Metrics, want)
		}
		metric(0, 0)
		m.Report(overload.Descriptors, syscall.EMFILE)
		time.Sleep(time.Second)
		m.Report(overload.LocalPorts, syscall.EADDRNOTAVAIL)
		m.Report(overload.Descriptors, syscall.EMFILE)
		metric(1, 1)
		var conditions []string
		for _, c := range s.State.Conditions(nil) {
			conditions = append(conditions, fmt.Sprint(c.Kind, " ", c.Subject, " ", time.Since(c.Since), " ", c.NotReady, ": ", c.Text))
			if c.Remedy == "" {
				t.Errorf("no remedy for %s", c.Subject)
			}
		}
		want := []string{
			"shortage descriptors 1s false: lbd has no file descriptor left (EMFILE): too many open files; endpoints keep their states, and lbd retries what failed",
			"shortage local_ports 0s false: no local port is left for connections to an endpoint (EADDRNOTAVAIL): cannot assign requested address; endpoints keep their states, and lbd retries what failed",
		}
		if !slices.Equal(conditions, want) {
			t.Errorf("conditions %q, want %q", conditions, want)
		}
		for _, c := range s.Readiness(nil) {
			if !c.OK {
				t.Errorf("not ready: %+v", c)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		metric(0, 0)
		var events []string
		for _, e := range s.Events.Last(observe.EventFilter{Limit: 10, Types: []observe.EventType{observe.EventShortageBegan, observe.EventShortageEnded}}) {
			events = append(events, fmt.Sprint(e.Type, " ", e.Reason, ": ", e.Says))
		}
		slices.Reverse(events)
		slices.Sort(events[2:]) // both end at the same check
		want = []string{
			"shortage_began descriptors: lbd has no file descriptor left (EMFILE): endpoints keep their states until it is over",
			"shortage_began local_ports: no local port is left for connections to an endpoint (EADDRNOTAVAIL): endpoints keep their states until it is over",
			"shortage_ended descriptors: over: lbd has no file descriptor left (EMFILE)",
			"shortage_ended local_ports: over: no local port is left for connections to an endpoint (EADDRNOTAVAIL)",
		}
		if !slices.Equal(events, want) || len(s.State.Conditions(nil)) != 0 {
			t.Errorf("events %q, want %q; conditions %v", events, want, s.State.Conditions(nil))
		}
	})
}

// TestEveryShortageHasARemedy: the operator learns what to do about each.
func TestEveryShortageHasARemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Overload = m })
		for _, r := range overload.Resources {
			m.Report(r, syscall.EMFILE)
			if all := s.State.Conditions(nil); len(all) != 1 || all[0].Remedy == "" {
				t.Errorf("no remedy for %s: %+v", r, all)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
	})
}
