package fleet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// older is a commit whose lbd is older than this one.
const older = "d37d4828"

// buildOlder returns the binary of an older lbd: LBD_TEST_OLDER, or one that it builds; "" if that takes too long now.
func buildOlder(t *testing.T) string {
	t.Helper()
	if built := os.Getenv("LBD_TEST_OLDER"); built != "" || !long() {
		return built
	}
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$0" | tar -x -C "$1" && go build -C "$1" -o lbd ./cmd/lbd`, older, dir)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s, which needs the history of the repository: %v\n%s", older, err, text)
	}
	return filepath.Join(dir, "lbd")
}

// buildFuture returns the binary of an lbd of the future. It has a kind Policy, of which it puts a record for each target
// that it hosts; a field 5000 in each resource of a cluster whose name begins with field; and a newer format of records
// whose key has newer.
func buildFuture(t *testing.T) string {
	t.Helper()
	const kinds, hosting, change, record = "../../service/sources/kinds.go", "../../service/sources/hosting.go", "../../service/sources/change.go", "../../xds/store/etcd/record.go"
	return buildDaemon(t, overlay(t,
		[3]string{kinds, "var kinds = map[resource.Type]kind{", `var kinds = map[resource.Type]kind{"Policy": {},`},
		[3]string{hosting, "return p.put(tx, c, item)", `_ = tx.Put(resource.Key{Type: "Policy", Name: key.Name}, []byte("?")); return p.put(tx, c, item)`},
		[3]string{change, "	before, exists := tx.Get(i.Key)\n	after :=", `	if strings.HasPrefix(i.Key.Name, "field") && !bytes.Contains(i.Raw, []byte("future")) {
			i.Raw = append(bytes.Clone(i.Raw), "\xc2\xb8\x02\x06future"...)
		}
		before, exists := tx.Get(i.Key)
		after :=`},
		[3]string{change, `	"slices"`, `	"slices"; "strings"`},
		[3]string{record, "	b[0] = recordVersion\n", "	b[0] = recordVersion; if strings.Contains(key, \"newer\") { b[0]++ }\n"},
		[3]string{record, "value[0] > recordVersion", "value[0] > recordVersion+1"},
		[3]string{record, "value[0] != recordVersion", "value[0] < recordVersion"},
		[3]string{record, `	"fmt"`, `	"fmt"; "strings"`},
	))
}

// TestVersions: an older lbd, this one and one of the future, in one fleet and one after the other on one data directory.
// The older one takes part with LBD_TEST_LONG=1.
func TestVersions(t *testing.T) {
	t.Parallel()
	older, now, future := buildOlder(t), buildDaemon(t, ""), buildFuture(t)
	t.Run("OneFleet", func(t *testing.T) { oneFleet(t, older, now, future) })
	t.Run("OneDirectory", func(t *testing.T) { oneDirectory(t, older, now, future) })
}

