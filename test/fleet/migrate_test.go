package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// migrate runs lbd store migrate, and returns its exit code and output.
func migrate(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	return run(t, append([]string{"store", "migrate"}, args...)...)
}

// run runs a command of lbd, and returns its exit code and output.
func run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), buildDaemon(t, ""), args...)
	text, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(text)
}

func mustMigrate(t *testing.T, args ...string) {
	t.Helper()
	mustRun(t, "compared them", append([]string{"store", "migrate"}, args...)...)
}

// mustRun runs a command of lbd that must succeed, and say something.
func mustRun(t *testing.T, says string, args ...string) {
	t.Helper()
	if code, out := run(t, args...); code != 0 || !strings.Contains(out, says) {
		t.Fatalf("lbd %v: exit code %d, %s", args, code, out)
	}
}

// fileStore makes a store in a directory, and returns what it has.
func fileStore(t *testing.T, dir string, updates ...func(*store.Tx) error) *store.Snapshot {
	t.Helper()
	s, err := file.Open(dir, file.Options{})
	noError(t, err)
	for _, u := range updates {
		if _, err := s.Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	noError(t, s.Close())
	return s.Snapshot()
}

// TestMigrate copies from a file to etcd, to another prefix, and back to a file. Values, times and
// indices of entries stay as they are, and the index never becomes smaller.
func TestMigrate(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	one, two := t.TempDir(), t.TempDir()
	was := fileStore(t, one,
		func(tx *store.Tx) error { return tx.Put(key("first"), []byte("1")) },
		func(tx *store.Tx) error { return many(tx, "1") },
		func(tx *store.Tx) error { return tx.Put(key("large"), []byte(strings.Repeat("x", 3<<20))) },
		func(tx *store.Tx) error { return tx.Put(resource.Key{Type: "other/type", Name: "é\x00/%"}, nil) },
		func(tx *store.Tx) error { tx.Delete(key("first")); return nil },
	)
	url := func(prefix string) string { return "etcd://" + m.client + "/" + prefix }
	mustMigrate(t, one, url("one"))
	mustMigrate(t, url("one"), url("two"))
	mustMigrate(t, url("two"), two)
	if err := store.CheckCopy(was, fileStore(t, two)); err != nil {
		t.Error(err)
	}
	index, fleets := was.Index(), map[string]bool{}
	for _, prefix := range []string{"one", "two"} {
		s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: prefix}, "", etcd.Options{})
		if err := store.CheckCopy(was, s.Snapshot()); err != nil || s.Snapshot().Index() <= index {
			t.Errorf("%s: index %d after %d, %v", prefix, s.Snapshot().Index(), index, err)
		}
		index = put(t, s, "large", "2").Index()
		fleets[s.Status().Fleet] = true
		if err := s.CollectGarbage(t.Context()); err != nil {
			t.Error(err)
		}
		if e, _ := s.Snapshot().Get(key("large")); e.Index != index {
			t.Errorf("an entry of index %d, put at %d", e.Index, index)
		}
	}
	if len(fleets) != 1 {
		t.Errorf("the fleet has the ids %v", fleets)
	}
	if now := fileStore(t, two, func(tx *store.Tx) error { return tx.Put(key("new"), nil) }); now.Index() <= was.Index() {
		t.Errorf("index %d after %d", now.Index(), was.Index())
	}
}

