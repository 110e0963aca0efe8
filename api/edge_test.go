package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestWhatNoRouteTakes(t *testing.T) {
	d := start(t, nil)
	for target, allow := range map[string]string{
		"DELETE /pick":                      "GET, HEAD, POST",
		"OPTIONS /v1/clusters":              "GET, HEAD",
		"POST /v1/clusters/a%2Fb/endpoints": "GET, HEAD, PUT, DELETE",
		"GET /v1/leases/x/done":             "POST",
		"OPTIONS /v1/leases/done":           "POST",
		"OPTIONS /v1/leases/x":              "GET, HEAD",
		"PATCH /openapi.yaml":               "GET, HEAD",
		"BREW /pick":                        "GET, HEAD, POST",
	} {
		method, path, _ := strings.Cut(target, " ")
		p, w := d.refused("method_not_allowed", method, path, "")
		if w.Code != 405 || w.Header().Get("Allow") != allow || p.GRPCCode != "UNIMPLEMENTED" {
			t.Errorf("%s: %d, Allow %q, %s", target, w.Code, w.Header().Get("Allow"), p.GRPCCode)
		}
	}
	for _, target := range []string{"GET /nothing", "GET /v1/clusters/", "GET /v1/clusters/a/b", "BREW /nothing", "GET /v1", "POST //pick"} {
		method, path, _ := strings.Cut(target, " ")
		if p, w := d.refused("not_found", method, path, ""); w.Code != 404 || p.GRPCCode != "NOT_FOUND" {
			t.Errorf("%s: %d %s", target, w.Code, p.GRPCCode)
		}
	}
}

func TestMetricsNameRoutesNotPaths(t *testing.T) {
	d := startWith(t, "a:1")
	d.must(200, "GET", "/pick?cluster=orders", "")
	d.must(200, "HEAD", "/pick?cluster=orders", "")
	d.do("GET", "/secret/path", "")
	d.do("BREW", "/secret/path", "")
	d.do("PATCH", "/pick", "")
	text := d.must(200, "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`lbd_http_requests_total{code="201",method="PUT",route="/v1/clusters/{name}/endpoints"} 1`,
		`lbd_http_requests_total{code="200",method="GET",route="/pick"} 1`,
		`lbd_http_requests_total{code="200",method="HEAD",route="/pick"} 1`,
		`lbd_http_requests_total{code="404",method="GET",route="none"} 1`,
		`lbd_http_requests_total{code="404",method="other",route="none"} 1`,
		`lbd_http_requests_total{code="405",method="PATCH",route="none"} 1`,
		`lbd_http_request_duration_seconds_count{code="200",method="GET",route="/pick"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "BREW") {
		t.Error("what a caller sent became a label")
	}
}

func TestEndpointMetrics(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	w := d.must(200, "GET", "/metrics/endpoints", "")
	text := w.Body.String()
	for _, want := range []string{
		`lbd_endpoint_state{address="10.0.0.7:8080",cluster="orders",locality="us-east1/b/",priority="0",state="ready",target=""} 1`,
		`lbd_endpoint_share{address="10.0.0.7:8080",cluster="orders",locality="us-east1/b/",priority="0",target=""} 1`,
		`lbd_endpoint_weight{address="10.0.0.7:8080",cluster="orders",locality="us-east1/b/",priority="0",target=""} 1`,
		`lbd_endpoint_series_truncated 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") || strings.Contains(text, "lbd_picks_total") {
		t.Errorf("%s:\n%s", w.Header().Get("Content-Type"), text)
	}
	if text := d.must(200, "GET", "/metrics", "").Body.String(); strings.Contains(text, "10.0.0.7") {
		t.Error("an address is a label of the metrics of everybody")
	}
}

func TestHealth(t *testing.T) {
	d := start(t, nil)
	for target, want := range map[string]string{
		"/livez":          "ok\n",
		"/readyz":         "ok\n",
		"/livez?verbose":  "[+]ping\nlivez check passed\n",
		"/readyz?verbose": "[+]store: what was pushed is loaded\n[+]serving: taking picks\nreadyz check passed\n",
	} {
		d.expect(target, want)
	}
	d.refused(fault.InvalidArgument, "GET", "/livez?verbose=x", "")
	d.refused(fault.InvalidArgument, "GET", "/readyz?x", "")
}

func TestContractIsServed(t *testing.T) {
	d := start(t, nil)
	if w := d.must(200, "GET", "/openapi.yaml", ""); !strings.Contains(w.Body.String(), "openapi: 3.0.3\n") || w.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("openapi.yaml: %s", w.Header().Get("Content-Type"))
	}
}

// patience is how long a test over a socket waits for an answer that does not
// come. What comes takes microseconds.
const patience = 10 * time.Second

