package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
	"github.com/lbd-dev/lbd/xds/store/file"
)

func key(name string) resource.Key { return resource.Key{Type: resource.TypeCluster, Name: name} }

func put(t *testing.T, s store.Store, name, value string) *store.Snapshot {
	t.Helper()
	after, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(key(name), []byte(value)) })
	if err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
	return after
}

// value is the content of an entry; "-" if there is none.
func value(s *store.Snapshot, name string) string {
	e, ok := s.Get(key(name))
	if !ok {
		return "-"
	}
	return string(e.Raw)
}

// until polls until a condition is true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 40 s", what)
		}
	}
}

type changes struct {
	mu   sync.Mutex
	keys []string
}

func (c *changes) add(commit store.Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range commit.Changed {
		c.keys = append(c.keys, k.Name)
	}
}

func (c *changes) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.keys, " ")
	c.keys = nil
	return out
}

// openAt opens a store with a local copy in a directory; "" is none.
func openAt(t *testing.T, c etcd.Config, dir string, o etcd.Options) (*etcd.Store, error) {
	t.Helper()
	if dir != "" {
		var err error
		if o.Copy, err = file.Open(dir, file.Options{BeginEmpty: true}); err != nil {
			t.Fatal(err)
		}
	}
	return etcd.Open(t.Context(), c, o)
}

func mustOpenAt(t *testing.T, c etcd.Config, dir string, o etcd.Options) *etcd.Store {
	t.Helper()
	s, err := openAt(t, c, dir, o)
	noError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestWithoutEtcd: a start without etcd has the last contents, refuses Updates at once, and
// catches up with one commit of what differs, also after a compaction.
func TestWithoutEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c, dir := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, t.TempDir()
	s := mustOpenAt(t, c, dir, etcd.Options{})
	other := mustOpenAt(t, c, "", etcd.Options{})
	put(t, s, "same", "1")
	put(t, s, "changed", "1")
	last := put(t, s, "deleted", "1")
	noError(t, s.Close())
	put(t, other, "changed", "2")
	put(t, other, "new", "1")
	if _, err := other.Update(t.Context(), func(tx *store.Tx) error { tx.Delete(key("deleted")); return nil }); err != nil {
		t.Fatal(err)
	}
	m.compact(t)
	m.stop()

	var got changes
	var mu sync.Mutex
	var lost []error
	s = mustOpenAt(t, c, dir, etcd.Options{OnCommit: got.add, OnLost: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, err)
	}})
	if now := s.Snapshot(); now.Index() != last.Index() || value(now, "changed") != "1" || value(now, "deleted") != "1" || now.Len() != 3 {
		t.Errorf("without etcd: index %d of %d, %d entries", now.Index(), last.Index(), now.Len())
	}
	if st := s.Status(); !st.Loaded || st.Live || st.Err == nil {
		t.Errorf("the state without etcd is %+v", st)
	}
	began := time.Now()
	if _, err := s.Update(t.Context(), func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > time.Second {
		t.Errorf("an Update without etcd: %v after %v", err, time.Since(began))
	}
	m.start(t)
	until(t, "it catches up", func() bool { return s.Snapshot().Index() > last.Index() && s.Err() == nil })
	if keys := got.take(); keys != "changed deleted new" {
		t.Errorf("changed: %s", keys)
	}
	now := put(t, s, "more", "1")
	if value(now, "changed")+value(now, "deleted")+value(now, "new")+value(now, "same") != "2-11" {
		t.Error("it did not catch up")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lost) != 2 || lost[0] == nil || lost[1] != nil {
		t.Errorf("reported %v", lost)
	}
}

// TestRestartOfEtcd: a store that runs while etcd restarts, and compacts, catches up.
func TestRestartOfEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}
	var got changes
	s := mustOpenAt(t, c, "", etcd.Options{OnCommit: got.add})
	put(t, s, "a", "1")
	m.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := s.Update(ctx, func(tx *store.Tx) error { return tx.Put(key("b"), []byte("1")) }); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 12*time.Second {
		t.Errorf("an Update while etcd is stopped: %v after %v", err, time.Since(began))
	}
	m.start(t)
	until(t, "an Update succeeds", func() bool {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(key("c"), []byte("1")) })
		return err == nil
	})
	if keys := got.take(); keys != "a c" && keys != "a b c" {
		t.Errorf("changed: %s", keys)
	}
}

// TestForeignPrefix: what others wrote is left alone, and named.
func TestForeignPrefix(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	for name, c := range map[string]struct {
		key, value, says string
	}{
		"another program":      {"foreign/x", "1", "another program"},
		"a newer format":       {"newer/format", `{"version":2,"fleet":"00"}`, "newer"},
		"an unreadable format": {"broken/format", `{`, "cannot be read"},
		"a fleet below":        {"outer/inner/format", `{"version":1,"fleet":"00"}`, "a fleet below it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := bare.Put(t.Context(), c.key, c.value); err != nil {
				t.Fatal(err)
			}
			prefix, _, _ := strings.Cut(c.key, "/")
			s, err := openAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: prefix}, "", etcd.Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("opened %v: %v", s, err)
			}
			all, err := bare.Get(t.Context(), prefix+"/", clientv3.WithPrefix())
			if err != nil || len(all.Kvs) != 1 || string(all.Kvs[0].Value) != c.value {
				t.Errorf("the prefix has %v, %v", all, err)
			}
		})
	}
}

