package fleet

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestStartWithoutEtcd: a daemon without a copy is not ready, and says what it is waiting for. One
// with a copy serves it. Both refuse pushes until etcd responds.
func TestStartWithoutEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	old := startDaemon(t, url)
	old.untilReady(t, http.StatusOK)
	old.mustPush(t, "orders", 1)
	old.signal(syscall.SIGTERM) // the copy is written behind the pushes, and at the end
	if code := old.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	m.stop()

	old.start(t)
	fresh := startDaemon(t, url)
	old.untilReady(t, http.StatusOK, "did not respond", m.client)
	fresh.untilReady(t, http.StatusServiceUnavailable, "there is no copy of what is stored", "did not respond", m.client, "check etcd")
	if got := old.pick("orders"); got != "127.0.0.1:80" {
		t.Errorf("picked %s", got)
	}
	for _, d := range []*daemon{old, fresh} {
		if status, text := d.push("orders", 2); status != http.StatusServiceUnavailable || !strings.Contains(text, "store_unavailable") || !strings.Contains(text, "no effect") {
			t.Errorf("a push: %d %s", status, text)
		}
	}
	m.start(t)
	for _, d := range []*daemon{old, fresh} {
		d.untilReady(t, http.StatusOK)
		until(t, "a push succeeds", func() bool { status, _ := d.push("orders", 3); return status == http.StatusOK })
		if got := d.pick("orders"); got != "127.0.0.3:80" {
			t.Errorf("picked %s", got)
		}
	}
}

