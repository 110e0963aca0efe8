package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// endpoint accepts connections and calls serve for each.
func endpoint(t testing.TB, serve func(conn *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				serve(conn.(*net.TCPConn)) //nolint:errcheck,forcetypeassert // it is one
			}()
		}
	}()
	return l.Addr().String()
}

// echo sends back what comes, and ends after the end of that.
func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_, _ = io.WriteString(conn, "end")
}

// connect opens a tunnel. early is sent with the request.
func connect(t testing.TB, p *running, cluster, early string) (*net.TCPConn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", p.forward)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "CONNECT %s.lbd:443 HTTP/1.1\r\nHost: %[1]s.lbd:443\r\n\r\n%s", cluster, early)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // it is the connection
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn), reader, response.Status //nolint:errcheck,forcetypeassert // it is one
}

// TestTLSThroughTunnel: TLS is between the caller and the endpoint, which is another one if it cannot be connected to.
func TestTLSThroughTunnel(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(show))
	t.Cleanup(server.Close)
	cluster := push(t, refused(t), server.Listener.Addr().String())
	p := start(t)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for range 10 {
		transport := &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: p.forward}),
			TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12},
		}
		response, body := get(t, &http.Client{Transport: transport}, "https://"+cluster+".lbd/")
		transport.CloseIdleConnections()
		if response.TLS == nil || !strings.Contains(body, "host="+cluster+".lbd ") || strings.Contains(body, "Via") {
			t.Fatal(body)
		}
	}
	if answer := curl(t, "-kx", "http://"+p.forward, "https://"+cluster+".lbd/"); !strings.Contains(answer, "host="+cluster) {
		t.Error(answer)
	}
	_, reader, status := connect(t, p, pushAs(t, cluster+"-gone", refused(t)), "")
	if body, err := reader.Peek(1); status != "502 Bad Gateway" || err != nil || string(body) != "{" {
		t.Errorf("%s, %q", status, body)
	}
	until(t, "the tunnels have ended", func() bool { return p.metric(t, "tunnels") == "0" })
	if n := p.metric(t, `requests_total{cluster="`+cluster+`",outcome="tunnel"}`); n != "11" {
		t.Errorf("%s tunnels", n)
	}
}

// TestTunnel: bytes that come with the request are not lost, each direction ends on its own, and a reset is one.
func TestTunnel(t *testing.T) {
	p := start(t, "--max-tunnels=1")
	cluster := push(t, endpoint(t, echo))
	conn, reader, status := connect(t, p, cluster, "early ")
	if status != "200 Connection established" {
		t.Fatal(status)
	}
	if _, _, second := connect(t, p, cluster, ""); second != "503 Service Unavailable" {
		t.Errorf("a second one: %s", second)
	}
	sent := strings.Repeat("x", 3*largeBuffer) + "y"
	go func() {
		_, _ = io.WriteString(conn, sent)
		_ = conn.CloseWrite()
	}()
	if got, err := io.ReadAll(reader); err != nil || string(got) != "early "+sent+"end" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	until(t, "the tunnel has ended", func() bool { return p.metric(t, "tunnels") == "0" })
	if n := p.metric(t, `bytes_total{cluster="`+cluster+`",direction="request"}`); n != fmt.Sprint(6+len(sent)) {
		t.Errorf("%s bytes", n)
	}

	resets := pushAs(t, cluster+"-resets", endpoint(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "half")
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetLinger(0)
	}))
	conn, reader, _ = connect(t, p, resets, "")
	half := make([]byte, 4)
	if _, err := io.ReadFull(reader, half); err != nil || string(half) != "half" {
		t.Errorf("%q, %v", half, err)
	}
	_, _ = io.WriteString(conn, "x")
	if _, err := reader.ReadByte(); err == nil || err == io.EOF {
		t.Errorf("a reset is the end of what was sent: %v", err)
	}
}

