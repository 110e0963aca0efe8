package lbdclient_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// resets starts a server that ends each connection after it has read the beginning of a request.
func resets(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Read(make([]byte, 1000))
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}

func TestRetry(t *testing.T) {
	d := lbdtest.Start(t)
	status := func(code int) string {
		return upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	echo := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	d.Push(t, "refused", "", refused(t), echo)
	d.Push(t, "reset", "", resets(t), echo)
	d.Push(t, "overloaded", "", status(http.StatusServiceUnavailable), echo)
	d.Push(t, "broken", "", status(http.StatusInternalServerError), echo)
	d.Push(t, "alone", "", status(http.StatusBadGateway))
	type form struct {
		method string
		key    bool
		stream bool // a body that cannot be sent again
	}
	get, post := form{method: http.MethodGet}, form{method: http.MethodPost}
	tests := []struct {
		cluster string
		form    form
		failing bool // whether some requests fail
	}{
		{"refused", get, false},
		{"reset", get, false},
		{"overloaded", get, false},
		{"overloaded", form{method: http.MethodPut}, false},
		{"overloaded", form{method: http.MethodDelete}, false},
		{"overloaded", post, true},
		{"refused", post, false},
		{"refused", form{method: http.MethodPost, stream: true}, false},
		{"overloaded", form{method: http.MethodPost, key: true}, false},
		{"overloaded", form{method: http.MethodPut, stream: true}, true},
		{"broken", get, true},
		{"alone", get, true},
	}
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s %s %+v", mode, test.cluster, test.form), func(t *testing.T) {
				_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
				failed := 0
				for range 20 {
					var body io.Reader = strings.NewReader("hello")
					if test.form.stream {
						body = io.MultiReader(body)
					}
					request, err := http.NewRequest(test.form.method, "http://"+test.cluster+".lbd/", body)
					if err != nil {
						t.Fatal(err)
					}
					if test.form.key {
						request.Header.Set("Idempotency-Key", "1")
					}
					response, err := client.Do(request)
					if err != nil {
						failed++
						continue
					}
					content, _ := io.ReadAll(response.Body)
					response.Body.Close()
					if response.StatusCode != http.StatusOK {
						failed++
					} else if string(content) != "hello" {
						t.Errorf("the upstream got the body %q", content)
					}
					if response.Request.URL.Host != test.cluster+".lbd" {
						t.Errorf("the request of the response is for %s", response.Request.URL.Host)
					}
				}
				if (failed > 0) != test.failing {
					t.Errorf("%d of 20 requests failed", failed)
				}
			})
		}
	}
}

// TestRequestIsNotModified is the rule of http.RoundTripper.
func TestRequestIsNotModified(t *testing.T) {
	d := lbdtest.Start(t)
	echo := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, body, r.Trailer.Get("Sum"))
	})
	d.Push(t, "orders", "", refused(t), echo)
	client, _ := connect(t, lbdclient.Config{Address: d.Address})
	transport := &lbdclient.Transport{Client: client}
	for i := range 20 {
		request, err := http.NewRequest(http.MethodPut, "http://orders.lbd:81/a?b=c", bytes.NewReader([]byte("body")))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = -1 // trailers need chunks
		if i%2 == 0 {
			request.Host = "" // that of URL
		}
		request.Trailer = http.Header{"Sum": {"42"}}
		body := request.Body
		before := *request
		target := *request.URL
		header := request.Header.Clone()
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if string(content) != "PUT orders.lbd:81 body 42" {
			t.Errorf("the upstream got %q", content)
		}
		if request.Body != body || *request.URL != target || request.Host != before.Host || !reflect.DeepEqual(request.Header, header) {
			t.Error("the request was modified")
		}
	}
}

func TestResponseTrailersAndFlush(t *testing.T) {
	d := lbdtest.Start(t)
	next := make(chan struct{})
	d.Push(t, "orders", "", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		trailer := http.TrailerPrefix + "Sum"
		if r.URL.Path == "/announced" {
			trailer = "Sum"
			w.Header().Set("Trailer", trailer)
		}
		fmt.Fprint(w, "first")
		w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // it always is
		<-next
		fmt.Fprint(w, "second")
		w.Header().Set(trailer, "42")
	}))
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModeLease} {
		_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
		for _, path := range []string{"announced", "not-announced"} {
			response, err := client.Get("http://orders.lbd/" + path)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			first := make([]byte, 5)
			if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "first" {
				t.Errorf("%s: %q, %v", mode, first, err)
			}
			next <- struct{}{}
			rest, err := io.ReadAll(response.Body)
			if err != nil || string(rest) != "second" || response.Trailer.Get("Sum") != "42" {
				t.Errorf("%s, %s: %q, %v, trailer %v", mode, path, rest, err, response.Trailer)
			}
		}
	}
}

