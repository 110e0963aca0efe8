package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// conflicting is a store in memory that finds a conflict in the first attempt of each
// Update, as one that several daemons share may.
type conflicting struct {
	onCommit func(store.Commit)
	attempts int

	mu      sync.Mutex // held during an Update
	current atomic.Pointer[store.Snapshot]
}

func (c *conflicting) Snapshot() *store.Snapshot { return c.current.Load() }
func (*conflicting) Err() error                  { return nil }
func (*conflicting) Close() error                { return nil }

func (c *conflicting) Update(_ context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tx *store.Tx
	for range 2 {
		c.attempts++
		tx = c.Snapshot().Begin(time.Now())
		if err := fn(tx); err != nil {
			return nil, err
		}
	}
	after, changed := c.Snapshot().Apply(tx.Changes())
	c.current.Store(after)
	if len(changed) > 0 {
		c.onCommit(store.Commit{After: after, Changed: changed})
	}
	return after, nil
}

// TestAChangeThatAStoreRunsAgain: the result of a change does not depend on how often the
// store runs it.
func TestAChangeThatAStoreRunsAgain(t *testing.T) {
	results := func(t *testing.T, open func(*service.Service) sources.Store) (got []string) {
		s := newService(t)
		st := open(s)
		t.Cleanup(func() {
			s.Close()
			_ = st.Close()
		})
		if err := s.Start(t.Context(), st); err != nil {
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
		push := sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body, ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}}
		add(s.Push(t.Context(), &push))
		add(s.Push(t.Context(), &push)) // which exists by then
		add(s.HostTarget(t.Context(), "shop", sources.ChangeOptions{}))
		add(s.DropTarget(t.Context(), "shop", sources.ChangeOptions{}))
		stored, err := s.Snapshot(sources.JSON)
		if err != nil {
			t.Fatal(err)
		}
		add(s.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{}))
		add(s.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: stored.Body, Format: sources.JSON, Replace: true}))
		return got
	}
	want := results(t, func(s *service.Service) sources.Store {
		st, err := store.Open("", store.Options{OnCommit: s.Commit})
		if err != nil {
			t.Fatal(err)
		}
		return st
	})
	c := &conflicting{}
	got := results(t, func(s *service.Service) sources.Store {
		c.onCommit = s.Commit
		c.current.Store(&store.Snapshot{})
		return c
	})
	if c.attempts == 0 || !slices.Equal(got, want) {
		t.Errorf("%d attempts: got\n%q\nwant\n%q", c.attempts, got, want)
	}
}

// sharedStore is a store in which another daemon commits while this one reads it for the
// first time.
type sharedStore struct {
	conflicting
	first  sync.Once
	change func(*store.Tx) error
	done   chan error
}

func (s *sharedStore) Snapshot() *store.Snapshot {
	before := s.conflicting.Snapshot()
	s.first.Do(func() {
		go func() {
			_, err := s.Update(context.Background(), s.change)
			s.done <- err
		}()
		for i := 0; i < 1000 && len(s.done) == 0; i++ {
			runtime.Gosched() // the commit may have to wait for the reader
		}
	})
	return before
}

// TestStartKeepsCommitsOfOthers: a commit that another daemon makes while the service loads
// the store is not replaced by the older version.
func TestStartKeepsCommitsOfOthers(t *testing.T) {
	version := func(zone string) func(*store.Tx) error {
		d, err := decode.Assignment(assignment(t, nil, place{zone, 0, 1, endpoints(zone, 1)}), decode.Options{Name: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		return func(tx *store.Tx) error {
			return tx.Put(resource.Key{Type: sources.Endpoints, Name: "orders"}, d.Raw)
		}
	}
	st := &sharedStore{change: version("new"), done: make(chan error, 1)}
	tx := new(store.Snapshot).Begin(time.Now())
	if err := version("old")(tx); err != nil {
		t.Fatal(err)
	}
	stored, _ := new(store.Snapshot).Apply(tx.Changes())
	st.current.Store(stored)
	s := newService(t)
	st.onCommit = s.Commit
	if err := s.Start(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	if err := <-st.done; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "new-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

// newService returns a service that is not started.
func newService(t *testing.T) *service.Service {
	s := service.New(service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
		Settings:   sources.Settings{ConnectMode: resource.ConnectNone},
	})
	t.Cleanup(s.Close)
	return s
}
