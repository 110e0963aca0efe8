package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// show answers with what the endpoint sees of a request.
func show(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s host=%s body=%s err=%v trailer=%v\n", r.Method, r.RequestURI, r.Host, body, err, r.Trailer)
	for _, name := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Via", "Connection", "Keep-Alive", "Te",
		"Proxy-Authorization", "Proxy-Connection", "X-Secret", "Lbd-Timeout", "Accept-Encoding", "User-Agent", "Upgrade", "Http2-Settings",
	} {
		if values, ok := r.Header[name]; ok {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, " | "))
		}
	}
}

func TestForwardProxyWithCurl(t *testing.T) {
	cluster := push(t, upstream(t, show))
	p := start(t, "--host=shop.test="+cluster)
	via := "Via: 1.1 " + p.via
	through := func(args ...string) string { return curl(t, append([]string{"-x", "http://" + p.forward}, args...)...) }
	for name, want := range map[string]struct{ got, want string }{
		"a request": {
			through("-A", "me", "http://"+cluster+".lbd/a//b?x=1;y=%zz"),
			"GET /a//b?x=1;y=%zz host=" + cluster + ".lbd body= err=<nil> trailer=map[]\nX-Forwarded-For: 127.0.0.1\nX-Forwarded-Host: " +
				cluster + ".lbd\nX-Forwarded-Proto: http\n" + via + "\nUser-Agent: me\n",
		},
		"another host":       {through("http://shop.test/"), "GET / host=shop.test "},
		"upper case, a port": {through("http://" + strings.ToUpper(cluster) + ".LBD:99/"), "GET / host=" + strings.ToUpper(cluster) + ".LBD:99 "},
		"a body":             {through("-d", "x", "http://"+cluster+".lbd/"), "POST / host=" + cluster + ".lbd body=x "},
		"a chunked body":     {through("-H", "Transfer-Encoding: chunked", "-d", "x", "http://"+cluster+".lbd/"), " body=x err=<nil> "},
		"HTTP/2":             {curl(t, "--http2-prior-knowledge", "-H", "Host: "+cluster+".lbd", "http://"+p.forward+"/"), "Via: 2.0 "},
		"by Host":            {curl(t, "-H", "Host: "+cluster+".lbd", "http://"+p.forward+"/"), "GET / host=" + cluster + ".lbd "},
		"the Internet":       {through("http://example.com/"), `"code":"forbidden_host"`},
		"this machine":       {through("http://127.0.0.1/"), `"code":"forbidden_host"`},
		"its Host":           {through("-H", "Host: "+cluster+".lbd", "http://example.com/"), `"code":"forbidden_host"`},
		"user information":   {through("http://" + cluster + ".lbd@example.com/"), `"code":"forbidden_host"`},
		"a tunnel":           {through("-p", "https://example.com/"), "403"},
		"FTP":                {through("ftp://" + cluster + ".lbd/"), `"code":"invalid_argument"`},
		"no cluster":         {through("http://nope.lbd/"), `"code":"unknown_cluster"`},
		"a gone endpoint":    {through("http://" + pushAs(t, "gone", refused(t)) + ".lbd/"), `"detail":"no valid answer of an endpoint (1 tried)",`},
	} {
		if !strings.Contains(want.got, want.want) {
			t.Errorf("%s: got %s\nnot %s", name, want.got, want.want)
		}
	}
}