// TestCredentials: a wrong password, or a role without the prefix, is reported with what to check.
func TestCredentials(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	c := m.bare(t)
	for _, err := range []error{
		second(c.UserAdd(t.Context(), "root", "secret")), second(c.RoleAdd(t.Context(), "root")), second(c.UserGrantRole(t.Context(), "root", "root")),
		second(c.UserAdd(t.Context(), "lbd", "right")), second(c.RoleAdd(t.Context(), "one")), second(c.UserGrantRole(t.Context(), "lbd", "one")),
		second(c.RoleGrantPermission(t.Context(), "one", "lbd/", clientv3.GetPrefixRangeEnd("lbd/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.RoleGrantPermission(t.Context(), "one", "deep/er/", clientv3.GetPrefixRangeEnd("deep/er/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.AuthEnable(t.Context())),
	} {
		noError(t, err)
	}
	dir := t.TempDir()
	right, wrong := write(t, dir+"/right", []byte("right\n")), write(t, dir+"/wrong", []byte("wrong"))
	url := "etcd://" + m.client + "/lbd"
	mustRun(t, "created fleet", "store", "init", "etcd://"+m.client+"/deep/er", "--store-user=lbd", "--store-password="+right)
	for name, c := range map[string]struct {
		url   string
		flags []string
		says  []string // empty: it is ready
	}{
		"right":          {url, []string{"--store-user=lbd", "--store-password=" + right}, nil},
		"wrong":          {url, []string{"--store-user=lbd", "--store-password=" + wrong}, []string{"refuses the credentials", "--store-password"}},
		"none":           {url, nil, []string{"refuses the credentials", "--store-user"}},
		"another prefix": {"etcd://" + m.client + "/other", []string{"--store-user=lbd", "--store-password=" + right}, []string{"refuses the credentials", "role"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, c.url, c.flags...)
			if len(c.says) > 0 {
				d.untilReady(t, http.StatusServiceUnavailable, c.says...)
				return
			}
			d.untilReady(t, http.StatusOK)
			d.mustPush(t, "orders", 1)
		})
	}
}

func second[T any](_ T, err error) error { return err }

// TestUnreadableRecords: records that are damaged, or of a newer lbd, are named, skipped and
// counted. What they were before stays in use. A damaged one is replaced by a push, one of a newer lbd is not.
func TestUnreadableRecords(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	bare := m.bare(t)
	d := startDaemon(t, "etcd://"+m.client+"/lbd")
	d.untilReady(t, http.StatusOK)
	d.mustPush(t, "orders", 1)
	d.mustPush(t, "users", 1)
	all, err := bare.Get(t.Context(), "lbd/state/resource/ClusterLoadAssignment/", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	damaged := string(all.Kvs[0].Value[:len(all.Kvs[0].Value)-1])
	for i, value := range []string{damaged, "\x02" + damaged[1:]} {
		if _, err := bare.Put(t.Context(), string(all.Kvs[i].Key), value); err != nil {
			t.Fatal(err)
		}
	}
	check := func(d *daemon) {
		t.Helper()
		d.untilReady(t, http.StatusOK, "2 records in etcd cannot be read", "orders", "checksum mismatch", "users", "newer lbd", "push their resources again")
		if got := d.pick("orders") + d.pick("users"); got != "127.0.0.1:80127.0.0.1:80" {
			t.Errorf("picked %s", got)
		}
		if _, text := d.request(http.MethodGet, "/metrics", ""); !strings.Contains(text, "\nlbd_store_unreadable_records 2\n") {
			t.Error("the metric does not have both")
		}
	}
	check(d)
	d.signal(syscall.SIGTERM) // which waits until the local copy has both: only it is readable
	d.exit(t)
	d.start(t)
	check(d)
	d.mustPush(t, "orders", 2)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if status, text := d.request(method, "/v1/clusters/users/endpoints", body(2)); status != http.StatusConflict || !strings.Contains(text, "update lbd") {
			t.Errorf("%s of what a newer lbd wrote: %d %s", method, status, text)
		}
	}
	if _, err := bare.Put(t.Context(), string(all.Kvs[1].Key), string(all.Kvs[1].Value)); err != nil { // by a newer lbd
		t.Fatal(err)
	}
	until(t, "it is solved", func() bool {
		_, text := d.request(http.MethodGet, "/readyz?verbose", "")
		return !strings.Contains(text, "cannot be read")
	})
}

// TestOutOfSpace: when etcd has no space, pushes get 507 and what to do, and picks continue. They
// succeed again after a compaction, defragmentation and disarming.
func TestOutOfSpace(t *testing.T) {
	t.Parallel()
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t), quota: 4 << 20}
	m.start(t)
	t.Cleanup(m.stop)
	m.create(t, "lbd")
	d := startDaemon(t, "etcd://"+m.client+"/lbd")
	d.untilReady(t, http.StatusOK)
	d.mustPush(t, "orders", 1)
	status, text, last := 0, "", 0
	for i := 0; i < 200 && status != http.StatusInsufficientStorage; i++ {
		if status, text = d.request(http.MethodPut, "/v1/clusters/large/endpoints", largeBody(i)); status < 300 {
			last = i
		}
	}
	for _, want := range []string{"storage_failed", "--quota-backend-bytes", "compact", "defragment", "alarm disarm"} {
		if !strings.Contains(text, want) {
			t.Errorf("%d %s: no %s", status, text, want)
		}
	}
	d.untilReady(t, http.StatusOK, "alarm disarm")
	if got := d.pick("orders"); got != "127.0.0.1:80" {
		t.Errorf("picked %s", got)
	}
	if status, text := d.request(http.MethodGet, "/v1/clusters/large/endpoints", ""); status != http.StatusOK || !strings.Contains(text, version(last)) {
		t.Errorf("the last push that succeeded is not there: %d", status)
	}
	m.compact(t)
	c := m.bare(t)
	if _, err := c.Defragment(t.Context(), m.client); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	d.mustPush(t, "orders", 2)
	if got := d.pick("orders"); got != "127.0.0.2:80" {
		t.Errorf("picked %s", got)
	}
}

func version(i int) string { return "127.0.9." + strings.Repeat("1", i%3+1) }

