package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/files"
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
	s, _ := start(t, "", func(o *service.Options) { o.Name = "lbd-1" })
	if d := s.Daemon(); d.Name != "lbd-1" || d.Version != "test" || d.Started.IsZero() || d.Conditions == nil || len(d.Conditions) != 0 {
		t.Errorf("a healthy daemon: %+v", d)
	}
	since := time.Unix(1000, 0)
	s.FilesChanged(badFiles(since, "b.yaml"))
	var failing []observe.Condition
	s.AddConditions(func() []observe.Condition { return failing })
	failing = []observe.Condition{
		{Kind: observe.ConditionShortage, Subject: "descriptors", Since: since, Text: "no descriptors are left"},
		{Kind: observe.ConditionStoreFailing, Since: since, Text: "lbd.db was replaced", Remedy: "restart", NotReady: true},
	}
	var kinds []string
	for _, c := range s.Conditions() {
		kinds = append(kinds, string(c.Kind))
	}
	if want := []string{"store_failing", "shortage", "file_bad"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
	var health []string
	for _, c := range s.Health()[2:] {
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
	series.WriteString("# HELP lbd_conditions Daemon-wide problems now, by kind, as GET /v1/daemon lists them.\n# TYPE lbd_conditions gauge\n")
	for _, kind := range observe.ConditionKinds {
		n := 0
		if slices.Contains(kinds, string(kind)) {
			n = 1
		}
		fmt.Fprintf(&series, "lbd_conditions{kind=%q} %d\n", kind, n)
	}
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(series.String()), "lbd_conditions"); err != nil {
		t.Error(err)
	}
}

// However many files are bad, an answer stays small, and says that there are more.
func TestConditionsOfAKindAreLimited(t *testing.T) {
	s, _ := start(t, "", nil)
	names := make([]string, observe.MaxConditions+3)
	for i := range names {
		names[i] = fmt.Sprintf("%02d.yaml", len(names)-i)
	}
	s.FilesChanged(badFiles(time.Unix(1000, 0), names...))
	got := s.Conditions()
	if len(got) != observe.MaxConditions+1 {
		t.Fatalf("%d conditions", len(got))
	}
	if first, last := got[0], got[len(got)-1]; first.Subject != "01.yaml" || last.Kind != observe.ConditionFileBad || last.Text != "3 more of this kind" {
		t.Errorf("first %+v, last %+v", first, last)
	}
}

func TestWatchDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		begin := func() watching {
			w, err := s.WatchDaemon()
			return watch(t, w, err)
		}
		first := begin()
		conditions := func(m message) int { return len(read[observe.DaemonState](t, m.data).Conditions) }
		if n := conditions(first.must("daemon")); n != 0 {
			t.Errorf("at first: %d conditions", n)
		}
		if m, _ := first.within(time.Hour); m.kind != "" {
			t.Errorf("nothing changed, and %q came: %s", m.kind, m.data)
		}
		s.FilesChanged(badFiles(time.Now(), "b.yaml"))
		m, after := first.within(time.Minute)
		if m.kind != "daemon" || conditions(m) != 1 || after > time.Second {
			t.Errorf("a file became bad; after %v: %+v", after, m)
		}
		second := begin()
		if n := conditions(second.must("daemon")); n != 1 {
			t.Errorf("the second watcher begins with %d conditions", n)
		}
		s.FilesChanged(files.Set{})
		if n := conditions(first.must("daemon")); n != 0 {
			t.Errorf("the file is good: %d conditions", n)
		}
		first.Close()
		second.Close()
		s.Watches.Close() // waits for what looks
	})
}
