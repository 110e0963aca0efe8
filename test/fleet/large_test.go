package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

const writerEnv = "LBD_FLEET_TEST_WRITER" // HOST:PORT of etcd and a version

func TestMain(m *testing.M) {
	if args := os.Getenv(memberEnv); args != "" {
		runMember(strings.Fields(args))
	}
	if to := os.Getenv(writerEnv); to != "" {
		writeUntilKilled(to)
	}
	os.Exit(m.Run())
}

// writeUntilKilled is a process that commits one large version after the other.
func writeUntilKilled(to string) {
	endpoint, first, _ := strings.Cut(to, " ")
	s, err := etcd.Open(context.Background(), etcd.Config{Endpoints: []string{endpoint}, Prefix: "lbd"}, etcd.Options{})
	for i := 0; err == nil; i++ {
		fmt.Println("begin")
		_, err = s.Update(context.Background(), func(tx *store.Tx) error { return many(tx, fmt.Sprint(first, "-", i)) })
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKilledWriters kills writers of large commits: each is whole or not at all at every
// replica, and the next writer goes on.
func TestKilledWriters(t *testing.T) {
	rounds := 30
	if long() {
		rounds = 200
	}
	m := startMember(t)
	c := etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}
	whole := func(commit store.Commit) {
		if v := versions(commit.After); strings.Count(v, ":") > 1 || !strings.HasPrefix(v, fmt.Sprint(manyEntries(), " ")) && !strings.HasPrefix(v, "0 ") {
			t.Errorf("commit %d has %s", commit.After.Index(), v)
		}
	}
	replicas := []*etcd.Store{mustOpenAt(t, c, "", etcd.Options{OnCommit: whole}), mustOpenAt(t, c, "", etcd.Options{OnCommit: whole})}
	pending := 0
	for round := range rounds {
		writer := exec.CommandContext(t.Context(), os.Args[0])
		writer.Env = append(os.Environ(), fmt.Sprintf("%s=%s r%d", writerEnv, m.client, round))
		writer.Stderr = os.Stderr
		out, err := writer.StdoutPipe()
		if err == nil {
			err = writer.Start()
		}
		noError(t, err)
		lines := bufio.NewScanner(out)
		lines.Scan() // the first large commit begins
		time.Sleep(time.Duration(round*37%200) * time.Millisecond)
		noError(t, writer.Process.Kill())
		_ = writer.Wait()
		if res, err := m.bare(t).Get(t.Context(), "lbd/state/pending"); err == nil && len(res.Kvs) > 0 {
			pending++
		}
		late := mustOpenAt(t, c, "", etcd.Options{}) // it reads all at one revision
		whole(store.Commit{After: late.Snapshot()})
		now := put(t, late, "last", fmt.Sprint(round))
		whole(store.Commit{After: now})
		for _, r := range replicas {
			until(t, "the replica has it", func() bool { return r.Snapshot().Index() >= now.Index() })
			if got, want := versions(r.Snapshot()), versions(late.Snapshot()); got != want {
				t.Errorf("a replica has %s, another one %s", got, want)
			}
		}
		if err := late.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of %d writers left a commit that was not folded", pending, rounds)
}

// TestGarbage: what nothing refers to is deleted, and what is in use is not.
func TestGarbage(t *testing.T) {
	m := startMember(t)
	bare := m.bare(t)
	s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{})
	blobs := func() int {
		res, err := bare.Get(t.Context(), "lbd/blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noError(t, err)
		return int(res.Count)
	}
	large := strings.Repeat("x", 1<<20)
	put(t, s, "a", large+"1")
	put(t, s, "b", large+"1")
	used := blobs()
	put(t, s, "a", large+"2")
	put(t, s, "a", large+"3")
	if _, err := bare.Put(t.Context(), "lbd/blob/0123-7-0/00000000", "of a writer that is gone"); err != nil {
		t.Fatal(err)
	}
	alive := "lbd/blob/" + strings.TrimPrefix(writerKey(t, bare), "lbd/state/writer/") + "-999-0/00000000"
	if _, err := bare.Put(t.Context(), alive, "of a commit that is being prepared"); err != nil {
		t.Fatal(err)
	}
	noError(t, s.CollectGarbage(t.Context()))
	if n := blobs(); n != used+1 {
		t.Errorf("%d parts are left of %d that are in use", n, used+1)
	}
	fresh := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{})
	if value(fresh.Snapshot(), "a") != large+"3" || value(fresh.Snapshot(), "b") != large+"1" {
		t.Error("what is in use was deleted")
	}
}

// TestFirstCommit: the first transaction of a writer puts its key, so that no replica gets another
// revision; but the key is there before a blob is, which would be garbage without it.
func TestFirstCommit(t *testing.T) {
	m := startMember(t)
	bare := m.bare(t)
	for what, tt := range map[string]struct {
		size   int
		part   string
		before bool // the key was put before the part
	}{
		"a small value": {10, "state/head", false},
		"a blob":        {1 << 20, "blob/", true},
	} {
		c := m.fresh(t)
		put(t, mustOpenAt(t, c, "", etcd.Options{}), "a", strings.Repeat("x", tt.size))
		created := func(under string) int64 {
			res, err := bare.Get(t.Context(), c.Prefix+"/"+under, clientv3.WithFirstCreate()...)
			if err != nil || len(res.Kvs) != 1 {
				t.Fatalf("%s: %v, %v", what, res, err)
			}
			return res.Kvs[0].CreateRevision
		}
		writer, part := created("state/writer/"), created(tt.part)
		if writer > part || tt.before != (writer < part) {
			t.Errorf("%s: the key of the writer is of revision %d, %s of %d", what, writer, tt.part, part)
		}
	}
}

func writerKey(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	res, err := c.Get(t.Context(), "lbd/state/writer/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	return string(res.Kvs[0].Key)
}

// TestNoSpace: etcd's alarm is an error that says what to do, and the store goes on afterwards.
func TestNoSpace(t *testing.T) {
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t), quota: 4 << 20}
	m.start(t)
	t.Cleanup(m.stop)
	s := mustOpenAt(t, m.create(t, "lbd"), "", etcd.Options{})
	put(t, s, "a", "1")
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = s.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Put(key("large"), []byte(fmt.Sprint(i)+strings.Repeat("x", 200_000)))
		})
	}
	if !isNoSpace(err) {
		t.Fatalf("got %v", err)
	}
	if value(s.Snapshot(), "a") != "1" {
		t.Error("the contents changed")
	}
}

func isNoSpace(err error) bool {
	return errors.Is(err, store.ErrCannotWrite) && strings.Contains(err.Error(), "alarm disarm")
}