// mustRequest makes a request that must have a status, and returns its body.
func (d *daemon) mustRequest(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	status, text := d.request(method, path, body)
	if status != want && (want != http.StatusOK || status != http.StatusCreated) {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

// has checks that an answer has a text.
func has(t *testing.T, what, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%s: %.1000s has no %s", what, text, want)
	}
}

// leavesTheFuture checks what this lbd does with what the future one has put: it names it, and a snapshot leaves it.
func (d *daemon) leavesTheFuture(t *testing.T) {
	t.Helper()
	has(t, "the store", d.mustRequest(t, http.StatusOK, http.MethodGet, "/v1/store", ""), `"unknown_kinds":{"Policy":1}`)
	has(t, "metrics", d.mustRequest(t, http.StatusOK, http.MethodGet, "/metrics", ""), "\nlbd_store_unknown_records 1\n")
	edit := d.mustRequest(t, http.StatusOK, http.MethodPut, "/v1/clusters/field/endpoints/127.0.0.1:80", `{"weight":7}`)
	if strings.Contains(edit, "it is lost") {
		t.Errorf("a change of one endpoint: %s", edit)
	}
	snapshot := d.mustRequest(t, http.StatusOK, http.MethodGet, "/v1/snapshot", "")
	answer := d.mustRequest(t, http.StatusOK, http.MethodPut, "/v1/snapshot?max_removed=0", snapshot)
	has(t, "the answer of a snapshot", answer, "1 record of the kind Policy")
	has(t, "the store after a snapshot", d.mustRequest(t, http.StatusOK, http.MethodGet, "/v1/store", ""), `"unknown_kinds":{"Policy":1}`)
}

// fromTheFuture puts what only the future lbd knows.
func (d *daemon) fromTheFuture(t *testing.T) {
	t.Helper()
	d.mustRequest(t, http.StatusOK, http.MethodPut, "/v1/targets/future", "")
	d.mustPush(t, "field", 1)
}

func oneFleet(t *testing.T, older, now, future string) {
	m := startMember(t)
	var all []*daemon
	for _, binary := range []string{future, now, older} {
		if binary != "" {
			d := newDaemon(t, binary, "etcd://"+m.client+"/lbd")
			d.start(t)
			d.untilReady(t, http.StatusOK)
			all = append(all, d)
		}
	}
	first, today := all[0], all[1]
	first.mustPush(t, "orders", 1)
	for _, d := range all {
		until(t, "all pick", func() bool { return strings.HasPrefix(d.pick("orders"), "127.0.") })
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	counts := make([][2]int, len(all))
	for i, d := range all {
		load.Go(func() { // each pushes and picks
			for ctx.Err() == nil {
				if status, text := d.push("orders", counts[i][0]%200+1); status != http.StatusOK {
					t.Errorf("a push at daemon %d: %d %s", i, status, text)
				}
				counts[i][0]++
				for range 20 {
					if got := d.pick("orders"); !strings.HasPrefix(got, "127.0.") {
						t.Errorf("a pick at daemon %d: %s", i, got)
					}
					counts[i][1]++
				}
			}
		})
	}
	defer func() {
		stop()
		load.Wait()
		t.Logf("pushes and picks of the daemons (future, now, older): %v", counts)
	}()
	first.fromTheFuture(t)
	first.mustPush(t, "newer", 1)
	today.untilReady(t, http.StatusOK, "1 records in etcd cannot be read", "newer")
	today.leavesTheFuture(t)
	has(t, "a push of a newer record", today.mustRequest(t, http.StatusConflict, http.MethodPut, "/v1/clusters/newer/endpoints", body(2)), "update lbd")
	for end := time.Now().Add(duration(t) / 4); time.Now().Before(end); {
		first.mustPush(t, "newer", int(time.Now().UnixNano()%200)+1)
		first.mustPush(t, "field", int(time.Now().UnixNano()%200)+1)
	}
	if got := first.pick("newer"); !strings.HasPrefix(got, "127.0.") {
		t.Errorf("the future one picks %s", got)
	}
	for _, key := range []string{"Policy/xds:%2F%2F%2Ffuture", "ClusterLoadAssignment/newer"} {
		if res, err := m.bare(t).Get(t.Context(), "lbd/state/resource/"+key, clientv3.WithCountOnly()); err != nil || res.Count != 1 {
			t.Errorf("%s: %v, %v", key, res, err)
		}
	}
	for _, d := range all[1:] { // it sees the unknown field, and picks
		until(t, "all have the field", func() bool { return strings.HasPrefix(d.pick("field"), "127.0.") })
	}
}

func oneDirectory(t *testing.T, older, now, future string) {
	dir := t.TempDir()
	use := func(binary string, f func(d *daemon)) {
		if binary == "" {
			return
		}
		d := newDaemon(t, binary, "")
		listen := strings.TrimPrefix(d.url, "http://")
		d.command = func() *exec.Cmd {
			c := exec.CommandContext(t.Context(), binary, "--listen", listen, "--data", dir, "--connect", "none")
			c.Stderr = &d.log
			return c
		}
		d.start(t)
		d.untilReady(t, http.StatusOK)
		f(d)
		d.signal(syscall.SIGTERM)
		if code := d.exit(t); code != 0 {
			t.Errorf("exit code %d: %s", code, d.log.String())
		}
	}
	clusters := []string{"older", "now", "future"}
	picks := func(d *daemon, n int) {
		for _, cluster := range clusters[:n] {
			if got := d.pick(cluster); got != "127.0.0.1:80" {
				t.Errorf("cluster %s: %s", cluster, got)
			}
		}
	}
	first := older
	if first == "" {
		first = now
	}
	use(first, func(d *daemon) { d.mustPush(t, "older", 1) })
	use(now, func(d *daemon) { d.mustPush(t, "now", 1); picks(d, 2) })
	use(future, func(d *daemon) { d.mustPush(t, "future", 1); d.fromTheFuture(t); picks(d, 3) })
	use(now, func(d *daemon) { picks(d, 3); d.leavesTheFuture(t) })
	use(older, func(d *daemon) { picks(d, 3) })
	use(future, func(d *daemon) { picks(d, 3) })
	use(now, func(d *daemon) {
		picks(d, 3)
		has(t, "the store", fmt.Sprint(d.mustRequest(t, http.StatusOK, http.MethodGet, "/v1/store", "")), `"unknown_kinds":{"Policy":1}`)
	})
}