// talk sends text to a server of the API over a connection of its own, and
// returns the answer's reader.
func talk(t *testing.T, d *daemon, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	server := httptest.NewServer(d.handler)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	servicetest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	servicetest.Must(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func status(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	w, err := http.ReadResponse(r, nil)
	servicetest.Must(t, err)
	defer func() { _ = w.Body.Close() }()
	return w.StatusCode
}

func TestBodyThatIsCutShortIsRefused(t *testing.T) {
	d := start(t, nil)
	conn, r := talk(t, d, "PUT "+orders+" HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{\"endpoints\":[]}")
	half, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T cannot be closed by half", conn)
	}
	servicetest.Must(t, half.CloseWrite())
	if got := status(t, r); got != 400 {
		t.Errorf("%d, want 400", got)
	}
	d.refused(fault.UnknownCluster, "GET", orders, "")
}

func TestExpectContinueIsAnswered(t *testing.T) {
	d := start(t, nil)
	body := assignment("", "a:1")
	head := func(length int) string {
		return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", orders, length)
	}
	conn, r := talk(t, d, head(len(body)))
	if got := status(t, r); got != 100 {
		t.Fatalf("%d before the body, want 100", got)
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	if got := status(t, r); got != 201 {
		t.Errorf("%d, want 201", got)
	}
	_, r = talk(t, d, head(api.MaxResourceBytes+1))
	if got := status(t, r); got != 413 {
		t.Errorf("%d for a body that is announced too large, want 413 at once", got)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	d := startWith(t, "a:1")
	server := httptest.NewServer(d.handler)
	defer server.Close()
	get, err := http.Get(server.URL + "/pick?cluster=orders")
	servicetest.Must(t, err)
	body, err := io.ReadAll(get.Body)
	servicetest.Must(t, err)
	_ = get.Body.Close()
	head, err := http.Head(server.URL + "/pick?cluster=orders")
	servicetest.Must(t, err)
	_ = head.Body.Close()
	if head.StatusCode != http.StatusOK || head.ContentLength != int64(len(body)) {
		t.Errorf("HEAD: %d, Content-Length %d; GET's body has %d", head.StatusCode, head.ContentLength, len(body))
	}
	http.DefaultClient.CloseIdleConnections()
}

// pipes is a listener whose connections are in memory: in synctest's bubbles
// sockets do not work.
type pipes struct {
	accepts chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepts:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serve runs a server with a timeout on the API. The returned send sends a
// request on a connection of its own, and returns the answer's reader.
func serve(t *testing.T, d *daemon, timeout time.Duration) (send func(text string) *bufio.Reader) {
	t.Helper()
	listener := &pipes{accepts: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: d.handler, ReadTimeout: timeout, WriteTimeout: timeout}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func(text string) *bufio.Reader {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close() })
		listener.accepts <- theirs
		if _, err := io.WriteString(ours, text); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(ours)
	}
}

// A server's timeouts do not end answers that wait for longer, for what may
// happen.
func TestWaitsOutlastTheServersTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectNone: nil, resource.ConnectDefault: never{}}
			o.Sources.ConnectMode = resource.ConnectTCP
		})
		d.must(http.StatusCreated, "PUT", orders, assignment("", "a:1"))
		now := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/orders", "").Body.Bytes())
		send := serve(t, d, 15*time.Second)
		const end = " HTTP/1.1\r\nHost: x\r\n\r\n"
		waiting := []*bufio.Reader{
			send(fmt.Sprintf("GET /v1/clusters/orders?index=%d&wait=5m%s", now.Generation, end)),
			send("GET /pick?cluster=orders&wait=60s" + end),
			send("POST /pick?cluster=orders&wait=60s" + end),
		}
		time.Sleep(50 * time.Second)
		d.must(http.StatusCreated, "PUT", "/v1/clusters/orders/config", `{"type":"EDS","metadata":{"filter_metadata":{"lbd":{"connect":"none"}}}}`)
		for i, want := range []int{200, 200, 201} {
			if got := status(t, waiting[i]); got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
	})
}

// A client that does not read its response after a wait is disconnected.
func TestResponseAfterWaitIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, nil)
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
		send := serve(t, d, 15*time.Second)
		const wait = 20 * time.Second
		for _, path := range []string{"/v1/clusters/orders?index=0", "/pick?cluster=orders"} {
			unread := send(fmt.Sprintf("GET %s&wait=%v HTTP/1.1\r\nHost: x\r\n\r\n", path, wait))
			time.Sleep(wait + api.ResponseTime + time.Millisecond)
			synctest.Wait()
			if rest, err := io.ReadAll(unread); len(rest) != 0 || err != nil {
				t.Errorf("%s: the client got %q, %v", path, rest, err)
			}
		}
	})
}

func TestLongPollAnswersAtTheNextGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		poll := func(generation int64, wait string) (got int64, took time.Duration) {
			began := time.Now()
			w := d.must(200, "GET", fmt.Sprintf("/v1/clusters/orders?index=%d%s", generation, wait), "")
			return decode[observe.ClusterState](t, w.Body.Bytes()).Generation, time.Since(began)
		}
		now := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/orders", "").Body.Bytes()).Generation
		if got, took := poll(now-1, "&wait=5m"); got != now || took != 0 {
			t.Errorf("another generation was known: %d after %v, want %d at once", got, took, now)
		}
		for wait, want := range map[string]time.Duration{"": api.DefaultPoll, "&wait=7s": 7 * time.Second, "&wait=5m": api.MaxPoll, "&wait=0": 0} {
			if got, took := poll(now, wait); got != now || took != want {
				t.Errorf("nothing changed within %v: %d after %v, want %d", want, got, took, now)
			}
		}
		time.AfterFunc(time.Minute, func() {
			if text := d.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `lbd_watchers{kind="longpoll"} 1`+"\n") {
				t.Error("the poll is not counted among those who wait")
			}
			d.do("PUT", orders, assignment("", "10.0.0.8:8080"))
		})
		if got, took := poll(now, "&wait=5m"); got == now || took != time.Minute {
			t.Errorf("%d was known and changed after a minute: %d after %v", now, got, took)
		}
	})
}
