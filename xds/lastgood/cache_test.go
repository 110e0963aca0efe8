package lastgood

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is the maximum time until a change is on disk.
const soon = time.Second

// pass advances the time of the bubble, and waits until all goroutines block.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func clusterKey(name string) resource.Key {
	return resource.Key{Type: resource.TypeCluster, Name: name}
}

func entry(name, raw, version string) resource.Update {
	return resource.Update{Item: resource.Item{Key: clusterKey(name), Raw: []byte(raw)}, Version: version, Updated: time.Date(2026, 11, 20, 12, 0, 0, len(raw), time.UTC)}
}

func removed(keys ...resource.Key) []resource.Update {
	updates := make([]resource.Update, len(keys))
	for i, key := range keys {
		updates[i].Key = key
	}
	return updates
}

func open(t *testing.T, dir string, log *bytes.Buffer) *Resources {
	t.Helper()
	var logger *slog.Logger
	if log != nil {
		logger = slog.New(slog.NewTextHandler(log, nil))
	}
	c := OpenResources(dir, logger)
	t.Cleanup(func() { closeCache(t, c) })
	return c
}

func closeCache(t *testing.T, c *Resources) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func same(a, b resource.Update) bool {
	return a.Key == b.Key && bytes.Equal(a.Raw, b.Raw) && a.Version == b.Version && a.Updated.Equal(b.Updated)
}

// wantAll checks what the cache has on disk.
func wantAll(t *testing.T, c *Resources, want ...resource.Update) {
	t.Helper()
	got := slices.Collect(c.All())
	want = slices.SortedFunc(slices.Values(want), func(a, b resource.Update) int {
		return cmp.Or(cmp.Compare(a.Key.Type, b.Key.Type), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("has %d entries, want %d\n%.2000v\n%.2000v", len(got), len(want), got, want)
	}
}

func TestPutAndRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		a, b := entry("a", "1", "v1"), entry("b", "22", "")
		c.Put([]resource.Update{a, b})
		wantAll(t, c)
		pass(soon)
		wantAll(t, c, a, b)

		newer := entry("a", "333", "v2")
		c.Put([]resource.Update{newer})
		c.Put(removed(b.Key, clusterKey("none")))
		pass(soon)
		wantAll(t, c, newer)
	})
}

func TestNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		c.Put([]resource.Update{entry("a", "1", "v1"), entry("b", "1", "v1")})
		c.Put([]resource.Update{entry("a", "2", "v2"), entry("a", "3", "v3")})
		c.Put(removed(clusterKey("b")))
		c.Put(removed(clusterKey("c")))
		c.Put([]resource.Update{entry("c", "1", "v1")})
		pass(soon)
		wantAll(t, c, entry("a", "3", "v3"), entry("c", "1", "v1"))
	})
}

// A failed batch does not replace newer changes.
func TestRestoreKeepsNewerChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		failedA, failedB, newer := entry("a", "1", "v1"), entry("b", "1", "v1"), entry("a", "2", "v2")
		c.Put([]resource.Update{newer})
		c.cache.restore(map[resource.Key][]byte{failedA.Key: encode(&failedA), failedB.Key: encode(&failedB)})
		pass(soon)
		wantAll(t, c, newer, failedB)
	})
}

func TestSameContentKeepsVersionAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		first := entry("a", "1", "v1")
		c.Put([]resource.Update{first})
		pass(soon)
		before := c.cache.store.Snapshot()
		c.Put([]resource.Update{entry("a", "1", "v2")})
		pass(soon)
		if c.cache.store.Snapshot() != before {
			t.Error("unchanged content is written again")
		}
		wantAll(t, c, first)
	})
}

func TestCloseWritesPending(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, nil)
	a := entry("a", "1", "v1")
	c.Put([]resource.Update{a})
	closeCache(t, c)
	closeCache(t, c)
	c.Put([]resource.Update{entry("b", "1", "v1")})
	c.Put(removed(a.Key))
	wantAll(t, c, a)
	wantAll(t, open(t, dir, nil), a)
}

func TestWithoutDirectory(t *testing.T) {
	var log bytes.Buffer
	c := open(t, "", &log)
	c.Put([]resource.Update{entry("a", "1", "v1")})
	c.Put(removed(clusterKey("a")))
	wantAll(t, c)
	closeCache(t, c)
	if len(c.cache.pending) != 0 {
		t.Errorf("%d resources are pending without a disk", len(c.cache.pending))
	}
	if log.Len() != 0 {
		t.Errorf("the log:\n%s", log.String())
	}
}

