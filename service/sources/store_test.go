package sources_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
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
func (*conflicting) Loaded() bool                { return true }
func (*conflicting) Err() error                  { return nil }
func (*conflicting) Close() error                { return nil }

func (c *conflicting) Update(_ context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tx *store.Tx
	for range 2 {
		c.attempts++
		batch := c.Snapshot().NewBatch(time.Now(), 0)
		tx = batch.Begin()
		if err := fn(tx); err != nil {
			return nil, err
		}
	}
	after, changed := c.Snapshot().Apply(tx.Written(), c.Snapshot().Index()+1)
	c.current.Store(after)
	if len(changed) > 0 {
		c.onCommit(store.Commit{After: after, Changed: changed})
	}
	return after, nil
}

// TestAChangeThatAStoreRunsAgain: the result of a change does not depend on how often the
// store runs it.
func TestAChangeThatAStoreRunsAgain(t *testing.T) {
	results := func(t *testing.T, open func(*service.Service) store.Store) (got []string) {
		s := newService(t, nil)
		st := open(s)
		t.Cleanup(func() {
			s.Close()
			_ = st.Close()
		})
		servicetest.Must(t, s.Start(t.Context(), sources.Connections{Store: st}))
		add := func(res *sources.PushResult, err error) {
			if err != nil {
				got = append(got, err.Error())
				return
			}
			got = append(got, fmt.Sprint(res.New, res.Hash, res.Changes, res.Warnings, res.Notes))
		}
		body := servicetest.Usable("a", 1)
		push := sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}}
		add(s.Sources.Push(t.Context(), &push))
		add(s.Sources.Push(t.Context(), &push)) // which exists by then
		add(s.Sources.HostTarget(t.Context(), "shop", sources.ChangeOptions{}))
		add(s.Sources.DropTarget(t.Context(), "shop", sources.ChangeOptions{}))
		stored, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
		servicetest.Must(t, err)
		add(s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{}))
		add(s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: stored.Body.Bytes(), Format: sources.JSON, Replace: true}))
		return got
	}
	want := results(t, func(s *service.Service) store.Store {
		st, err := file.Open("", file.Options{OnCommit: s.Inbound.Commit})
		servicetest.Must(t, err)
		return st
	})
	c := &conflicting{}
	got := results(t, func(s *service.Service) store.Store {
		c.onCommit = s.Inbound.Commit
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
		d, err := decode.One(resource.TypeAssignment, servicetest.Usable(zone, 1), decode.Options{Name: "orders"})
		servicetest.Must(t, err)
		return func(tx *store.Tx) error {
			return tx.Put(resource.Key{Type: sources.Endpoints, Name: "orders"}, d.Raw)
		}
	}
	st := &sharedStore{change: version("new"), done: make(chan error, 1)}
	tx := new(store.Snapshot).NewBatch(time.Now(), 0).Begin()
	servicetest.Must(t, version("old")(tx))
	stored, _ := new(store.Snapshot).Apply(tx.Written(), 1)
	st.current.Store(stored)
	s := newService(t, nil)
	st.onCommit = s.Inbound.Commit
	servicetest.Must(t, s.Start(t.Context(), sources.Connections{Store: st}))
	servicetest.Must(t, <-st.done)
	servicetest.Must(t, s.Sources.Settle(t.Context()))
	if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "new-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

// newService returns a service that is not started.
func newService(t *testing.T, change func(*service.Options)) *service.Service {
	s := servicetest.New(change)
	t.Cleanup(s.Close)
	return s
}

// writeStore writes entries to the store in dir, as an earlier lbd.
func writeStore(t *testing.T, dir string, entries map[resource.Key][]byte) {
	t.Helper()
	st, err := file.Open(dir, file.Options{})
	servicetest.Must(t, err)
	_, err = st.Update(t.Context(), func(tx *store.Tx) (err error) {
		for key, raw := range entries {
			err = errors.Join(err, tx.Put(key, raw))
		}
		return err
	})
	servicetest.Must(t, errors.Join(err, st.Close()))
}

// TestStoredWarnings: what this lbd would reject in a push is logged at startup, a limited number
// of times, and a push is not.
func TestStoredWarnings(t *testing.T) {
	dir := t.TempDir()
	stored := map[resource.Key][]byte{}
	body := servicetest.Encode(secured(servicetest.Object{"ca_certificate_provider_instance": servicetest.Object{"instance_name": "gone"}}))
	for i := range 103 {
		name := fmt.Sprintf("c%03d", i)
		d, err := decode.One(resource.TypeCluster, body, decode.Options{Name: name, Stored: true})
		servicetest.Must(t, err)
		stored[resource.Key{Type: resource.TypeCluster, Name: name}] = d.Raw
	}
	writeStore(t, dir, stored)
	var log bytes.Buffer
	s, _ := servicetest.Start(t, dir, func(o *service.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 101 || !strings.Contains(lines[0], "resource=Cluster/c000") || !strings.Contains(lines[0], "every TLS handshake fails") ||
		!strings.Contains(lines[100], "more=3") {
		t.Errorf("logged %d lines, the first %s, the last %s", len(lines), lines[0], lines[len(lines)-1])
	}
	log.Reset()
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "health_checks": []servicetest.Object{{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1, "tcp_health_check": servicetest.Object{}}}}))
	if log.Len() > 0 {
		t.Errorf("a push logged %s", log.String())
	}
}

// notReady are the names of the checks that make /readyz fail.
func notReady(s *service.Service) []string {
	var names []string
	for _, c := range s.Readiness(nil) {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestAStoreFileThatIsRemovedRefusesPushesAndReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, aside := filepath.Join(dir, "lbd.db"), filepath.Join(dir, "aside")
		s, stop := servicetest.Start(t, dir, nil)
		defer stop()
		body := servicetest.Usable("a", 1)
		servicetest.Push(t, s, sources.Endpoints, "orders", body)
		servicetest.Must(t, os.Rename(file, aside))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := notReady(s); !slices.Equal(got, []string{"store_failing"}) {
			t.Errorf("without a push: not ready because of %q", got)
		}
		for name, body := range map[string][]byte{
			"the same":  body,
			"a new one": servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("b", 1))),
		} {
			_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body})
			if servicetest.Code(err) != fault.StorageFailed || !strings.Contains(err.Error(), "removed or replaced") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil {
			t.Errorf("a pick: %v", err)
		}
		servicetest.Must(t, os.Rename(aside, file))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := notReady(s); got != nil {
			t.Errorf("once it is back: not ready because of %q", got)
		}
		servicetest.Push(t, s, sources.Endpoints, "orders", body)
		var types []observe.EventType
		for _, e := range s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventStoreFailing, observe.EventStoreRecovered}, Limit: 10}) {
			types = append(types, e.Type)
		}
		if !slices.Equal(types, []observe.EventType{observe.EventStoreRecovered, observe.EventStoreFailing}) {
			t.Errorf("events: %q", types)
		}
	})
}
