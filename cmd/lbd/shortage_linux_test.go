package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldCaller is an open connection to the daemon.
type heldCaller struct {
	net.Conn

	answers *bufio.Reader
}

func holdCaller(t *testing.T, url string) *heldCaller {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	noError(t, c.SetDeadline(time.Now().Add(patience)))
	return &heldCaller{c, bufio.NewReader(c)}
}

// get sends a request, and returns the status of the response.
func (c *heldCaller) get(path string) (string, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Status, err
}

// TestIdleCallersTakeNoDescriptors: with a limit of 1024 descriptors and 1,300 idle connections of
// callers, the first pick from each of 80 new clusters succeeds.
func TestIdleCallersTakeNoDescriptors(t *testing.T) {
	if testing.Short() {
		t.Skip("long: opens 1,300 connections")
	}
	t.Parallel()
	p := start(t, inShell(command("serve", "--listen=127.0.0.1:0", "--data=", "--log-format=json", "--pick-wait=5s"), "ulimit -n 1024;"))
	address, _ := upstream(t)
	var callers []*heldCaller
	for i := range 1300 {
		c := holdCaller(t, p.url)
		if status, err := c.get("/livez"); err != nil || status != "200 OK" {
			t.Fatalf("caller %d: %s, %v", i, status, err)
		}
		callers = append(callers, c)
	}
	failed := 0
	for i := range 80 {
		name := fmt.Sprint("orders-", i)
		expect(t, http.StatusCreated, "PUT", p.url+"/v1/clusters/"+name+"/endpoints", envoyFile(name, address))
		if a := do(t, "GET", p.url+"/pick?cluster="+name, ""); a.address() != address {
			failed++
			t.Logf("%s: %+v", name, a)
		}
	}
	if failed > 0 {
		t.Errorf("%d of 80 picks failed", failed)
	}
	metrics := do(t, "GET", p.url+"/metrics", "").body
	for _, want := range []string{"\nlbd_http_max_connections 512\n", "\nlbd_http_connections_refused_total 0\n", "\nlbd_overload{resource=\"descriptors\"} 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	// The connections that were idle longest are closed.
	if status, err := callers[0].get("/livez"); err == nil {
		t.Errorf("the first caller has an answer: %s", status)
	}
	for i, c := range callers[1300-400:] {
		if status, err := c.get("/livez"); err != nil {
			t.Fatalf("caller %d of the last 400: %s, %v", i, status, err)
		}
	}
}

// TestRunningOutOfDescriptors: without free descriptors, lbd continues to pick and reports the
// shortage; afterwards it follows the endpoints again.
func TestRunningOutOfDescriptors(t *testing.T) {
	t.Parallel()
	// A daemon without descriptors accepts no connection: this client uses only one, also while it reads a response.
	// A connection of another program, such as another test to a reused port, would make lbd close it.
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	p := start(t, command("serve", "--listen=unix:"+socket, "--data=", "--log-format=json"))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(method, path, body string) answer {
		t.Helper()
		a, err := try(t.Context(), client, method, "http://localhost"+path, body)
		noError(t, err)
		return a
	}
	first, stop := upstream(t)
	second, _ := upstream(t)
	body := `{"endpoints":[` + onPriority(0, first) + `,` + onPriority(1, second) + `]}`
	if a := ask("PUT", "/v1/clusters/orders/endpoints", body); a.status != http.StatusCreated {
		t.Fatalf("push: %+v", a)
	}
	pick := func() string { return ask("GET", "/pick?cluster=orders&wait=5s", "").address() }
	if got := pick(); got != first {
		t.Fatalf("picked %s", got)
	}
	limit := func(n uint64) (before uint64) {
		var old unix.Rlimit
		noError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &old))
		before, old.Cur = old.Cur, n
		noError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &old, nil))
		return before
	}
	before := limit(1)
	eventually(t, "a warning", func() bool {
		return strings.Contains(ask("GET", "/readyz?verbose", "").body, "[!]shortage: lbd has no file descriptor left (EMFILE)")
	})
	if a := ask("GET", "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("not ready: %+v", a)
	}
	if got := pick(); got != first {
		t.Errorf("picked %s in the shortage", got)
	}
	if m := ask("GET", "/metrics", "").body; !strings.Contains(m, "\nlbd_overload{resource=\"descriptors\"} 1\n") {
		t.Error("no metric of the shortage")
	}
	limit(before)
	eventually(t, "the end of the shortage", func() bool {
		return strings.Contains(ask("GET", "/v1/events?type=shortage_ended", "").body, "descriptors")
	})
	if events := ask("GET", "/v1/events?type=priority_switched", "").body; strings.Count(events, `"id"`) != 1 { // the first to be used
		t.Errorf("events %s", events)
	}
	stop()
	eventually(t, "fail-over", func() bool { return pick() == second })
}

// onPriority is a locality with one endpoint.
func onPriority(priority int, address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf(`{"priority":%d,"locality":{"zone":"z%d"},"load_balancing_weight":1,"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%s}}}}]}`,
		priority, priority, host, port)
}