// fleet is a thousand clusters of a hundred endpoints each, as a server sends them.
func fleet(t *testing.T, version string, weight uint32) []resource.Update {
	t.Helper()
	var entries []resource.Update
	add := func(k resource.Key, m proto.Message) {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		noError(t, err)
		entries = append(entries, resource.Update{Item: resource.Item{Key: k, Raw: raw}, Version: version, Updated: time.Unix(int64(weight), 0).UTC()})
	}
	for c := range 1000 {
		name := fmt.Sprintf("cluster-%04d", c)
		add(clusterKey(name), &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}})
		locality := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(weight)}
		for e := range 100 {
			locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: fmt.Sprintf("10.%d.%d.%d", c/256, c%256, e), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
				}}}},
			}})
		}
		add(resource.Key{Type: resource.TypeAssignment, Name: name}, &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}})
	}
	return entries
}

// TestKilled opens a copy of the files while the cache is open.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
		c := open(t, dir, nil)
		old, last := fleet(t, "v1", 1), fleet(t, "v2", 2)
		c.Put(old)
		pass(soon)
		c.Put(last)
		pass(soon)
		c.Put([]resource.Update{entry("cluster-0000", "too late", "v3")})
		noError(t, os.CopyFS(copied, os.DirFS(dir)))
		want := map[resource.Key]resource.Update{}
		for _, e := range slices.Concat(old, last) { // Clusters are the same in both
			if kept, there := want[e.Key]; !there || !bytes.Equal(kept.Raw, e.Raw) {
				want[e.Key] = e
			}
		}
		if want[last[0].Key].Version != "v1" || want[last[1].Key].Version != "v2" {
			t.Fatal("the fleets are invalid")
		}
		var entries []resource.Update
		for _, e := range want {
			entries = append(entries, e)
		}
		wantAll(t, open(t, copied, nil), entries...)
	})
}

// TestFlood counts the commits for hundreds of updates per second.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		const seconds = 20
		commits, last := 0, c.cache.store.Snapshot()
		for i := range seconds * 100 {
			for k := range 3 {
				c.Put([]resource.Update{entry(fmt.Sprint(k), fmt.Sprint(i, k), fmt.Sprint("v", i))})
			}
			pass(time.Second / 100)
			if s := c.cache.store.Snapshot(); s != last {
				commits, last = commits+1, s
			}
		}
		if commits > 2*seconds || commits < 2*seconds-1 {
			t.Errorf("%d commits in %d seconds, want two per second", commits, seconds)
		}
		pass(soon)
		i := seconds*100 - 1
		wantAll(t, c, entry("0", fmt.Sprint(i, 0), fmt.Sprint("v", i)), entry("1", fmt.Sprint(i, 1), fmt.Sprint("v", i)), entry("2", fmt.Sprint(i, 2), fmt.Sprint("v", i)))
	})
}

func TestConcurrentUse(t *testing.T) {
	c := open(t, t.TempDir(), nil)
	var want []resource.Update
	var all sync.WaitGroup
	for g := range 8 {
		want = append(want, entry(fmt.Sprint(g), "99", "v99"))
		all.Go(func() {
			for i := range 100 {
				c.Put(removed(clusterKey(fmt.Sprint(g))))
				c.Put([]resource.Update{entry(fmt.Sprint(g), fmt.Sprint(i), fmt.Sprint("v", i))})
				for range c.All() {
					break
				}
			}
		})
	}
	all.Wait()
	closeCache(t, c)
	wantAll(t, c, want...)
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := open(t, t.TempDir(), &log)
		c.cache.Limit = 2
		c.Put([]resource.Update{entry("x", "1", "v1"), entry("y", "1", "v1"), entry("z", "1", "v1")})
		pass(soon)
		if n := len(slices.Collect(c.All())); n != 2 {
			t.Errorf("%d of 3 are stored", n)
		}
		c.Put(removed(clusterKey("x"), clusterKey("y"), clusterKey("z")))
		c.Put([]resource.Update{entry("a", "1", "v1"), entry("b", "1", "v1")})
		pass(soon)
		c.Put([]resource.Update{entry("c", "1", "v1"), entry("b", "2", "v2")})
		pass(soon)
		wantAll(t, c, entry("a", "1", "v1"), entry("b", "2", "v2"))
		c.Put(removed(clusterKey("a")))
		c.Put([]resource.Update{entry("c", "1", "v1")})
		pass(soon)
		wantAll(t, c, entry("b", "2", "v2"), entry("c", "1", "v1"))
		c.Put([]resource.Update{entry("a", "1", "v1")})
		pass(soon)
		if n := strings.Count(log.String(), "level="); n != 1 || !strings.Contains(log.String(), "limit=2") {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}

func TestInvalidNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := open(t, t.TempDir(), &log)
		c.Put([]resource.Update{entry(strings.Repeat("a", store.MaxKeySize), "1", "v1"), entry("a", "1", "v1")})
		pass(soon)
		c.Put([]resource.Update{entry(strings.Repeat("b", store.MaxKeySize), "1", "v1")})
		pass(soon)
		wantAll(t, c, entry("a", "1", "v1"))
		if n := strings.Count(log.String(), "level="); n != 1 || !strings.Contains(log.String(), store.ErrInvalidKey.Error()) {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}

// A damaged file is set aside, logged and replaced.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, nil)
	c.Put([]resource.Update{entry("a", strings.Repeat("1", 5000), "v1")})
	closeCache(t, c)
	path := filepath.Join(dir, resourcesDirectory, "lbd.db")
	data, err := os.ReadFile(path)
	noError(t, err)
	at := bytes.Index(data, []byte("11111"))
	data[at+100] ^= 1
	noError(t, os.WriteFile(path, data, 0o600))

	var log bytes.Buffer
	c = open(t, dir, &log)
	wantAll(t, c)
	aside, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(aside) != 1 || !strings.Contains(log.String(), aside[0]) || !strings.Contains(log.String(), "is set aside, and the store begins empty") {
		t.Errorf("files %v, the log:\n%s", aside, log.String())
	}
	if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, data) {
		t.Errorf("the damaged file has changed: %v", err)
	}
	c.Put([]resource.Update{entry("b", "1", "v1")})
	closeCache(t, c)
	wantAll(t, open(t, dir, nil), entry("b", "1", "v1"))
}