// TestMigrateRefuses: nothing is overwritten or copied in part, and the error says what to do.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	url := func(prefix string) string { return "etcd://" + m.client + "/" + prefix }
	full := t.TempDir()
	fileStore(t, full, func(tx *store.Tx) error { return tx.Put(key("a"), []byte("1")) })
	data := t.TempDir()
	fileStore(t, filepath.Join(data, "fleet"), func(tx *store.Tx) error { return tx.Put(key("a"), []byte("1")) })
	used := t.TempDir()
	running, err := file.Open(used, file.Options{})
	noError(t, err)
	t.Cleanup(func() { _ = running.Close() })
	put(t, mustOpenAt(t, m.create(t, "running"), "", etcd.Options{}), "a", "1")
	damaged := mustOpenAt(t, m.create(t, "damaged"), "", etcd.Options{})
	put(t, damaged, "a", "1")
	noError(t, damaged.Close())
	for key, value := range map[string]string{
		"other/program": "1", "unfinished/migration": "2026-11-23T08:00:00Z", strings.Replace(entryAt("a"), "lbd/", "damaged/", 1): "?",
	} {
		if _, err := bare.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	everything := func() string {
		res, err := bare.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		noError(t, err)
		var keys []string
		for _, kv := range res.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return strings.Join(keys, "\n")
	}
	before := everything()
	for name, c := range map[string]struct {
		from, to, says string
		code           int
	}{
		"no store":             {t.TempDir(), url("new"), "no such file", 1},
		"only a copy":          {data, url("new"), filepath.Join(data, "fleet"), 1},
		"a running daemon":     {used, url("new"), "in use by another lbd", 1},
		"running daemons":      {url("running"), t.TempDir(), "stop them first", 1},
		"an empty prefix":      {url("empty"), t.TempDir(), "nothing is stored", 1},
		"a damaged record":     {url("damaged"), t.TempDir(), "push their resources again", 1},
		"to a fleet":           {full, url("running"), "has resources already", 1},
		"to another program":   {full, url("other"), "keys of another program", 1},
		"below a fleet":        {full, url("running/new"), "below running", 1},
		"to an unfinished one": {full, url("unfinished"), "etcdctl del --prefix unfinished/", 1},
		"to a full directory":  {full, full, "in use by another lbd", 1},
		"to resources":         {full, filepath.Join(data, "fleet"), "choose another directory", 1},
		"to no etcd":           {full, "etcd://127.0.0.1:1/x", "etcd did not respond", 1},
		"not a store":          {full, "http://a/b", "is not etcd://", 80},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out := migrate(t, c.from, c.to); code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
	if after := everything(); after != before {
		t.Errorf("etcd has\n%s\ninstead of\n%s", after, before)
	}
}

// TestMigrateWithoutSpace: a copy that does not fit is removed again.
func TestMigrateWithoutSpace(t *testing.T) {
	t.Parallel()
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t), quota: 4 << 20}
	m.start(t)
	t.Cleanup(m.stop)
	// etcd knows its size some time after it has written: another program fills it first.
	bare := m.bare(t)
	for i := 0; ; i++ {
		if _, err := bare.Put(t.Context(), "other", fmt.Sprint(i)+strings.Repeat("x", 200_000)); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil || i == 10_000 {
			t.Fatalf("etcd has space after %d puts: %v", i, err)
		}
	}
	dir := t.TempDir()
	fileStore(t, dir, func(tx *store.Tx) error {
		for i := range 50 {
			if err := tx.Put(key(fmt.Sprint(i)), []byte(strings.Repeat("x", 200_000))); err != nil {
				return err
			}
		}
		return nil
	})
	if code, out := migrate(t, dir, "etcd://"+m.client+"/lbd"); code != 1 || !strings.Contains(out, "etcdctl alarm disarm") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if all, err := bare.Get(t.Context(), "lbd/", clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil || len(all.Kvs) > 0 {
		t.Errorf("etcd has %v, %v", all, err)
	}
}

// TestLostEtcdFromACopy: after etcd is lost, a new one begins with the copy of a stopped daemon. A
// daemon that runs joins it, and so does one without a copy, which has not claimed the prefix before.
func TestLostEtcdFromACopy(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c, dir := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, t.TempDir()
	s := mustOpenAt(t, c, dir, etcd.Options{})
	var got changes
	other := mustOpenAt(t, c, t.TempDir(), etcd.Options{OnCommit: got.add})
	last := put(t, s, "a", "1")
	until(t, "both have it", func() bool { return other.Snapshot().Index() == last.Index() })
	noError(t, s.Close())
	last = put(t, other, "late", "1") // the copy does not have it
	got.take()
	m.stop()
	noError(t, os.RemoveAll(m.dir))
	m.start(t)
	fresh := mustOpenAt(t, c, t.TempDir(), etcd.Options{})
	if err := fresh.Err(); err == nil || fresh.Loaded() || !strings.Contains(err.Error(), "lbd store migrate") {
		t.Errorf("a daemon without a copy: loaded %v, %v", fresh.Loaded(), err)
	}
	mustMigrate(t, dir, "etcd://"+m.client+"/lbd")
	until(t, "the running daemon joins", func() bool { return other.Err() == nil && value(other.Snapshot(), "late") == "-" })
	until(t, "the one without a copy joins", func() bool { return value(fresh.Snapshot(), "a") == "1" })
	if keys := got.take(); keys != "late" || other.Snapshot().Index() <= last.Index() {
		t.Errorf("changed: %s, index %d after %d", keys, other.Snapshot().Index(), last.Index())
	}
	s = mustOpenAt(t, c, dir, etcd.Options{})
	now := put(t, s, "b", "1")
	until(t, "both have what is new", func() bool { return other.Snapshot().Index() == now.Index() })
	put(t, other, "c", "1")
}
