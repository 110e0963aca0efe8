package sources_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func withHistory(o *service.Options) {
	o.Sources.Changelog = changelog.Limits{Changes: 100, Bytes: 1 << 20}
}

func pushedAddress(t *testing.T, s *service.Service) string {
	t.Helper()
	servicetest.Must(t, s.Sources.Settle(t.Context()))
	out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"})
	if err != nil {
		return string(servicetest.Code(err))
	}
	return out.Picks[0].Address
}

func restore(t *testing.T, s *service.Service, r sources.RestoreRequest) (*sources.PushResult, error) {
	t.Helper()
	if r.MaxRemoved == 0 {
		r.MaxRemoved = -1
	}
	return s.Sources.Restore(t.Context(), &r)
}

// TestRestore: what was pushed at an index comes back, after a restart, too, and the restore can be
// restored.
func TestRestore(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, withHistory)
	for _, zone := range []string{"a", "b", "c"} {
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable(zone, 1))
	}
	_, err := s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{})
	servicetest.Must(t, err)
	stop()
	s, _ = servicetest.Start(t, dir, withHistory)
	all, oldest, _, err := s.Sources.Changes(changelog.Filter{Limit: 100}, nil)
	servicetest.Must(t, err)
	if len(all) != 4 || oldest != 0 || all[0].Changes[0].Change != "removed" || !strings.Contains(all[1].Says, "orders: ") {
		t.Fatalf("%+v, from %d", all, oldest)
	}
	orders := sources.Range{Cluster: "orders"}
	for _, tt := range []struct {
		request sources.RestoreRequest
		address string
		code    fault.Code
	}{
		{sources.RestoreRequest{Index: all[2].Index, Range: orders, Options: sources.ChangeOptions{DryRun: true}}, string(fault.UnknownCluster), ""},
		{sources.RestoreRequest{Index: all[2].Index, Range: orders}, "b-0:80", ""},
		{sources.RestoreRequest{Index: all[3].Index, Range: sources.Range{Resource: resource.Key{Type: sources.Endpoints, Name: "orders"}}}, "a-0:80", ""},
		{sources.RestoreRequest{Index: all[1].Index}, "c-0:80", ""},
		{sources.RestoreRequest{Index: all[2].Index, Range: sources.Range{Cluster: "other"}}, "c-0:80", ""},
		{sources.RestoreRequest{Index: all[0].Index, MaxRemoved: 1, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"x"}}}}, "c-0:80", fault.PreconditionFailed},
		{sources.RestoreRequest{Index: 99}, "c-0:80", fault.UnknownChange},
		{sources.RestoreRequest{Index: all[0].Index, Range: orders}, string(fault.UnknownCluster), ""},
	} {
		_, err := restore(t, s, tt.request)
		if (err != nil || tt.code != "") && servicetest.Code(err) != tt.code {
			t.Errorf("%+v: %v", tt.request, err)
		}
		if got := pushedAddress(t, s); got != tt.address {
			t.Errorf("%+v: picks are of %s, want %s", tt.request, got, tt.address)
		}
	}
	list, _, _, err := s.Sources.Changes(changelog.Filter{Limit: 1}, nil)
	if err != nil || list[0].Restored != all[0].Index {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestRestoreRemovesAtMost: a restore that removes more than it may changes nothing.
func TestRestoreRemovesAtMost(t *testing.T) {
	s, _ := servicetest.Start(t, t.TempDir(), withHistory)
	for _, name := range []string{"orders", "other", "third"} {
		servicetest.Push(t, s, sources.Endpoints, name, servicetest.Usable("a", 1))
	}
	r := sources.RestoreRequest{Index: 1, MaxRemoved: 1, Options: sources.ChangeOptions{AllowEmpty: true}}
	if _, err := restore(t, s, r); servicetest.Code(err) != fault.Blocked || s.Sources.Index() != 3 {
		t.Errorf("%v; index %d", err, s.Sources.Index())
	}
	r.MaxRemoved = 2
	if got, err := restore(t, s, r); err != nil || len(got.Changes) != 2 || got.Changes[0].Change != "removed" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestCompare: the difference between two indices, in words, with the contents of one resource.
func TestCompare(t *testing.T) {
	s, _ := servicetest.Start(t, t.TempDir(), withHistory)
	for _, zone := range []string{"a", "b"} {
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable(zone, 1))
		servicetest.Push(t, s, sources.Endpoints, "other", servicetest.Usable(zone, 1))
	}
	got, err := s.Sources.Compare(t.Context(), "", 1, 3, sources.Range{}, nil)
	servicetest.Must(t, err)
	var names []string
	for _, c := range got.Changes {
		names = append(names, c.Resource+" "+c.Change.Change)
		if c.Difference == "" || c.Before != nil || c.After != nil {
			t.Errorf("%+v", c)
		}
	}
	if want := []string{"ClusterLoadAssignment/orders modified", "ClusterLoadAssignment/other added"}; !slices.Equal(names, want) || got.Count != 2 {
		t.Errorf("%q", names)
	}
	got, err = s.Sources.Compare(t.Context(), "", sources.Now, 2, sources.Range{Resource: resource.Key{Type: sources.Endpoints, Name: "other"}}, nil)
	servicetest.Must(t, err)
	if got.From != 4 || len(got.Changes) != 1 || !strings.Contains(string(got.Changes[0].Before), "b-0") || !strings.Contains(string(got.Changes[0].After), "a-0") {
		t.Errorf("%+v", got)
	}
	if _, err := s.Sources.Compare(t.Context(), "", 1, 9, sources.Range{}, nil); servicetest.Code(err) != fault.UnknownChange {
		t.Error(err)
	}
}

// TestHistoryIsLimited: the oldest changes go, and what they replaced is no longer known.
func TestHistoryIsLimited(t *testing.T) {
	s, _ := servicetest.Start(t, t.TempDir(), func(o *service.Options) { o.Sources.Changelog = changelog.Limits{Changes: 2, Bytes: 1 << 20} })
	for _, zone := range []string{"a", "b", "c", "d"} {
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable(zone, 1))
	}
	list, oldest, _, err := s.Sources.Changes(changelog.Filter{Limit: 9}, nil)
	if err != nil || len(list) != 2 || oldest != 2 {
		t.Errorf("%+v from %d, %v", list, oldest, err)
	}
	if _, err := restore(t, s, sources.RestoreRequest{Index: 1}); servicetest.Code(err) != fault.UnknownChange {
		t.Error(err)
	}
	if _, err := restore(t, s, sources.RestoreRequest{Index: 2}); err != nil || pushedAddress(t, s) != "b-0:80" {
		t.Error(err, pushedAddress(t, s))
	}
}

