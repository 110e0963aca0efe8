package sources_test

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// TestCovers pushes over a file: the answer warns, the state says what is covered and how it differs, and a
// change of the file is an event, without effect until the push is deleted.
func TestCovers(t *testing.T) {
	d := startFiled(t, &archive{})
	s := d.Service
	covers := func() []observe.Cover {
		t.Helper()
		servicetest.Must(t, s.Sources.Settle(t.Context()))
		state, err := s.State.Cluster(t.Context(), "orders", "", false)
		servicetest.Must(t, err)
		return state.Covers
	}
	d.scan(map[string]int{"orders": 2})
	if got := covers(); got != nil {
		t.Errorf("without a push: %+v", got)
	}
	body := servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("orders", 3)))
	res, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "orders", Body: body, Options: sources.ChangeOptions{Name: "ci", Address: "10.1.1.1"},
	})
	servicetest.Must(t, err)
	const differs = "1 endpoint added to /a (orders-2:80)"
	if len(res.Warnings) != 1 || res.Warnings[0].Reason != "covers that of a resource file until it is deleted: "+differs {
		t.Errorf("warnings: %+v", res.Warnings)
	}
	got := covers()
	if len(got) != 1 || got[0].Source != "file" || got[0].By != "push" || got[0].Author != "ci" || got[0].Differs != differs || got[0].Since.IsZero() {
		t.Errorf("covers %+v", got)
	}
	d.scan(map[string]int{"orders": 1})
	if got := servicetest.Says(s, observe.EventCoveredChanged); len(got) != 1 || !strings.HasPrefix(got[0], "not in use, because it is covered: 1 resource changed: orders: 1 endpoint removed") {
		t.Errorf("events: %q", got)
	}
	if got := chosen(t, s, 9); len(got) != 3 {
		t.Errorf("picks: %v", got)
	}
	if n := gauges(t, s.Metrics, "lbd_covered_resources")["lbd_covered_resources file"]; n != 1 {
		t.Errorf("%v resources are covered", n)
	}
	_, err = s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{})
	servicetest.Must(t, err)
	if got := covers(); got != nil {
		t.Errorf("after the deletion: %+v", got)
	}
	if got := chosen(t, s, 9); len(got) != 1 {
		t.Errorf("picks after the deletion: %v", got)
	}
}