// A disk that cannot be used is logged; the cache then stores nothing.
func TestUnusableDisk(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"a file in place of the directory": {
			func(t *testing.T, dir string) {
				noError(t, os.WriteFile(filepath.Join(dir, resourcesDirectory), nil, 0o600))
			}, "not a directory",
		},
		"in use": {
			func(t *testing.T, dir string) { open(t, dir, nil) }, file.ErrInUse.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			row.prepare(t, dir)
			var log bytes.Buffer
			c := open(t, dir, &log)
			c.Put([]resource.Update{entry("a", "1", "v1")})
			wantAll(t, c)
			closeCache(t, c)
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), row.want) {
				t.Errorf("the log:\n%s", log.String())
			}
		})
	}
}

// Entries of an unknown format are logged and ignored.
func TestUnknownFormat(t *testing.T) {
	dir := t.TempDir()
	s, err := file.Open(filepath.Join(dir, resourcesDirectory), file.Options{})
	noError(t, err)
	encoded := func(u resource.Update) []byte { return encode(&u) }
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tx.Put(clusterKey("empty"), nil),
			tx.Put(clusterKey("later"), append([]byte{entryFormat + 1}, encoded(entry("", "1", "v1"))[1:]...)),
			tx.Put(clusterKey("long"), append(make([]byte, 0), entryFormat, 0, 0, 0, 0, 0, 0, 0, 0, 5, 'v')),
			tx.Put(clusterKey("good"), encoded(entry("good", "1", "v1"))),
		)
	}); err != nil {
		t.Fatal(err)
	}
	noError(t, s.Close())
	var log bytes.Buffer
	c := open(t, dir, &log)
	wantAll(t, c, entry("good", "1", "v1"))
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
		t.Errorf("the log:\n%s", log.String())
	}
	c.Put([]resource.Update{entry("later", "1", "v1")})
	closeCache(t, c)
	wantAll(t, c, entry("good", "1", "v1"), entry("later", "1", "v1"))
}

// The entry of another server replaces one, also if the resource is the same.
func TestEntryOfAnotherServer(t *testing.T) {
	e := entry("a", "raw", "v1")
	e.Server = "a:1"
	again, err := decode(clusterKey("a"), encode(&e))
	if err != nil || !same(again, e) || again.Server != e.Server {
		t.Fatalf("read %+v, %v; want %+v", again, err, e)
	}
	for n := range encode(&e) { // cut short it is an error, or another Raw
		if cut, err := decode(clusterKey("a"), encode(&e)[:n]); err == nil && cut.Server != e.Server {
			t.Errorf("cut at %d: read %+v", n, cut)
		}
	}

	dir := t.TempDir()
	c := OpenResources(dir, nil)
	first, other := entry("a", "1", "v1"), entry("a", "1", "v1")
	c.Put([]resource.Update{first})
	noError(t, c.cache.Flush())
	other.Server = "b:1"
	c.Put([]resource.Update{other})
	noError(t, c.Close())
	c = OpenResources(dir, nil)
	defer func() { _ = c.Close() }()
	for got := range c.All() {
		if got.Server != "b:1" {
			t.Errorf("stored %+v", got)
		}
	}
}

func FuzzEntry(f *testing.F) {
	first := entry("a", "raw", "version")
	f.Add(encode(&first))
	f.Add([]byte{entryFormat, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(clusterKey("a"), b)
		if err != nil {
			return
		}
		again, err := decode(clusterKey("a"), encode(&e))
		if err != nil || !same(e, again) {
			t.Errorf("got %v, %v, want %v", again, err, e)
		}
	})
}
