package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

var errConflict = errors.New("conflict")

// conflicting is a store that finds a conflict in the first attempt of each Update, as one
// that several daemons share may.
type conflicting struct {
	sources.Store
	attempts int
}

func (c *conflicting) Update(ctx context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	c.attempts++
	snapshot, err := c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errConflict
	})
	if !errors.Is(err, errConflict) {
		return snapshot, err
	}
	return c.Store.Update(ctx, fn)
}

// What a change answers does not depend on how often the store runs it.
func TestAChangeThatAStoreRunsAgain(t *testing.T) {
	answers := func(t *testing.T, wrap func(sources.Store) sources.Store) (got []string) {
		s := service.New(service.Options{
			Logger:      slog.New(slog.DiscardHandler),
			Connectors:  map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
			ConnectMode: resource.ConnectNone,
		})
		st, err := store.Open("", store.Options{OnCommit: s.Commit})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Close()
			_ = st.Close()
		})
		if err := s.Start(t.Context(), wrap(st)); err != nil {
			t.Fatal(err)
		}
		add := func(res *sources.PushResult, err error) {
			if err != nil {
				got = append(got, err.Error())
				return
			}
			got = append(got, fmt.Sprint(res.New, res.Hash, res.Changes, res.Warnings, res.Notes))
		}
		body := assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)})
		push := sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body, Precondition: sources.Precondition{IfNoneMatch: true}}
		add(s.Push(t.Context(), &push))
		add(s.Push(t.Context(), &push)) // which exists by then
		add(s.HostTarget(t.Context(), &sources.HostRequest{Target: "shop"}))
		add(s.DropTarget(t.Context(), &sources.HostRequest{Target: "shop"}))
		stored, err := s.Snapshot(sources.JSON)
		if err != nil {
			t.Fatal(err)
		}
		add(s.Delete(t.Context(), &sources.DeleteRequest{Kind: sources.Endpoints, Cluster: "orders"}))
		add(s.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: stored.Body, Format: sources.JSON, Replace: true}))
		return got
	}
	want := answers(t, func(st sources.Store) sources.Store { return st })
	c := &conflicting{}
	got := answers(t, func(st sources.Store) sources.Store { c.Store = st; return c })
	if c.attempts == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d attempts answer\n%q\nand not\n%q", c.attempts, got, want)
	}
}
