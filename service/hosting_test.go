package service_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
)

func TestATargetIsHostedByName(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	host := func(name string) (*sources.PushResult, error) {
		return s.HostTarget(t.Context(), name, sources.ChangeOptions{})
	}
	drop := func(name string) (*sources.PushResult, error) {
		return s.DropTarget(t.Context(), name, sources.ChangeOptions{})
	}
	expect := func(want fault.Code, says string) {
		t.Helper()
		_, err := pick(s, picks.Request{Target: "shop", Path: "/"})
		if code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %s: %v; want %s: %s", code(err), err, want, says)
		}
	}
	if res, err := s.HostTarget(t.Context(), "shop", sources.ChangeOptions{DryRun: true}); err != nil || !res.New || len(res.Changes) != 1 {
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
		if target, err := s.Target(name); err != nil || target.Name != "xds:///shop" {
			t.Errorf("%s is %+v, %v", name, target, err)
		}
	}
	stop()

	s, stop = start(t, dir, nil)
	expect(fault.UnknownTarget, "Listener/shop is not known")
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	expect("", "")
	snapshot, err := s.Snapshot(sources.JSON)
	if err != nil || strings.Contains(string(snapshot.Body), "Target") {
		t.Errorf("the snapshot is %s, %v", snapshot.Body, err)
	}
	remove(t, s) // the Listener, and not what is hosted
	expect(fault.UnknownTarget, "Listener/shop is not known")
	if empty, err := s.Snapshot(sources.JSON); err != nil || empty.Hash == snapshot.Hash {
		t.Errorf("the snapshot's hash is %s still, %v", empty.Hash, err)
	}
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	if back, err := s.Snapshot(sources.JSON); err != nil || back.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s", back.Hash, err, snapshot.Hash)
	}
	if res, err := drop("shop"); err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0].Reason, "a Listener that was pushed hosts it") {
		t.Errorf("dropped: %+v, %v", res, err)
	}
	if same, err := s.Snapshot(sources.JSON); err != nil || same.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s: hosting does not change it", same.Hash, err, snapshot.Hash)
	}
	expect("", "")
	if _, err := drop("shop"); code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "a Listener that was pushed hosts it") {
		t.Errorf("dropped twice: %v", err)
	}
	remove(t, s)
	expect(fault.UnknownTarget, `target "shop" not found`)
	if _, err := drop("shop"); code(err) != fault.UnknownTarget {
		t.Errorf("dropped what is not there: %v", err)
	}
	stop()
	s, _ = start(t, dir, nil)
	expect(fault.UnknownTarget, `target "shop" not found`)
}

// TestFlagsHostTargets: a target of a flag is hosted as long as the daemon runs.
func TestFlagsHostTargets(t *testing.T) {
	s, _ := start(t, "", func(o *service.Options) { o.Targets = []string{"xds:///shop"} })
	if _, err := s.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "--target hosts it") {
		t.Errorf("got %v", err)
	}
	if _, err := s.HostTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil {
		t.Error(err)
	}
	if state, err := s.Target("shop"); err != nil || fmt.Sprint(state.HostedBy) != "[flag api]" ||
		!strings.HasPrefix(state.Error, "xds:///shop: Listener/shop is not known: push it") {
		t.Errorf("got %+v, %v", state, err)
	}
	if res, err := s.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil || len(res.Warnings) != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := s.Target("shop"); err != nil {
		t.Error(err)
	}
}

func TestNamesOfTargets(t *testing.T) {
	for name, want := range map[string]string{
		"shop": "xds:///shop", "xds:///shop": "xds:///shop", "xds:shop": "xds:///shop", "a/b": "xds:///a/b",
		"xds://traffic/shop": "xds://traffic/shop", "//traffic/shop": "xds://traffic/shop",
		"": "", "xds:": "", "xds:///": "", "/shop": "", "xds:////shop": "", "xds://traffic": "", "xds://traffic/": "", "a\nb": "", "\xff": "",
		strings.Repeat("a", decode.MaxNameBytes): "",
	} {
		got, err := ledger.TargetName(name)
		if got != want || (err == nil) != (want != "") || err != nil && code(err) != fault.InvalidArgument {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestFlagTargetsWithoutListener: without a bootstrap, only a push or a file can provide a
// target's Listener.
func TestFlagTargetsWithoutListener(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	pushAll(t, s, listener("pushed", route("/", "a")), assigned("a", "a-1"))
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
			_, stop := start(t, dir, func(o *service.Options) {
				o.Logger, o.Bootstrap = slog.New(slog.NewTextHandler(&log, nil)), c.bootstrap
				o.Targets = []string{"xds:///pushed", "xds:///shop"}
			})
			stop()
			if got := strings.Count(log.String(), "level=WARN"); got != c.want || c.want > 0 && !strings.Contains(log.String(), "target=xds:///shop") {
				t.Errorf("%d warnings, want %d:\n%s", got, c.want, log.String())
			}
		})
	}
}
