package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// loop sends requests on one connection until the daemon closes it, then on a new one, without retries.
type loop struct {
	address func() string
	fresh   bool // each request uses a new connection
	conn    net.Conn
	answers *bufio.Reader
}

// ask picks once.
func (l *loop) ask() error {
	if l.conn == nil {
		c, err := net.DialTimeout("tcp", l.address(), patience)
		if err != nil {
			return err
		}
		l.conn, l.answers = c, bufio.NewReader(c)
	}
	_ = l.conn.SetDeadline(time.Now().Add(patience))
	header := ""
	if l.fresh {
		header = "Connection: close\r\n"
	}
	if _, err := fmt.Fprintf(l.conn, "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n%s\r\n", header); err != nil {
		return err
	}
	a, err := http.ReadResponse(l.answers, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil {
		return err
	}
	if a.Close {
		_ = l.conn.Close()
		l.conn = nil
	}
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	return nil
}

// callers run eight loops until restart has returned and enough requests were made.
func callers(t *testing.T, address func() string, restart func()) {
	t.Helper()
	const enough = 10_000
	var asked, failed atomic.Int64
	var restarted atomic.Bool
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l := &loop{address: address, fresh: i%2 == 0}
			for !restarted.Load() || asked.Load() < enough {
				asked.Add(1)
				if err := l.ask(); err != nil {
					failed.Add(1)
					t.Errorf("request failed: %v", err)
					return
				}
			}
			if l.conn != nil {
				_ = l.conn.Close()
			}
		})
	}
	eventually(t, "a thousand requests", func() bool { return asked.Load() > 1000 })
	restart()
	restarted.Store(true)
	wg.Wait()
	t.Logf("%d of %d requests failed", failed.Load(), asked.Load())
}

// someResources is a resource directory with the cluster orders.
func someResources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "orders.yaml"), []byte(envoyFile("orders", "192.0.2.1:80")))
	return dir
}

// TestRestartBehindSockets: with sockets of systemd, no request fails during restarts.
func TestRestartBehindSockets(t *testing.T) {
	t.Parallel()
	socket := listenTCP(t)
	dir := someResources(t)
	run := func() *process {
		return start(t, activate(t, command("serve", "--data=", "--connect=none", "--resources="+dir, "--log-format=json"), socket))
	}
	p := run()
	callers(t, socket.Addr().String, func() {
		for range 3 {
			p.stop(t)
			p = run()
		}
	})
}

// TestRestartBehindReadiness restarts two daemons one after the other. No request of a client that
// checks /readyz every 500 ms fails.
func TestRestartBehindReadiness(t *testing.T) {
	if testing.Short() {
		t.Skip("long: two daemons drain for 2 s each, under load")
	}
	t.Parallel()
	const drainDelay = 2 * time.Second
	dir := someResources(t)
	run := func(address string) *process {
		return start(t, command("serve", "--listen="+address, "--data=", "--connect=none", "--resources="+dir, "--log-format=json", "--drain-delay="+drainDelay.String()))
	}
	a, b := run(lastingAddress(t)), run(lastingAddress(t))
	addresses := []string{strings.TrimPrefix(a.url, "http://"), strings.TrimPrefix(b.url, "http://")}
	var readyAt [2]atomic.Int64 // when the last check began, in nanoseconds, if it found the daemon ready
	check := func() {
		for i, address := range addresses {
			begin := time.Now().UnixNano()
			r, err := try(t.Context(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "GET", "http://"+address+"/readyz", "")
			if err != nil || r.status != http.StatusOK {
				begin = 0
			}
			readyAt[i].Store(begin)
		}
	}
	// A check that is older than half of the delay, on a busy machine, does not count.
	ready := func(i int) bool { return time.Since(time.Unix(0, readyAt[i].Load())) < drainDelay/2 }
	check()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
				check()
			}
		}
	})
	var turn atomic.Int64
	address := func() string {
		for {
			if i := turn.Add(1) % 2; ready(int(i)) {
				return addresses[i]
			}
			runtime.Gosched()
		}
	}
	callers(t, address, func() {
		for i, p := range []*process{a, b} {
			begin := time.Now()
			p.stop(t)
			if took := time.Since(begin); took < drainDelay {
				t.Errorf("it ended after %v", took)
			}
			run(addresses[i])
			eventually(t, "readiness", func() bool { return ready(i) })
		}
	})
	close(stop)
	wg.Wait()
}