// TestNoChangeHistory: without a history, changes leave no record, and nothing earlier is known.
func TestNoChangeHistory(t *testing.T) {
	s, _ := servicetest.Start(t, t.TempDir(), func(o *service.Options) {})
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("b", 1))
	if list, oldest, _, err := s.Sources.Changes(changelog.Filter{Limit: 9}, nil); err != nil || len(list) != 0 || oldest != 2 {
		t.Errorf("%+v from %d, %v", list, oldest, err)
	}
	if _, err := restore(t, s, sources.RestoreRequest{Index: 1}); servicetest.Code(err) != fault.UnknownChange {
		t.Error(err)
	}
}

// BenchmarkPush measures durable pushes of about 10 KB, of which one endpoint changes, without and with
// a history.
func BenchmarkPush(b *testing.B) {
	for _, bm := range []struct {
		name   string
		limits changelog.Limits
	}{{"without history", changelog.Limits{}}, {"with history", changelog.Limits{Changes: 1000, Bytes: 32 << 20}}} {
		b.Run(bm.name, func(b *testing.B) {
			s, _ := servicetest.Start(b, b.TempDir(), func(o *service.Options) { o.Sources.Changelog = bm.limits })
			var bodies [2][]byte
			for i := range bodies {
				bodies[i] = servicetest.Assignment(nil, servicetest.Place("a", 0, 1, append(servicetest.Endpoints("a", 150), servicetest.Endpoints(string(rune('b'+i)), 1)...)))
			}
			b.ReportMetric(float64(len(bodies[0])), "bytes")
			i := 0
			for b.Loop() {
				servicetest.Push(b, s, sources.Endpoints, "orders", bodies[i%2])
				i++
			}
		})
	}
}