// TestTunnelHTTP2: a tunnel may be a stream of HTTP/2.
func TestTunnelHTTP2(t *testing.T) {
	cluster := push(t, endpoint(t, echo))
	p := start(t)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	read, write := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, "http://"+p.forward, read)
	if err != nil {
		t.Fatal(err)
	}
	request.Host, request.URL.Path = cluster+".lbd:443", ""
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.WriteString(write, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if p.metric(t, "requests_in_flight") != "0" || p.metric(t, `requests_total{cluster="`+cluster+`",outcome="tunnel"}`) != "1" {
		t.Error("it is a request in flight")
	}
	_ = write.Close()
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "end" {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestIdleTunnel: traffic in one direction keeps a tunnel, and its end closes both connections.
func TestIdleTunnel(t *testing.T) {
	p := start(t, "--tunnel-timeout=300ms")
	_, reader, _ := connect(t, p, push(t, endpoint(t, func(conn *net.TCPConn) {
		for range 10 {
			time.Sleep(60 * time.Millisecond)
			_, _ = io.WriteString(conn, ".")
		}
		_, _ = conn.Read(make([]byte, 1))
	})), "")
	got, err := io.ReadAll(reader)
	if len(got) != 10 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTunnelOutlivesStall: --stall-timeout is not for tunnels, in which one side may be silent for long.
func TestTunnelOutlivesStall(t *testing.T) {
	const pause, n = 30 * time.Millisecond, 15
	speak := func(conn io.Writer) (err error) {
		for range n {
			_, writeErr := io.WriteString(conn, ".")
			err = cmp.Or(err, writeErr)
			time.Sleep(pause)
		}
		return err
	}
	listen := func(conn io.Reader) error {
		_, err := io.ReadFull(conn, make([]byte, n))
		return err
	}
	serve := func(conn *net.TCPConn) {
		if speak(conn) == nil && listen(conn) == nil {
			_, _ = io.WriteString(conn, "end")
		}
	}
	cluster := push(t, endpoint(t, serve))
	upgrades := pushAs(t, cluster+"-upgrades", endpoint(t, func(conn *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: dots\r\n\r\n")
		serve(conn)
	}))
	p := start(t, "--map=127.0.0.1:0="+upgrades, "--stall-timeout=150ms")
	for name, open := range map[string]func(t *testing.T) (io.Reader, io.Writer){
		"HTTP1": func(t *testing.T) (io.Reader, io.Writer) {
			conn, reader, _ := connect(t, p, cluster, "")
			return reader, conn
		},
		"HTTP2": func(t *testing.T) (io.Reader, io.Writer) {
			response, write := upload(t, h2c(t), http.MethodConnect, cluster+".lbd:443", "http://"+p.forward) //nolint:bodyclose // upload closes it
			return response.Body, write
		},
		"Upgrade": func(t *testing.T) (io.Reader, io.Writer) {
			conn, err := net.Dial("tcp", p.mapped)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: dots\r\n\r\n")
			reader := bufio.NewReader(conn)
			if response, err := http.ReadResponse(reader, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols { //nolint:bodyclose // it is the connection
				t.Fatal(response, err)
			}
			return reader, conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write := open(t)
			if err := cmp.Or(listen(read), speak(write)); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(io.LimitReader(read, 3)); string(got) != "end" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestTunnelAtShutdown: tunnels that begin while the proxy ends are closed.
func TestTunnelAtShutdown(t *testing.T) {
	p := start(t)
	p.stop()
	for range 100 {
		conn, err := net.Dial("tcp", p.forward)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{proxy: p.proxy, stats: p.metrics.of("", false)}
		if _, err := x.newTunnel(conn.(*net.TCPConn)); err != nil { //nolint:errcheck,forcetypeassert // it is one
			t.Fatal(err)
		}
	}
	until(t, "all are closed", func() bool { return p.metrics.tunnels.Load() == 0 })
}

// TestTunnelHTTP2CallerDoesNotRead: such a tunnel ends like one without traffic.
func TestTunnelHTTP2CallerDoesNotRead(t *testing.T) {
	cluster := push(t, endpoint(t, func(conn *net.TCPConn) {
		_, _ = conn.Write(make([]byte, 20<<20))
	}))
	p := start(t, "--tunnel-timeout=200ms")
	upload(t, h2c(t), http.MethodConnect, cluster+".lbd:443", "http://"+p.forward) //nolint:bodyclose // upload closes it
	until(t, "it has ended", func() bool { return p.metrics.tunnels.Load() == 0 && p.metrics.inFlight.Load() == 0 })
}