// TestAnotherFleet: a daemon that has a copy of one fleet does not join another one.
func TestAnotherFleet(t *testing.T) {
	t.Parallel()
	m, dir := startMember(t), t.TempDir()
	first := mustOpenAt(t, m.create(t, "one"), dir, etcd.Options{})
	put(t, first, "a", "1")
	noError(t, first.Close())
	two := m.create(t, "two")
	put(t, mustOpenAt(t, two, "", etcd.Options{}), "b", "1")
	s, err := openAt(t, two, dir, etcd.Options{})
	if _, ok := errors.AsType[*etcd.ForeignError](err); !ok {
		t.Errorf("opened %v: %v", s, err)
	}
}

// TestRecordsThatCannotBeRead: they are named, and what they were before stays. What a newer lbd wrote is not changed.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	c, dir := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, t.TempDir()
	var log bytes.Buffer
	s := mustOpenAt(t, c, dir, etcd.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	put(t, s, "a", "1")
	put(t, s, "b", "1")
	at := "lbd/state/resource/Cluster/"
	if k := key("a"); string(k.Type) != "Cluster" {
		at = "lbd/state/resource/" + string(k.Type) + "/"
	}
	for _, bad := range []string{"", "x", "\x01wrong", "\x02from a newer lbd"} {
		if _, err := bare.Put(t.Context(), at+"a", bad); err != nil {
			t.Fatal(err)
		}
		until(t, "the problem is reported", func() bool { return len(s.Status().Problems) == 1 })
		now := put(t, s, "b", "2"+bad)
		if value(now, "a") != "1" {
			t.Errorf("after %q: a is %s", bad, value(now, "a"))
		}
	}
	noError(t, s.Close())
	if !strings.Contains(log.String(), "Cluster/a") || !strings.Contains(log.String(), "newer") {
		t.Errorf("logged %s", log.String())
	}
	s = mustOpenAt(t, c, dir, etcd.Options{})
	if now := s.Snapshot(); value(now, "a") != "1" || len(s.Status().Problems) != 1 {
		t.Errorf("after a restart: %s, %v", value(now, "a"), s.Status().Problems)
	}
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(key("a"), []byte("2")) }); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a change of what a newer lbd wrote: %v", err)
	}
	if _, err := bare.Put(t.Context(), at+"a", "\x01wrong"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is damaged", func() bool { return strings.Contains(fmt.Sprint(s.Status().Problems), "damaged") })
	now := put(t, s, "a", "2")
	if value(now, "a") != "2" || len(s.Status().Problems) != 0 {
		t.Errorf("after a push: %s, %v", value(now, "a"), s.Status().Problems)
	}
}

// TestNewerFormat: once a newer lbd has begun another format, a daemon that runs writes nothing more, and says why. It
// continues when the format is its own again.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{})
	put(t, s, "a", "1")
	now, err := bare.Get(t.Context(), "lbd/format")
	noError(t, err)
	own := string(now.Kvs[0].Value)
	_, err = bare.Put(t.Context(), "lbd/format", strings.Replace(own, `"version":1`, `"version":2`, 1))
	noError(t, err)
	before, err := bare.Get(t.Context(), "lbd/state/", clientv3.WithPrefix())
	noError(t, err)
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(key("a"), []byte("2")) }); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an Update: %v", err)
	}
	untilErr(t, s, "written by a newer lbd: format 2")
	after, err := bare.Get(t.Context(), "lbd/state/", clientv3.WithPrefix())
	if err != nil || fmt.Sprint(after.Kvs) != fmt.Sprint(before.Kvs) || value(s.Snapshot(), "a") != "1" {
		t.Errorf("etcd has %v, %v; the daemon %s", after, err, value(s.Snapshot(), "a"))
	}
	_, err = bare.Put(t.Context(), "lbd/format", own)
	noError(t, err)
	until(t, "it writes again", func() bool { return s.Err() == nil })
	put(t, s, "a", "3")
}

// manyEntries is how many entries many puts.
func manyEntries() int {
	if long() {
		return 1000
	}
	return 300
}

// many puts entries that do not fit into one transaction.
func many(tx *store.Tx, version string) error {
	for i := range manyEntries() {
		if err := tx.Put(key(fmt.Sprintf("many-%03d", i)), []byte(version+strings.Repeat(".", 5000))); err != nil {
			return err
		}
	}
	return nil
}

// versions are the versions of the entries of many.
func versions(s *store.Snapshot) string {
	seen := map[string]bool{}
	n := 0
	for e := range s.All() {
		if strings.HasPrefix(e.Key.Name, "many-") {
			n++
			version, _, _ := strings.Cut(string(e.Raw), ".")
			seen[version] = true
		}
	}
	return fmt.Sprint(n, seen)
}
