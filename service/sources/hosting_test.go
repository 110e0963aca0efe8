package sources_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
)

func TestATargetIsHostedByName(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, nil)
	host := func(name string) (*sources.PushResult, error) {
		return s.Sources.HostTarget(t.Context(), name, sources.ChangeOptions{})
	}
	drop := func(name string) (*sources.PushResult, error) {
		return s.Sources.DropTarget(t.Context(), name, sources.ChangeOptions{})
	}
	remove := func() { // all that was pushed, and not what is hosted
		_, err := pushSnapshot(t, s, sources.SnapshotRequest{Body: []byte(`{"resources":[]}`), Replace: true, MaxRemoved: -1, Options: sources.ChangeOptions{AllowEmpty: true}})
		servicetest.Must(t, err)
	}
	expect := func(want fault.Code, says string) {
		t.Helper()
		_, err := servicetest.Pick(s, picks.Request{Target: "shop", Path: "/"})
		if servicetest.Code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %s: %v; want %s: %s", servicetest.Code(err), err, want, says)
		}
	}
	if res, err := s.Sources.HostTarget(t.Context(), "shop", sources.ChangeOptions{DryRun: true}); err != nil || !res.New || len(res.Changes) != 1 {
		t.Errorf("dry run: %+v, %v", res, err)
	}
	expect(fault.UnknownTarget, `target "shop" not found`)
	if res, err := host("shop"); err != nil || !res.New || res.Generation == 0 || res.Changes[0] != (difference.Change{Resource: "Target/xds:///shop", Change: "added"}) {
		t.Fatalf("got %+v, %v", res, err)
	}
	if res, err := host("xds:///shop"); err != nil || res.New || len(res.Changes) != 0 {
		t.Errorf("hosted twice: %+v, %v", res, err)
	}
	expect(fault.UnknownTarget, "xds:///shop: Listener/shop is not known: push it with PUT /v1/snapshot")
	for _, name := range []string{"shop", "xds:shop", "xds:///shop"} { // as TargetName takes it
		if target, err := s.State.Target(name); err != nil || target.Name != "xds:///shop" {
			t.Errorf("%s is %+v, %v", name, target, err)
		}
	}
	stop()

	s, stop = servicetest.Start(t, dir, nil)
	expect(fault.UnknownTarget, "Listener/shop is not known")
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
	expect("", "")
	snapshot, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
	if err != nil || strings.Contains(string(snapshot.Body.Bytes()), "Target") {
		t.Errorf("the snapshot is %s, %v", snapshot.Body, err)
	}
	remove()
	expect(fault.UnknownTarget, "Listener/shop is not known")
	if empty, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || empty.Hash == snapshot.Hash {
		t.Errorf("the snapshot's hash is %s still, %v", empty.Hash, err)
	}
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
	if back, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || back.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s", back.Hash, err, snapshot.Hash)
	}
	if res, err := drop("shop"); err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0].Reason, "a Listener that was pushed hosts it") {
		t.Errorf("dropped: %+v, %v", res, err)
	}
	if same, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || same.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s: hosting does not change it", same.Hash, err, snapshot.Hash)
	}
	expect("", "")
	if _, err := drop("shop"); servicetest.Code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "a Listener that was pushed hosts it") {
		t.Errorf("dropped twice: %v", err)
	}
	remove()
	expect(fault.UnknownTarget, `target "shop" not found`)
	if _, err := drop("shop"); servicetest.Code(err) != fault.UnknownTarget {
		t.Errorf("dropped what is not there: %v", err)
	}
	stop()
	s, _ = servicetest.Start(t, dir, nil)
	expect(fault.UnknownTarget, `target "shop" not found`)
}

// TestFlagsHostTargets: a target of a flag is hosted as long as the daemon runs.
func TestFlagsHostTargets(t *testing.T) {
	s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Sources.Targets = []string{"xds:///shop"} })
	if _, err := s.Sources.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); servicetest.Code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "--target hosts it") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Sources.HostTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil {
		t.Error(err)
	}
	if state, err := s.State.Target("shop"); err != nil || fmt.Sprint(state.HostedBy) != "[flag api]" ||
		!strings.HasPrefix(state.Error, "xds:///shop: Listener/shop is not known: push it") {
		t.Errorf("got %+v, %v", state, err)
	}
	if res, err := s.Sources.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil || len(res.Warnings) != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := s.State.Target("shop"); err != nil {
		t.Error(err)
	}
}

// TestFlagTargetsWithoutListener: without a bootstrap, only a push or a file can provide a
// target's Listener.
func TestFlagTargetsWithoutListener(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, nil)
	servicetest.PushAll(t, s, servicetest.Listener("pushed", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
	stop()
	for name, c := range map[string]struct {
		bootstrap *bootstrap.Config
		want      int
	}{
		"without bootstrap": {nil, 1},
		"with one":          {&bootstrap.Config{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			_, stop := servicetest.Start(t, dir, func(o *service.Options) {
				o.Logger, o.Sources.Bootstrap = slog.New(slog.NewTextHandler(&log, nil)), c.bootstrap
				o.Sources.Targets = []string{"xds:///pushed", "xds:///shop"}
			})
			stop()
			if got := strings.Count(log.String(), "level=WARN"); got != c.want || c.want > 0 && !strings.Contains(log.String(), "target=xds:///shop") {
				t.Errorf("%d warnings, want %d:\n%s", got, c.want, log.String())
			}
		})
	}
}