func TestUpgrade(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		connection, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = connection.Close() }()
		fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := buffer.ReadString('\n')
		fmt.Fprint(connection, line)
	}))
	_, client := connect(t, lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	client.Timeout = 0
	request, err := http.NewRequest(http.MethodGet, "http://orders.lbd/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "echo")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	connection, ok := response.Body.(io.ReadWriter)
	if !ok {
		t.Fatalf("the body is a %T", response.Body)
	}
	fmt.Fprintln(connection, "hello")
	if answer, err := io.ReadAll(connection); err != nil || string(answer) != "hello\n" {
		t.Errorf("%q, %v", answer, err)
	}
	lbdtest.Until(t, "the lease ends", func() bool { return d.InFlight(t) == 0 })
}

func TestConnectionsAreKept(t *testing.T) {
	d := lbdtest.Start(t)
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	d.Push(t, "orders", "", server.Listener.Addr().String())
	_, client := connect(t, lbdclient.Config{Address: d.Address})
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 50 {
				if _, _, err := get(client, "http://orders.lbd/"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	// net/http makes some more than 20: it may connect while a connection becomes idle. With its default of 2 that are
	// kept for a host, there are hundreds.
	if got := connections.Load(); got > 100 {
		t.Errorf("%d connections for 20 callers", got)
	}
}

// TestConnectionsOfRetriesAreKept: a short body of a 503 is read, but no retry waits for one that does not come.
func TestConnectionsOfRetriesAreKept(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "stalled", "", upstream(t, nil), upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	d.Push(t, "orders", "", server.Listener.Addr().String(), upstream(t, nil))
	_, client := connect(t, lbdclient.Config{Address: d.Address})
	for range 20 {
		mustGet(t, client, "http://orders.lbd/")
		mustGet(t, client, "http://stalled.lbd/")
	}
	if got := connections.Load(); got > 3 { // more than one if a connect takes long
		t.Errorf("%d connections for one request at a time", got)
	}
}

// TestHTTPS has an endpoint whose certificate is that of the host of the cluster, on HTTP/2.
func TestHTTPS(t *testing.T) {
	d := lbdtest.Start(t)
	certificate, key := authority(t)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS.ServerName, " ", r.Host)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	d.Push(t, "orders", "", server.Listener.Addr().String())
	d.Push(t, "other", "", server.Listener.Addr().String())
	client, _ := connect(t, lbdclient.Config{Address: d.Address, Retries: -1})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(certificate))
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client, Base: base}}
	defer sender.CloseIdleConnections()
	if got := mustGet(t, sender, "https://orders.lbd/"); got != "HTTP/2.0 orders.lbd orders.lbd" {
		t.Errorf("%q", got)
	}
	if _, _, err := get(sender, "https://other.lbd/"); err == nil {
		t.Error("a certificate for another host is accepted")
	}
	client.Close()
	if got := d.Metric(t, `lbd_reported_requests_total{cluster="other",outcome="error"}`); got != 0 {
		t.Errorf("%v errors are reported: nothing was sent", got)
	}
}

// TestCloseEndsHTTPS: the connections of the client for one name each end with it.
func TestCloseEndsHTTPS(t *testing.T) {
	d := lbdtest.Start(t)
	certificate, key := authority(t)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.StartTLS()
	defer server.Close()
	d.Push(t, "orders", "", server.Listener.Addr().String())
	client, _ := connect(t, lbdclient.Config{Address: d.Address})
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
	base.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(certificate))
	if status, _, err := get(&http.Client{Transport: &lbdclient.Transport{Client: client, Base: base}}, "https://orders.lbd/"); status != http.StatusNotFound || open.Load() != 1 {
		t.Fatal(status, err, open.Load())
	}
	client.Close()
	lbdtest.Until(t, "the connection ends", func() bool { return open.Load() == 0 })
}

// TestHTTPSWithPlainBase has a Base that speaks HTTP/2 by default, and not because it is told to.
func TestHTTPSWithPlainBase(t *testing.T) {
	d := lbdtest.Start(t)
	certificate, key := authority(t)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	d.Push(t, "orders", "", server.Listener.Addr().String())
	client, _ := connect(t, lbdclient.Config{Address: d.Address, Retries: -1})
	base := &http.Transport{}
	base.CloseIdleConnections() // sets up HTTP/2
	base.TLSClientConfig.RootCAs = x509.NewCertPool()
	base.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(certificate))
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client, Base: base}}
	defer sender.CloseIdleConnections()
	if got := mustGet(t, sender, "https://Orders.LBD/"); got != "HTTP/2.0" {
		t.Errorf("%q", got)
	}
}

func TestPickAndRetry(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4")
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		client, _ := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
		pick, err := client.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{pick.Address(): true}
		for range 2 {
			if pick, err = pick.Retry(t.Context()); err != nil {
				t.Fatal(err)
			}
			seen[pick.Address()] = true
		}
		if _, err := pick.Retry(t.Context()); !errors.Is(err, lbdclient.ErrNoRetry) || len(seen) != 3 {
			t.Errorf("%s: error %v, addresses %v", mode, err, seen)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := client.Pick(ctx, "nobody"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", mode, err)
		}
	}
}

// TestConnectTimeout has an endpoint that does not answer when a connection is made.
func TestConnectTimeout(t *testing.T) {
	d := lbdtest.Start(t)
	silent, ok := lbdtest.Silent(t), upstream(t, nil)
	d.Push(t, "orders", "", silent, ok)
	d.Push(t, "silent", "", silent)
	client, sender := connect(t, lbdclient.Config{Address: d.Address, ConnectTimeout: 50 * time.Millisecond})
	for range 30 { // picks are shuffled: some are for silent
		if got := mustGet(t, sender, "http://orders.lbd/"); got != ok {
			t.Errorf("answer of %s", got)
		}
	}
	var dial *net.OpError
	if _, _, err := get(sender, "http://silent.lbd/"); !errors.As(err, &dial) || dial.Op != "dial" || !dial.Timeout() {
		t.Errorf("error %v", err)
	}
	client.Close()
	if got := d.Metric(t, `lbd_reported_requests_total{cluster="silent",outcome="error"}`); got != 0 {
		t.Errorf("%v errors are reported: nothing was sent", got)
	}
	if got := d.Metric(t, `lbd_reported_connect_failures_total{cluster="orders"}`); got == 0 {
		t.Error("no connect failure is reported")
	}
}
