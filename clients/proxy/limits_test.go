package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// TestCallersThatDoNothing: a caller that does not read, does not send, or goes away ends its request at the endpoint.
func TestCallersThatDoNothing(t *testing.T) {
	ended, arrived := make(chan string, 10), make(chan struct{}, 10)
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, err := io.Copy(io.Discard, r.Body)
			ended <- fmt.Sprint("body ", err != nil)
			return
		}
		arrived <- struct{}{}
		control := http.NewResponseController(w)
		for r.URL.Path == "/endless" && r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				break
			}
		}
		_ = control.Flush()
		<-r.Context().Done()
		ended <- r.URL.Path
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--stall-timeout=200ms", "--header-timeout=200ms", "--idle-timeout=200ms")
	dial := func(request string) net.Conn {
		conn, err := net.Dial("tcp", p.mapped)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, request)
		return conn
	}
	dial("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := <-ended; got != "/endless" {
		t.Error(got)
	}
	conn := dial("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 408 ") {
		t.Error(line, err)
	}
	if got := <-ended; got != "body true" {
		t.Error(got)
	}
	<-arrived
	conn = dial("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	_ = conn.Close()
	if got := <-ended; got != "/waits" {
		t.Error(got)
	}
	for _, part := range []string{"", "GET / HTTP/1.1\r\nHos", "POST / HTTP/1.1\r\nHost: a\r\nLbd-Timeout: x\r\nContent-Length: 9\r\n\r\n"} {
		if rest, err := io.ReadAll(dial(part)); len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 4") {
			t.Errorf("%q, %v", rest, err)
		}
	}
	until(t, "all is counted", func() bool {
		return p.metric(t, `requests_total{cluster="`+cluster+`",outcome="cancelled"}`) == "2" &&
			p.metric(t, `requests_total{cluster="`+cluster+`",outcome="body_timeout"}`) == "1" && p.metric(t, "connections") == "0"
	})
}

// TestTimeouts: an endpoint has its time whenever it is its turn, and a caller may give it less.
func TestTimeouts(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
		case "/long": // longer than the timeout
			_ = http.NewResponseController(w).Flush()
			time.Sleep(600 * time.Millisecond)
			fmt.Fprint(w, "complete")
		}
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--timeout=400ms")
	if answer := curl(t, "http://"+p.mapped+"/long"); answer != "complete" {
		t.Errorf("a long response: %s", answer)
	}
	for _, args := range [][]string{{}, {"-H", "Lbd-Timeout: 10ms"}, {"--http2-prior-knowledge"}} {
		if answer := curl(t, append(args, "http://"+p.mapped+"/hangs")...); !strings.Contains(answer, `"code":"timeout"`) {
			t.Errorf("%v: %s", args, answer)
		}
	}
	read, write := io.Pipe()
	go func() {
		for range 2 { // each pause is longer than the timeout
			_, _ = io.WriteString(write, "x")
			time.Sleep(600 * time.Millisecond)
		}
		_ = write.Close()
	}()
	response, err := http.Post("http://"+p.mapped+"/", "", read)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("a slow body: %v, %v", response, err)
	}
	if err == nil {
		response.Body.Close()
	}
	if n := p.metric(t, `requests_total{cluster="`+cluster+`",outcome="timeout"}`); n != "3" {
		t.Errorf("%s timeouts", n)
	}
}

// TestPeersThatAreGone: an endpoint and a caller that do not answer pings lose their connections.
func TestPeersThatAreGone(t *testing.T) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // a frame without any
	cluster := push(t, endpoint(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, settings)
		_, _ = io.Copy(io.Discard, conn)
	}))
	p := start(t, "--map=127.0.0.1:0=h2c://"+cluster, "--timeout=15s", "--ping-interval=100ms")
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, `"code":"connection"`) {
		t.Error(answer)
	}
	conn, err := net.Dial("tcp", p.mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings)
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the caller keeps its connection")
	}
}

