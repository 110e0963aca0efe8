package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// h2c returns what sends requests by HTTP/2 without TLS.
func h2c(t testing.TB) *http.Transport {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// upload sends a request whose body is what is written.
func upload(t testing.TB, transport *http.Transport, method, host, target string) (*http.Response, *io.PipeWriter) {
	t.Helper()
	read, write := io.Pipe()
	t.Cleanup(func() { _ = write.Close() })
	request, err := http.NewRequestWithContext(t.Context(), method, target, read)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response, write
}

// TestEarlyAnswer: an endpoint may answer before it has read the body, and the caller may go on.
func TestEarlyAnswer(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "no")
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	transport := h2c(t)
	for range 50 {
		response, write := upload(t, transport, http.MethodPost, "", "http://"+p.mapped) //nolint:bodyclose // upload closes it
		if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusUnauthorized || string(body) != "no" || err != nil {
			t.Fatalf("%d %s, %v", response.StatusCode, body, err)
		}
		_, _ = io.WriteString(write, "x") // too late
		_ = write.Close()
	}
}

// TestNothingIsLost: all of a body arrives, whatever the answer does, and none of it is taken for another request.
func TestNothingIsLost(t *testing.T) {
	got := make(chan string, 1)
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = control.Flush()
		n, err := io.Copy(io.Discard, r.Body)
		got <- fmt.Sprint(n, " ", err)
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	part := strings.Repeat("x", 1000)
	for head, part := range map[string]string{"Content-Length: 21000": part, "Transfer-Encoding: chunked": "3e8\r\n" + part + "\r\n"} {
		conn, err := net.Dial("tcp", p.mapped)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", head)
		reader := bufio.NewReader(conn)
		if line, err := reader.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Error(line, err)
		}
		_, _ = io.WriteString(conn, strings.Repeat(part, 21)+"0\r\n\r\n")
		if got := <-got; got != "21000 <nil>" {
			t.Errorf("%s: %s", head, got)
		}
		_ = conn.Close()
	}

	big := endpoint(t, func(conn *net.TCPConn) {
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1))
	})
	p = start(t, "--map=127.0.0.1:0="+pushAs(t, cluster+"-big", big), "--stall-timeout=200ms")
	for _, head := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", p.mapped)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+head+"\r\n\r\n5\r\nhalf")
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "big" || err != nil {
			t.Errorf("%s: %d %s, %v", head, response.StatusCode, body, err)
		}
		go func() { // the rest of the body, in which a request seems to be
			for err := error(nil); err == nil; time.Sleep(10 * time.Millisecond) {
				_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
		}()
		if next, _ := io.ReadAll(reader); len(next) > 0 {
			t.Errorf("%s: the body is a request: %q", head, next)
		}
	}
}

// TestSilentCallerOfStream: a caller that reads need not send.
func TestSilentCallerOfStream(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		for range 15 {
			_, _ = io.WriteString(w, ".")
			_ = control.Flush()
			time.Sleep(50 * time.Millisecond)
		}
		_, err := io.Copy(w, r.Body)
		fmt.Fprint(w, err)
	}))
	p := start(t, "--map=127.0.0.1:0=h2c://"+cluster, "--stall-timeout=300ms")
	response, write := upload(t, h2c(t), http.MethodPost, "", "http://"+p.mapped) //nolint:bodyclose // upload closes it
	dots := make([]byte, 15)
	if _, err := io.ReadFull(response.Body, dots); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(write, "last")
	_ = write.Close()
	if rest, err := io.ReadAll(response.Body); string(rest) != "last<nil>" || err != nil {
		t.Errorf("%s, %v", rest, err)
	}
}

// TestCallerReadsNoHeaders: who sends requests and reads no answers loses the connection, even if answers have no body.
func TestCallerReadsNoHeaders(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("x", 60_000))
		w.WriteHeader(http.StatusNoContent)
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--stall-timeout=200ms")
	conn, err := net.Dial("tcp", p.mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	until(t, "the connection is closed", func() bool {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		return err != nil
	})
	until(t, "nothing is left", func() bool { return p.metrics.connections.Load() == 0 && p.metrics.inFlight.Load() == 0 })
}

// TestStalledCallerIsNotTheEndpoint: lbd does not hear of an error if the caller is why there is no answer.
func TestStalledCallerIsNotTheEndpoint(t *testing.T) {
	cluster := push(t, upstream(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	p := start(t, "--map=127.0.0.1:0="+cluster, "--stall-timeout=200ms", "--timeout=200ms", "--report-interval=50ms")
	reported := func(outcome string) float64 {
		n, err := lbd.Sum(`lbd_reported_requests_total{cluster="` + cluster + `",outcome="` + outcome + `"`)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	before := reported("cancelled") // of another -count
	conn, err := net.Dial("tcp", p.mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 408 ") {
		t.Error(line, err)
	}
	until(t, "lbd has the report", func() bool { return reported("cancelled") == before+1 })
	if n := reported("error"); n != 0 {
		t.Errorf("%v errors", n)
	}
}