func pushAs(t testing.TB, name string, addresses ...string) string {
	t.Helper()
	if err := lbd.Push(name, addresses...); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestHeaders: what concerns one connection, or may be a lie, does not reach the endpoint.
func TestHeaders(t *testing.T) {
	cluster := push(t, upstream(t, show))
	request := "GET / HTTP/1.1\r\nHost: me:1\r\nConnection: close, X-Secret, X-Forwarded-For\r\nX-Secret: 1\r\nX-Forwarded-For: 6.6.6.6\r\n" +
		"X-Forwarded-Host: evil\r\nForwarded: for=6.6.6.6\r\nProxy-Authorization: Basic x\r\nProxy-Connection: x\r\nKeep-Alive: 1\r\nTE: gzip, trailers\r\n" +
		"Lbd-Timeout: 30s\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: foo, H2C\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
	for forwarded, want := range map[string]string{
		"replace": "X-Forwarded-For: 127.0.0.1\nX-Forwarded-Host: me:1\nX-Forwarded-Proto: http\nVia: 1.1 P\nTe: trailers\n",
		"append":  "X-Forwarded-For: 6.6.6.6, 127.0.0.1\nX-Forwarded-Host: evil\nX-Forwarded-Proto: http\nForwarded: for=6.6.6.6\nVia: 1.1 P\nTe: trailers\n",
		"keep":    "X-Forwarded-For: 6.6.6.6\nX-Forwarded-Host: evil\nForwarded: for=6.6.6.6\nVia: 1.1 P\nTe: trailers\n",
	} {
		p := start(t, "--map=127.0.0.1:0="+cluster, "--forwarded="+forwarded)
		answer, err := raw(t, p.mapped, request)
		want = strings.Replace(want, " P\n", " "+p.via+"\n", 1)
		if _, got, _ := strings.Cut(answer, "map[]\n"); err != nil || got != want || !strings.Contains(answer, "host=me:1 ") {
			t.Errorf("%s: %v, got %q\nnot %q", forwarded, err, answer, want)
		}
	}
}

// TestPaths: a path and a query pass as they are. Bytes that must not be in them are escaped, and nothing is decoded.
func TestPaths(t *testing.T) {
	cluster := push(t, upstream(t, show))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	for path, want := range map[string]string{
		"/a%2Fb|c": "/a%2Fb%7Cc", "/%2e%2e%2fadmin|": "/%2e%2e%2fadmin%7C", "/%2e%2e%2fadmin": "", "/a/../b": "", "//evil/x": "",
		"/\xc3\xbc%2F\"": "/%C3%BC%2F%22", "/a[1]%2F^": "/a[1]%2F%5E", "/-._~!$&'()*+,;=:@[]|%41": "/-._~!$&'()*+,;=:@[]%7C%41", "/a#b": "/a%23b",
		"/%7C?a|b\xc3;%zz": "", "/?": "", "/??": "", "/Az09|": "/Az09%7C",
	} {
		if want == "" {
			want = path
		}
		answer, err := raw(t, p.mapped, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if !strings.Contains(answer, "\nGET "+want+" host=a ") || err != nil {
			t.Errorf("%s: %s, %v", path, answer, err)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.mapped, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.RawQuery = "x HTTP/1.1" // HTTP/2 has no spaces that mean something
	response, err := h2c(t).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); !strings.HasPrefix(string(body), "GET /?x%20HTTP/1.1 host=") {
		t.Errorf("%s, %v", body, err)
	}
}

// TestOptionsOfServer: OPTIONS * is for the endpoint, in both forms.
func TestOptionsOfServer(t *testing.T) {
	lines := make(chan string, 1)
	cluster := push(t, endpoint(t, func(conn *net.TCPConn) {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		lines <- line
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	for target, want := range map[string]string{"*": "*", "http://" + cluster + ".lbd": "*", "http://" + cluster + ".lbd?": "/?", "http://" + cluster + ".lbd?x": "/?x", "/": "/"} {
		answer, err := raw(t, p.mapped, "OPTIONS "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 204 ") || err != nil {
			t.Fatalf("%s: %s, %v", target, answer, err)
		}
		if line := <-lines; line != "OPTIONS "+want+" HTTP/1.1\r\n" {
			t.Errorf("%s: %s", target, line)
		}
	}
}

// TestStrictHTTP: what two servers may read in two ways is refused, and reaches no endpoint.
func TestStrictHTTP(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.RequestURI, "smuggled") {
			t.Errorf("the endpoint got %s %s", r.Method, r.RequestURI)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "length %d", r.ContentLength)
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--max-header-bytes=2000")
	const next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, c := range map[string]struct{ request, status string }{
		"two lengths":         {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n" + next, "400"},
		"length with sign":    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", "400"},
		"space before colon":  {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 30\r\n\r\n" + next, "400"},
		"unknown coding":      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" + next, "501"},
		"two codings":         {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "501"},
		"two hosts":           {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
		"no host":             {"GET / HTTP/1.1\r\n\r\n", "400"},
		"a space in the host": {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"},
		"a bad name":          {"GET / HTTP/1.1\r\nHost: a\r\nX\x00Y: 1\r\n\r\n", "400"},
		"a bad value":         {"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", "400"},
		"a bad version":       {"GET / HTTP/1.9x\r\nHost: a\r\n\r\n", "400"},
		"a bad chunk":         {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		"a chunk too long":    {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", "400"},
		"long headers":        {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n", "431"},
		"a tunnel":            {"CONNECT a.lbd:1 HTTP/1.1\r\nHost: a.lbd:1\r\n\r\n", "405"},
		"a loop":              {"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x, 1.1 " + p.via + "\r\nConnection: close\r\n\r\n", "508"},
		"a bad timeout":       {"GET / HTTP/1.1\r\nHost: a\r\nLbd-Timeout: -1s\r\nConnection: close\r\n\r\n", "400"},
	} {
		conn, err := net.Dial("tcp", p.mapped)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Error(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(line, "HTTP/1.1 "+c.status) {
			t.Errorf("%s: %q, %v", name, line, err)
		}
		_ = conn.Close()
	}
	// With both, the length is ignored, and does not reach the endpoint: what follows is the next request for all.
	answer, err := raw(t, p.mapped, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if strings.Count(answer, "HTTP/1.1 200 OK") != 2 || strings.Contains(answer, "length 3") || err != nil {
		t.Errorf("both: %q, %v", answer, err)
	}
}

// TestStreaming: each part is there at once, in both directions, with 1xx, Expect, trailers, in HTTP/1.1 and HTTP/2.
func TestStreaming(t *testing.T) {
	type server struct{ scheme string }
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		parts := bufio.NewReader(r.Body)
		for {
			line, err := parts.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprintf(w, "%s: %s", r.Proto, line)
			_ = control.Flush()
		}
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sent"))
		w.Header().Set(http.TrailerPrefix+"Late", "yes")
	}
	for _, s := range []server{{"http"}, {"h2c"}} {
		t.Run(s.scheme, func(t *testing.T) {
			cluster := push(t, upstream(t, handler))
			p := start(t, "--map=127.0.0.1:0="+s.scheme+"://"+cluster)
			transport := &http.Transport{Protocols: new(http.Protocols), ExpectContinueTimeout: time.Minute}
			transport.Protocols.SetHTTP1(s.scheme == "http")
			transport.Protocols.SetUnencryptedHTTP2(s.scheme == "h2c")
			defer transport.CloseIdleConnections()
			read, write := io.Pipe()
			hints := make(chan string, 1)
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code == http.StatusEarlyHints {
					hints <- h.Get("Link")
				}
				return nil
			}})
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.mapped, read)
			if err != nil {
				t.Fatal(err)
			}
			request.Trailer = http.Header{"X-Sent": nil}
			if s.scheme == "http" {
				request.Header.Set("Expect", "100-continue")
			}
			go func() { _, _ = io.WriteString(write, "one\n") }()
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			lines := bufio.NewReader(response.Body)
			version := map[string]string{"http": "HTTP/1.1", "h2c": "HTTP/2.0"}[s.scheme]
			for _, part := range []string{"one\n", "two\n", "three\n"} {
				if part != "one\n" {
					_, _ = io.WriteString(write, part)
				}
				if line, err := lines.ReadString('\n'); line != version+": "+part || err != nil {
					t.Fatalf("%q, %v", line, err)
				}
			}
			request.Trailer.Set("X-Sent", "3")
			_ = write.Close()
			if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
				t.Errorf("rest %q, %v", rest, err)
			}
			if got := <-hints; got != "</style.css>" || response.Trailer.Get("X-Sum") != "3" || response.Trailer.Get("Late") != "yes" {
				t.Errorf("hint %q, trailer %v", got, response.Trailer)
			}
		})
	}
}

// TestNotSent: a request of which nothing was sent goes elsewhere, with its body; one that was answered is repeated if
// it may be.
func TestNotSent(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		show(w, r)
	}
	good := upstream(t, show)
	cluster := push(t, refused(t), refused(t), good)
	p := start(t)
	for i := range 20 {
		answer := curl(t, "-x", p.forward, "-H", "Expect:", "-d", "abc", "http://"+cluster+".lbd/")
		if !strings.Contains(answer, "body=abc ") {
			t.Fatalf("request %d: %s", i, answer)
		}
	}
	cluster = pushAs(t, cluster+"-503", upstream(t, answer), upstream(t, answer), good)
	for _, args := range [][]string{
		{"-X", "GET"},
		{"-X", "OPTIONS"},
		{"-X", "PUT"},
		{"-X", "DELETE"},
		{"-H", "Idempotency-Key: 1"},
		{"-H", "X-Idempotency-Key: 1"},
		{"-X", "PUT", "-H", "Expect: 100-continue"},
	} {
		for i := range 4 {
			answer := curl(t, append(args, "-x", p.forward, "-d", "abc", "http://"+cluster+".lbd/fails")...)
			if !strings.Contains(answer, "body=abc ") {
				t.Fatalf("%v, request %d: %s", args, i, answer)
			}
		}
	}
	if attempts := p.metric(t, `attempts_total{cluster="`+cluster+`"}`); attempts == "28" || attempts == "" {
		t.Errorf("%s attempts", attempts)
	}
	bytesOf := func(cluster string) string {
		return p.metric(t, `bytes_total{cluster="`+cluster+`",direction="request"}`)
	}
	until(t, "28 bodies of 3 bytes are counted", func() bool { return bytesOf(cluster) == "84" })
	if n := bytesOf(""); n != "0" {
		t.Errorf("%s bytes of no cluster", n)
	}
	if tokens := p.metric(t, `retry_tokens{cluster="`+cluster+`"}`); tokens == "100" || tokens == "" {
		t.Errorf("%s tokens are left", tokens)
	}
}

// TestBrokenResponse: a response that ends early is never a complete one, whatever the caller speaks.
func TestBrokenResponse(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100")
		}
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	for _, path := range []string{"/length", "/chunks"} {
		for _, version := range []string{"--http1.0", "--http1.1", "--http2-prior-knowledge"} {
			if answer := curl(t, version, "http://"+p.mapped+path); !strings.Contains(answer, "curl: (") {
				t.Errorf("%s %s: %q", version, path, answer)
			}
		}
	}
	if n := p.metric(t, `requests_total{cluster="`+cluster+`",outcome="broken"}`); n != "6" {
		t.Errorf("%s broken responses", n)
	}
}

// TestWebSocket: it passes, and is a tunnel, but no request any more.
func TestWebSocket(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/request" {
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		conn.SetReadLimit(1 << 20)
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if err := conn.Write(r.Context(), kind, append([]byte("echo "), message...)); err != nil {
				return
			}
		}
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--max-tunnels=1", "--max-requests=1", "--drain-timeout=0s")
	conn, _, err := websocket.Dial(t.Context(), "ws://"+p.mapped+"/", nil) //nolint:bodyclose // it is the connection
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	for _, size := range []int{1, smallBuffer, 100_000} {
		message := bytes.Repeat([]byte("x"), size)
		if err := conn.Write(t.Context(), websocket.MessageText, message); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(t.Context()); err != nil || len(got) != size+5 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if response, body := get(t, http.DefaultClient, "http://"+p.mapped+"/request"); response.StatusCode != http.StatusOK {
		t.Errorf("a request beside it: %s", body)
	}
	if n := p.metric(t, `requests_total{cluster="`+cluster+`",outcome="tunnel"}`); n != "1" {
		t.Errorf("%s tunnels", n)
	}
	until(t, "no request is in flight", func() bool { return p.metric(t, "requests_in_flight") == "0" })
	_, response, err := websocket.Dial(t.Context(), "ws://"+p.mapped+"/", nil) //nolint:bodyclose // Dial reads it
	if err == nil || response == nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second one: %v", err)
	}
	p.end()
	if _, _, err := conn.Read(t.Context()); err == nil {
		t.Error("it outlives the proxy")
	}
	if err := <-p.ended; err != nil || p.metrics.tunnels.Load() != 0 || p.metrics.inFlight.Load() != 0 || p.metrics.connections.Load() != 0 {
		t.Errorf("%v, left: %d tunnels, %d requests, %d connections", err, p.metrics.tunnels.Load(), p.metrics.inFlight.Load(), p.metrics.connections.Load())
	}
}

// TestFailOpen: requests go on while lbd is away, until the last picks are too old.
func TestFailOpen(t *testing.T) {
	daemon, stop, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := daemon.Push("orders", upstream(t, show)); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--lbd=unix:"+daemon.Socket, "--stale-for=2s", "--max-age=500ms")
	browser := p.browser(t)
	if response, _ := get(t, browser, "http://orders.lbd/"); response.StatusCode != http.StatusOK {
		t.Fatal(response.StatusCode)
	}
	if away := p.metric(t, "daemon_unreachable"); away != "0" {
		t.Errorf("daemon_unreachable %s", away)
	}
	daemon.Stop(syscall.SIGKILL)
	if response, _ := get(t, browser, "http://orders.lbd/"); response.StatusCode != http.StatusOK {
		t.Error(response.StatusCode)
	}
	until(t, "the operator sees it", func() bool { return p.metric(t, "daemon_unreachable") == "1" && p.log.has("lbd does not answer") })
	var body string
	until(t, "the picks are too old", func() bool {
		var response reply
		response, body = get(t, browser, "http://orders.lbd/")
		return response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "1"
	})
	var got problem
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Code != "unavailable" || got.Cluster != "orders" || got.Detail != "lbd is unreachable" || !p.log.has(`lbd is unreachable: GET /v1/pick at unix:`) {
		t.Errorf("%v: %s", err, body)
	}
	if response, _ := get(t, http.DefaultClient, "http://"+p.admin+"/healthz"); response.StatusCode != http.StatusOK {
		t.Error("the proxy is not healthy:", response.StatusCode)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "lbd is back", func() bool {
		response, _ := get(t, browser, "http://orders.lbd/")
		return response.StatusCode == http.StatusOK && p.metric(t, "daemon_unreachable") == "0" && p.log.has("lbd answers again")
	})
}

// TestHTTPSEndpoint: the certificate of the endpoint must be that of the cluster's host.
func TestHTTPSEndpoint(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(show))
	defer server.Close()
	cluster := push(t, server.Listener.Addr().String())
	p := start(t, "--map=127.0.0.1:0=https://"+cluster, "--show-addresses")
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, "certificate") || !strings.Contains(answer, `"code":"connection"`) {
		t.Error(answer)
	}
}

func TestUnixSockets(t *testing.T) {
	cluster := push(t, upstream(t, show))
	path := socketPath(t)
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:errcheck,forcetypeassert // it is one
	stale.Close()
	p := start(t, "--map=unix:"+path+"="+cluster, "--socket-mode=0600")
	if answer := curl(t, "--unix-socket", path, "http://x/"); !strings.Contains(answer, "host=x ") || strings.Contains(answer, "X-Forwarded-For") {
		t.Error(answer)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := listen("unix:"+path, 0o600); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("twice: %v", err)
	}
	p.end()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// TestOptions: what is wrong is said, with the flag.
func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--map=orders": "is not ADDRESS=CLUSTER", "--map=:1=": "is not ADDRESS=CLUSTER", "--map=:1=a --map=:1=b": "has two clusters",
		"--host=a": "is not HOST=CLUSTER", "--host=a:1=b": "is not HOST=CLUSTER", "--forwarded=x": "is not replace, append or keep",
		"--tls-cert=x": "set both", "--tls-cert=x --tls-key=y": "--tls-cert, --tls-key: ", "--log-level=x": "--log-level", "--log-format=x": "--log-format",
		"--mode=x": "mode", "--lbd=x": "address of lbd", "--cluster=\xff": "--cluster: ", "--max-tunnels=0": "must be positive",
		"--stall-timeout=0": "must be positive", "--timeout=-1s": "must not be negative", "x": "unexpected argument", "--nope": "not defined",
		"--listen=unix:/nowhere/x --admin=none": "listen: ", "--socket-mode=999": "socket-mode",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out, io.Discard); err != nil || out.String() != "lbd-proxy unknown\n" {
		t.Errorf("--version: %v, %s", err, &out)
	}
	t.Setenv("LBD_PROXY_MAX_TUNNELS", "7")
	t.Setenv("LBD_PROXY_LISTEN", ":1,unix:/x")
	t.Setenv("LBD_PROXY_RETRIES", "4")
	var o options
	if err := o.parse([]string{"--retries=0"}, io.Discard); err != nil || o.maxTunnels != 7 || len(o.listen) != 2 || o.client.Retries != -1 {
		t.Errorf("%v, %+v", err, o)
	}
	var log bytes.Buffer
	t.Setenv("LBD_PROXY_MAP", "") // not set
	t.Setenv("LBD_PROXY_MAPS", "secret")
	for name, value := range map[string]string{"SERVICE_HOST": "1.2.3.4", "SERVICE_PORT_HTTP": "1", "PORT": "tcp://1.2.3.4:1", "PORT_1_TCP_ADDR": "1.2.3.4", "B_SERVICE_PORT": "1", "B_PORT": "tcp://1.2.3.4:1"} {
		t.Setenv("LBD_PROXY_"+name, value) // of Kubernetes
	}
	if err := run(t.Context(), []string{"--listen=unix:/nowhere/x", "--admin=none"}, io.Discard, &log); err == nil || !strings.Contains(err.Error(), "listen: ") {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "level="); got != 1 || !strings.Contains(log.String(), `msg="unknown environment variable, ignored" variable=LBD_PROXY_MAPS`) {
		t.Error(log.String())
	}
	t.Setenv("LBD_PROXY_MAX_TUNNELS", "x")
	if err := o.parse(nil, io.Discard); err == nil || !strings.Contains(err.Error(), "LBD_PROXY_MAX_TUNNELS") {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"--help"}, &out, io.Discard); err == nil || !strings.Contains(out.String(), "--tunnel-timeout duration\n") {
		t.Error(err)
	}
}

// TestNames: a cluster whose name cannot be a host is reached by --map.
func TestNames(t *testing.T) {
	address := upstream(t, show)
	for _, name := range []string{"Orders", "a/b?c", "x y", "a=b,c", "ünï:1"} {
		p := start(t, "--map=127.0.0.1:0="+pushAs(t, name, address))
		if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, "host="+p.mapped+" ") {
			t.Errorf("%s: %s", name, answer)
		}
	}
	p := start(t, "--map=127.0.0.1:0=a/b?c", "--cluster=*")
	if answer := curl(t, "http://"+p.mapped+"/"); !strings.Contains(answer, "host="+p.mapped+" ") {
		t.Error(answer)
	}
	p = start(t, "--cluster=shop-*", "--cluster=orders")
	for name, want := range map[string]string{"shop-1": "unknown_cluster", "shop-": "unknown_cluster", "shop": "forbidden_cluster", "my-shop-1": "forbidden_cluster", "orders-2": "forbidden_cluster"} {
		if answer := curl(t, "-x", p.forward, "http://"+name+".lbd/"); !strings.Contains(answer, want) {
			t.Errorf("%s: %s", name, answer)
		}
	}
}
