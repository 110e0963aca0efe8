package stand

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"
)

// Proxy passes calls to lbd, or fails them as Fault says.
type Proxy struct {
	Address string       // as clients take it
	Calls   atomic.Int64 // that arrived

	fault    atomic.Pointer[string]
	upstream *http.Transport
	server   *http.Server
}

// NewProxy listens on a unix socket, or with TLS on loopback if there is a certificate.
func NewProxy(socket, daemon string, certificate *tls.Certificate) (*Proxy, error) {
	p := &Proxy{upstream: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", daemon)
		},
		DisableCompression: true, MaxIdleConnsPerHost: 20,
	}}
	var l net.Listener
	var err error
	if certificate == nil {
		l, err = net.Listen("unix", socket) //nolint:noctx // it does not wait
		p.Address = "unix:" + socket
	} else {
		l, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12})
	}
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		p.Address = fmt.Sprintf("https://localhost:%d", l.Addr().(*net.TCPAddr).Port) //nolint:errcheck // it is a TCP listener
	}
	p.Fault("none")
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: Patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { _ = p.server.Serve(l) }() // ends with Close
	return p, nil
}

// Fault sets what happens to calls from now on: "none"; "delay 700ms" before the call;
// "half", "chunk" and "garbage": half of the answer, with Content-Length, with a chunk that
// does not end, and as a complete answer that is not JSON; "empty": {}; "reset"; "hang". "reset at /done" is
// for calls whose path ends with /done.
func (p *Proxy) Fault(text string) { p.fault.Store(&text) }

// Close ends the proxy with its connections.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.upstream.CloseIdleConnections()
}

// ServeHTTP passes a call on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Calls.Add(1)
	fault, path, _ := strings.Cut(*p.fault.Load(), " at ")
	if !strings.HasSuffix(r.URL.Path, path) {
		fault = "none"
	}
	if text, ok := strings.CutPrefix(fault, "delay "); ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			panic(err) // a mistake in scenarios.json
		}
		if !pause(r.Context(), d) {
			return
		}
		fault = "none"
	}
	switch fault {
	case "none":
		proxy := httputil.ReverseProxy{
			Transport: p.upstream, FlushInterval: -1,
			Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "lbd" },
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { end(w, "reset") },
		}
		proxy.ServeHTTP(w, r)
	case "reset":
		end(w, "reset")
	case "hang":
		pause(r.Context(), time.Hour)
	case "empty":
		_, _ = io.WriteString(w, "{}")
	default:
		p.cut(w, r, fault)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cut answers a call with half of its answer.
func (p *Proxy) cut(w http.ResponseWriter, r *http.Request, how string) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", "lbd"
	res, err := p.upstream.RoundTrip(out)
	if err != nil {
		end(w, "reset")
		return
	}
	defer res.Body.Close()
	part := make([]byte, 1<<16)
	n, _ := io.ReadAtLeast(res.Body, part, 2) // a short answer is cut, too
	text := part[:n/2]
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(buffer, "HTTP/1.1 %s\r\nContent-Type: %s\r\n", res.Status, res.Header.Get("Content-Type"))
	switch how {
	case "half":
		_, _ = fmt.Fprintf(buffer, "Content-Length: %d\r\n\r\n%s", n, text)
	case "chunk":
		_, _ = fmt.Fprintf(buffer, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", n, text)
	case "garbage":
		_, _ = fmt.Fprintf(buffer, "Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	_ = buffer.Flush()
}