// TestLimits: what is too much is refused, and what ends makes place.
func TestLimits(t *testing.T) {
	release := make(chan struct{})
	cluster := push(t, upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			<-release
		}
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--max-connections=2", "--max-requests=1")
	first := make(chan error, 1)
	go func() {
		_, err := raw(t, p.mapped, "GET /waits HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		first <- err
	}()
	until(t, "the request is in flight", func() bool { return p.metrics.inFlight.Load() == 1 })
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, `"code":"overloaded"`) {
		t.Error(answer)
	}
	until(t, "curl has gone", func() bool { return p.metrics.connections.Load() == 1 })
	conn, err := net.Dial("tcp", p.mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	until(t, "it is counted", func() bool { return p.metrics.connections.Load() == 2 })
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, "curl: (") {
		t.Error(answer)
	}
	if n := p.metric(t, "connections_refused_total"); n != "1" {
		t.Errorf("%s refused", n)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	until(t, "there is place", func() bool { return !strings.Contains(curl(t, "http://"+p.mapped+"/"), "curl: (") })
}

// TestShutdown: requests end, new ones are refused, and what lasts too long is ended.
func TestShutdown(t *testing.T) {
	release := make(chan struct{})
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			<-release
			fmt.Fprint(w, "complete")
			return
		}
		<-r.Context().Done()
	}))
	for name, drain := range map[string]string{"/short": "1m", "/endless": "100ms"} {
		p := start(t, "--map=127.0.0.1:0="+cluster, "--drain-timeout="+drain)
		answer := make(chan string, 1)
		go func() {
			got, err := raw(t, p.mapped, "GET "+name+" HTTP/1.1\r\nHost: a\r\n\r\n")
			answer <- fmt.Sprint(got, err)
		}()
		until(t, "the request is in flight", func() bool { return p.metrics.inFlight.Load() == 1 })
		p.end()
		until(t, "the proxy is closing", func() bool {
			response, body := get(t, http.DefaultClient, "http://"+p.admin+"/healthz")
			return response.StatusCode == http.StatusServiceUnavailable && body == "shutting down\n" || p.closing.Load()
		})
		until(t, "new requests are refused", func() bool {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.mapped)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
		want := "shutting_down"
		if name == "/short" {
			want = "complete"
			close(release)
		}
		if got := <-answer; !strings.Contains(got, want) || !strings.Contains(got, "Connection: close") {
			t.Errorf("%s: %s", name, got)
		}
		if err := <-p.ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// TestScrapersThatDoNothing: one that does not read holds no lock, and loses its connection.
func TestScrapersThatDoNothing(t *testing.T) {
	p := start(t, "--stall-timeout=200ms", "--header-timeout=200ms", "--idle-timeout=200ms")
	for i := range maxClusters {
		p.metrics.of(strings.Repeat("x", 1000)+fmt.Sprint(i), true).ended("2xx", time.Second, 1)
	}
	var conns []net.Conn
	for _, request := range []string{"", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"} {
		conn, err := net.Dial("tcp", p.admin)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		_, _ = io.WriteString(conn, request)
		conns = append(conns, conn)
	}
	for _, conn := range conns[:3] {
		if _, err := io.ReadAll(conn); err != nil {
			t.Error(err)
		}
	}
	until(t, "the connection of who does not read is closed", func() bool {
		_, err := io.WriteString(conns[3], "GET")
		return err != nil
	})
	p.administration().ServeHTTP(lockChecker{httptest.NewRecorder(), &p.metrics, t}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
}

// lockChecker is a response that is written without locks.
type lockChecker struct {
	*httptest.ResponseRecorder

	metrics *metrics
	t       testing.TB
}

// Write gets a part of the metrics.
func (l lockChecker) Write(p []byte) (int, error) {
	if !l.metrics.mu.TryLock() {
		l.t.Fatal("the metrics are locked")
	}
	defer l.metrics.mu.Unlock()
	for name, c := range l.metrics.clusters {
		if !c.mu.TryLock() {
			l.t.Fatalf("the metrics of %.20s are locked", name)
		}
		c.mu.Unlock()
	}
	return len(p), nil
}

// TestInventedNames: names that lbd does not know to be clusters have no metrics of their own.
func TestInventedNames(t *testing.T) {
	daemon, stop, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	endpoint, err := stand.Endpoint(refused(t))
	if err != nil {
		t.Fatal(err)
	}
	drops := map[string]any{"drop_overloads": []any{map[string]any{"category": "all", "drop_percentage": map[string]any{"numerator": 100}}}}
	for name, body := range map[string]map[string]any{"drops": {"policy": drops}, "idle": {}} {
		body["endpoints"] = []any{map[string]any{"lb_endpoints": []any{endpoint}}}
		if err := daemon.Call(http.MethodPut, stand.ClusterPath(name)+"/endpoints", body, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "--lbd=unix:"+daemon.Socket, "--map=127.0.0.1:0=idle", "--max-age=100ms", "--stale-for=100ms")
	other := start(t, "--lbd=unix:"+daemon.Socket, "--stale-for=0s", "--fallback="+upstream(t, show))
	request := func(p *running, host, want string) {
		t.Helper()
		if answer := curl(t, "-x", p.forward, "http://"+host+"/"); !strings.Contains(answer, want) {
			t.Errorf("%.20s: %s", host, answer)
		}
	}
	request(p, "drops.lbd", `"code":"dropped"`)
	request(p, "invented.lbd", `"code":"unknown_cluster"`)
	request(p, strings.Repeat("x.", 126)+"lbd", `"code":"unknown_cluster"`)
	request(p, strings.Repeat("x.", 126)+"x.lbd", `"code":"forbidden_host"`)
	request(other, "unknown.lbd", `"code":"unknown_cluster"`)
	daemon.Stop(syscall.SIGKILL)
	request(p, "invented-2.lbd", `"code":"unavailable"`)
	request(other, "invented-3.lbd", "GET / host=invented-3.lbd ")
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, `"code":"unavailable"`) {
		t.Error(answer)
	}
	_, text := get(t, http.DefaultClient, "http://"+p.admin+"/metrics")
	_, others := get(t, http.DefaultClient, "http://"+other.admin+"/metrics")
	if strings.Contains(text, "invented") || strings.Contains(text, "x.x") || strings.Contains(others, "invented") {
		t.Error(text, others)
	}
	for series, want := range map[string]string{`cluster="drops",outcome="dropped"`: "1", `cluster="idle",outcome="unavailable"`: "1", `cluster="",outcome="unknown_cluster"`: "2"} {
		if got := p.metric(t, "requests_total{"+series+"}"); got != want {
			t.Errorf("%s: %q", series, got)
		}
	}
}

// TestMetricsAreBounded: clusters beyond the limit have no metrics of their own.
func TestMetricsAreBounded(t *testing.T) {
	var m metrics
	for i := range 2 * maxClusters {
		m.of(fmt.Sprint(i), true).ended("2xx", time.Millisecond, 1)
	}
	if len(m.clusters) > maxClusters+1 {
		t.Errorf("%d clusters", len(m.clusters))
	}
	var text bytes.Buffer
	m.write(&text, func(string) float64 { return 1 })
	for _, want := range []string{
		`lbd_proxy_requests_total{cluster="",outcome="2xx"} 1000`, `lbd_proxy_request_seconds_bucket{cluster="",le="0.001"} 1000`,
		`lbd_proxy_request_seconds_sum{cluster=""} 1`, `lbd_proxy_request_seconds_count{cluster="7"} 1`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}