// TestDraining: during the delay, lbd is not ready but serves requests, each as the last of its
// connection.
func TestDraining(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "--data=", "--connect=none", "--resources="+someResources(t), "--drain-delay=10m")
	ready := func() answer { return do(t, "GET", p.url+"/readyz?verbose", "") }
	if a := ready(); a.status != http.StatusOK || a.header.Get("Connection") != "" {
		t.Fatalf("%+v", a)
	}
	noError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "readiness fails", func() bool { return ready().status == http.StatusServiceUnavailable })
	if a := ready(); !strings.Contains(a.body, "[-]serving: shutting down") {
		t.Errorf("%+v", a)
	}
	expect(t, http.StatusOK, "GET", p.url+"/pick?cluster=orders", "")
	expect(t, http.StatusCreated, "PUT", p.url+"/v1/clusters/more/endpoints", envoyFile("more", "192.0.2.2:80"))
	expect(t, http.StatusOK, "GET", p.url+"/v1/clusters/orders?index=0&wait=1s", "")
	raw := &loop{address: func() string { return strings.TrimPrefix(p.url, "http://") }}
	if err := raw.ask(); err != nil || raw.conn != nil {
		t.Errorf("%v; the connection goes on: %v", err, raw.conn != nil)
	}
	if p.end(t, syscall.SIGTERM) == nil { // the second signal
		t.Error("ended without an error")
	}
}

// snapshotOf returns 1,000 clusters, each with one endpoint whose port is number.
func snapshotOf(number int) string {
	var b strings.Builder
	b.WriteString(`{"resources":[`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"c%d",`+
			`"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%d}}}}]}]}`, i, number)
	}
	b.WriteString("]}")
	return b.String()
}

var portPattern = regexp.MustCompile(`"port_value": (\d+)`)

// TestSnapshotKilledMidway kills the daemon during pushes of snapshots: after a restart it has exactly
// one snapshot, which is not older than the last acknowledged one.
func TestSnapshotKilledMidway(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("LBD_TEST_LONG") != "" {
		rounds = 50
	}
	data := filepath.Join(t.TempDir(), "data")
	acknowledged, sent := 0, 0
	for range rounds {
		p := startProcess(t, "--data="+data, "--connect=none", "--log-level=info")
		if got := stored(t, p); got < acknowledged || got > sent {
			t.Fatalf("snapshot %d is stored; %d was acknowledged, %d sent", got, acknowledged, sent)
		}
		killed := make(chan struct{})
		delay := time.Duration(rand.IntN(150)) * time.Millisecond
		time.AfterFunc(delay, func() {
			_ = p.cmd.Process.Signal(syscall.SIGKILL)
			close(killed)
		})
		for {
			sent++
			a, err := try(t.Context(), http.DefaultClient, "PUT", p.url+"/v1/snapshot", snapshotOf(sent))
			if err != nil {
				break // killed
			}
			if a.status != http.StatusOK {
				t.Fatalf("push: %+v", a)
			}
			acknowledged = sent
		}
		<-killed
		<-p.exited
	}
	t.Logf("%d snapshots sent, %d acknowledged at last, %d kills", sent, acknowledged, rounds)
}

// stored returns the number of the stored snapshot, or 0.
func stored(t *testing.T, p *process) int {
	t.Helper()
	all := portPattern.FindAllStringSubmatch(do(t, "GET", p.url+"/v1/snapshot", "").body, -1)
	if len(all) == 0 {
		return 0
	}
	if len(all) != 1000 {
		t.Fatalf("%d of 1000 clusters are stored", len(all))
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Fatalf("parts of snapshots %s and %s are stored", m[1], all[0][1])
		}
	}
	n, err := strconv.Atoi(all[0][1])
	noError(t, err)
	return n
}
