package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// save writes a backup of a member, and returns its path.
func (m *member) save(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	c := clientv3.Config{Endpoints: []string{m.client}, DialTimeout: 5 * time.Second}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(t.Context(), c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// restore stops a member, and starts it with a backup: with etcdutl's --bump-revision and
// --mark-compacted, or without them.
func (m *member) restore(t *testing.T, backup string, bump bool) {
	t.Helper()
	m.stop()
	noError(t, os.RemoveAll(m.dir))
	c := snapshot.RestoreConfig{
		SnapshotPath: backup, Name: "m0", OutputDataDir: m.dir, PeerURLs: []string{"http://" + m.peer},
		InitialCluster: "m0=http://" + m.peer, InitialClusterToken: "restored",
	}
	if bump {
		c.RevisionBump, c.MarkCompacted = 1_000_000_000, true
	}
	noError(t, snapshot.NewV3(zap.NewNop()).Restore(c))
	m.start(t)
}

// untilErr waits for an error of a store that says something.
func untilErr(t *testing.T, s *etcd.Store, says string) {
	t.Helper()
	until(t, "the error says "+says, func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), says) })
}

// TestRestoredEtcd: an etcd that is restored from a backup is in an older state. Replicas use
// nothing of it, until it is restored as the error says: then they apply the difference.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c, dir := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, t.TempDir()
	var got changes
	s := mustOpenAt(t, c, dir, etcd.Options{OnCommit: got.add})
	put(t, s, "same", "1")
	put(t, s, "changed", "1")
	backup := m.save(t)
	put(t, s, "changed", "2")
	last := put(t, s, "new", "2")
	got.take()

	m.restore(t, backup, false)
	untilErr(t, s, "--bump-revision 1000000000 --mark-compacted")
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(key("lost"), nil) }); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an Update: %v", err)
	}
	noError(t, s.Close())
	s = mustOpenAt(t, c, dir, etcd.Options{OnCommit: got.add})
	if now := s.Snapshot(); now.Index() != last.Index() || value(now, "changed") != "2" || s.Err() == nil {
		t.Errorf("after a restart: index %d of %d, %s, %v", now.Index(), last.Index(), value(now, "changed"), s.Err())
	}
	if keys := got.take(); keys != "" {
		t.Errorf("changed: %s", keys)
	}

	m.restore(t, backup, true)
	until(t, "it has what was restored", func() bool { return s.Err() == nil && value(s.Snapshot(), "changed") == "1" })
	if keys := got.take(); keys != "changed new" {
		t.Errorf("changed: %s", keys)
	}
	if now := put(t, s, "new", "3"); now.Index() <= last.Index() {
		t.Errorf("index %d after %d", now.Index(), last.Index())
	}
}

// TestRestoredWhileConnected: a backup with a higher revision, and no mark of compaction, is
// noticed, too.
func TestRestoredWhileConnected(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{})
	put(t, s, "a", "1")
	backup := m.save(t)
	put(t, s, "a", "2")
	m.restore(t, backup, false)
	c := m.bare(t) // another program, which lets the revision grow
	for s.Snapshot().Index() > 0 {
		res, err := c.Put(t.Context(), "other", "")
		noError(t, err)
		if uint64(res.Header.Revision) > s.Snapshot().Index()+10 {
			break
		}
	}
	until(t, "it has what was restored", func() bool { return s.Err() == nil && value(s.Snapshot(), "a") == "1" })
}

// TestLostEtcd: an etcd that begins empty is not used, and nothing is written to it.
func TestLostEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c, dir := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, t.TempDir()
	s := mustOpenAt(t, c, dir, etcd.Options{})
	last := put(t, s, "a", "1")
	m.stop()
	noError(t, os.RemoveAll(m.dir))
	m.start(t)
	untilErr(t, s, "lbd store migrate")
	noError(t, s.Close())
	s = mustOpenAt(t, c, dir, etcd.Options{})
	if now := s.Snapshot(); now.Index() != last.Index() || value(now, "a") != "1" {
		t.Errorf("after a restart: index %d of %d, %s", now.Index(), last.Index(), value(now, "a"))
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "lbd store migrate") {
		t.Errorf("after a restart: %v", err)
	}
	all, err := m.bare(t).Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) > 0 {
		t.Errorf("etcd has %v, %v", all, err)
	}
}

// TestUnreadableRecordOfANewReplica: a record that a replica never could read does not block
// Updates that depend on it: it is as good as absent.
func TestUnreadableRecordOfANewReplica(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}
	s := mustOpenAt(t, c, "", etcd.Options{})
	put(t, s, "a", "1")
	if _, err := m.bare(t).Put(t.Context(), entryAt("a"), "\x01wrong"); err != nil {
		t.Fatal(err)
	}
	s = mustOpenAt(t, c, "", etcd.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, want := range []string{"2", "3"} {
		after, err := s.Update(ctx, func(tx *store.Tx) error {
			tx.Get(key("a"))
			return tx.Put(key("a"), []byte(want))
		})
		if err != nil || value(after, "a") != want {
			t.Fatalf("got %v", err)
		}
	}
}

// TestUnreadableLargeCommit: a key pending that cannot be read ends Updates with an error that
// names it, and deleting the key is enough.
func TestUnreadableLargeCommit(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	c := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}
	for name, value := range map[string]string{"damaged": "\x01wrong", "newer": "\x02wrong"} {
		t.Run(name, func(t *testing.T) {
			s := mustOpenAt(t, c, "", etcd.Options{})
			put(t, s, "a", "1")
			if _, err := bare.Put(t.Context(), "lbd/state/pending", value); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var err error
			until(t, "an Update fails", func() bool {
				_, err = s.Update(ctx, func(tx *store.Tx) error { return tx.Put(key("a"), []byte("1"+name)) })
				return err != nil
			})
			if !errors.Is(err, store.ErrCannotWrite) || !strings.Contains(err.Error(), "lbd/state/pending") {
				t.Errorf("got %v", err)
			}
			if len(s.Status().Problems) != 1 {
				t.Errorf("problems: %v", s.Status().Problems)
			}
			if _, err := bare.Delete(t.Context(), "lbd/state/pending"); err != nil {
				t.Fatal(err)
			}
			until(t, "it is solved", func() bool { return len(s.Status().Problems) == 0 })
			put(t, s, "a", "3")
		})
	}
}

// entryAt is the key of an entry.
func entryAt(name string) string { return "lbd/state/resource/" + string(key(name).Type) + "/" + name }