// largeBody is an assignment of about 150 KB. Another number is another content.
func largeBody(i int) string {
	var b strings.Builder
	b.WriteString(`{"endpoints":[{"lb_endpoints":[`)
	for n := range 1000 {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"endpoint":{"address":{"socket_address":{"address":"`)
		if n == 0 {
			b.WriteString(version(i))
		} else {
			b.WriteString("10.0.0.1")
		}
		b.WriteString(`","port_value":` + port(n+i%7) + `}}},"metadata":{"filter_metadata":{"x":{"y":"` + strings.Repeat("z", 60) + `"}}}}`)
	}
	b.WriteString(`]}]}`)
	return b.String()
}

func port(n int) string {
	return string([]byte{'1', '0' + byte(n/1000%10), '0' + byte(n/100%10), '0' + byte(n/10%10), '0' + byte(n%10)})
}

// TestTwoFleetsOfOnePrefix: a daemon with the copy of one fleet exits, and says what to do, if the
// prefix has another one.
func TestTwoFleetsOfOnePrefix(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	d := startDaemon(t, "etcd://"+m.client+"/lbd")
	d.untilReady(t, http.StatusOK)
	d.mustPush(t, "orders", 1)
	d.kill()
	m.stop()
	noError(t, os.RemoveAll(m.dir))
	m.start(t)
	m.create(t, "lbd")
	other := startDaemon(t, "etcd://"+m.client+"/lbd")
	other.untilReady(t, http.StatusOK)
	other.mustPush(t, "users", 1)
	d.start(t)
	if code := d.exit(t); code != 1 || !strings.Contains(d.log.String(), "move fleet in --data away") {
		t.Errorf("exit code %d: %s", code, d.log.String())
	}
	if got := other.pick("users"); got != "127.0.0.1:80" {
		t.Errorf("picked %s", got)
	}
	noError(t, os.RemoveAll(d.data+"/fleet"))
	d.start(t)
	d.untilReady(t, http.StatusOK)
	if got := d.pick("users"); got != "127.0.0.1:80" {
		t.Errorf("picked %s", got)
	}
}

// TestPrefixOfAnotherProgram: lbd exits, and leaves its keys alone.
func TestPrefixOfAnotherProgram(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	if _, err := m.bare(t).Put(t.Context(), "other/x", "1"); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, "etcd://"+m.client+"/other")
	if code := d.exit(t); code != 1 || !strings.Contains(d.log.String(), "choose another prefix") {
		t.Errorf("exit code %d: %s", code, d.log.String())
	}
	if all, err := m.bare(t).Get(t.Context(), "other", clientv3.WithPrefix()); err != nil || len(all.Kvs) != 1 {
		t.Errorf("etcd has %v, %v", all, err)
	}
}

// TestInit: a fleet is created by lbd store init only. Before, a daemon is not ready, says what to do and writes
// nothing. No fleet is below another one, whichever is first.
func TestInit(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client
	d := startDaemon(t, url+"/new/one")
	d.untilReady(t, http.StatusServiceUnavailable, "[-]store", "run lbd store init")
	for path, want := range map[string]int{"/pick?cluster=orders": http.StatusServiceUnavailable, "/v1/snapshot": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if status, text := d.request(http.MethodGet, path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := d.push("orders", 1); status != http.StatusServiceUnavailable || !strings.Contains(text, "lbd store init") {
		t.Errorf("a push: %d %s", status, text)
	}
	if all, err := m.bare(t).Get(t.Context(), "new/", clientv3.WithPrefix()); err != nil || len(all.Kvs) != 0 {
		t.Errorf("etcd has %v, %v", all, err)
	}
	mustRun(t, "created fleet", "store", "init", url+"/new/one")
	d.untilReady(t, http.StatusOK)
	d.mustPush(t, "orders", 1)
	mustRun(t, "nothing was changed", "store", "init", url+"/new/one")
	for at, says := range map[string]string{"new/one/two": "is below new/one, which is that of another fleet", "new": "a fleet below it"} {
		if code, out := run(t, "store", "init", url+"/"+at); code != 1 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d: %s", at, code, out)
		}
	}
	mustRun(t, "created fleet", "store", "init", url+"/new/oneself")
}

// TestOldEtcd: an etcd that is too old is named, with its version. No fleet is created there.
func TestOldEtcd(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	m.stop()
	m.version = "3.4.27"
	m.start(t)
	d := startDaemon(t, "etcd://"+m.client+"/lbd")
	d.untilReady(t, http.StatusOK, "lbd needs etcd 3.5 or later", m.client+" has version 3.4.27")
	if code, out := run(t, "store", "init", "etcd://"+m.client+"/other"); code != 1 || !strings.Contains(out, "3.5 or later: "+m.client+" has version 3.4.27") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
