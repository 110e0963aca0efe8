package eventloop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/test/servicetest"
)

func watchOf(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

const ordersWatch = "/v1/clusters/orders/watch"

// local calls the API without a connection.
func local(tb testing.TB, h *api.Handler, method, path, body string) string {
	tb.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	if w.Code >= http.StatusBadRequest {
		tb.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

// endpoints is a ClusterLoadAssignment with n endpoints in a network.
func endpoints(network, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":"10.%d.%d.%d","port_value":80}}}}`, network, i/250, i%250)
	}
	return `{"endpoints":[{"lb_endpoints":[` + strings.Join(all, ",") + `]}],"policy":{}}`
}

const ordersEndpoints = "/v1/clusters/orders/endpoints"

// streams waits until a number of streams is open.
func streams(tb testing.TB, h *api.Handler, n int) {
	tb.Helper()
	want := fmt.Sprintf("lbd_watchers{kind=\"sse\"} %d\n", n)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(local(tb, h, "GET", "/metrics", ""), want); {
		if time.Now().After(end) {
			tb.Fatalf("there are not %d streams", n)
		}
		time.Sleep(time.Millisecond)
	}
}

// open reads the head of a stream, and returns the body.
func (c *caller) open() *bufio.Reader {
	c.tb.Helper()
	r, err := http.ReadResponse(c.reader, nil) //nolint:bodyclose // the stream has no end yet
	servicetest.Must(c.tb, err)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		c.tb.Fatalf("%s %v", r.Status, r.Header)
	}
	return bufio.NewReader(r.Body)
}

// until reads a stream until a line begins with a text, and returns the line.
func until(tb testing.TB, r *bufio.Reader, text string) string {
	tb.Helper()
	for {
		line, err := r.ReadString('\n')
		servicetest.Must(tb, err)
		if strings.HasPrefix(line, text) {
			return line
		}
	}
}

var streamTimes = regexp.MustCompile(`id: \d+\n|"time":"[^"]*"|"age":"[^"]*"|Date: [^\r]*|\r\n[0-9a-f]+\r\n`)

// The bytes are those of net/http, apart from the sizes of chunks.
func TestStreamsAreThoseOfHTTP(t *testing.T) {
	for _, server := range servers {
		h := newAPI(t, nil)
		p := newPair(t, server.network, server.loops, h)
		for _, request := range []string{
			watchOf(ordersWatch), watchOf(ordersWatch+"?endpoints=false", "Accept: text/event-stream", "Cache-Control: no-cache", "Connection: keep-alive"),
			watchOf(ordersWatch, "Connection: close"), watchOf("/v1/clusters/watch"), watchOf("/v1/events/watch?last=3"), watchOf("/v1/daemon/watch"),
		} {
			var got [2]string
			for i, k := range []*kit{p.loops, p.plain} {
				c := k.caller(t)
				c.send(request)
				for !strings.HasSuffix(got[i], "\n\n\r\n") || strings.Count(got[i], "event: ") < 2 { // the begin, and a message
					line, err := c.reader.ReadString('\n')
					servicetest.Must(t, err)
					got[i] += line
				}
				got[i] = streamTimes.ReplaceAllString(got[i], "-")
				_ = c.Close()
			}
			if got[0] != got[1] {
				t.Errorf("%q\ngot  %q\nwant %q", request, got[0], got[1])
			}
		}
		streams(t, h, 0)
	}
}

// Requests that a caller sends during a stream are served after it.
func TestRequestsDuringAStream(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		h := newAPI(t, nil)
		k := newKit(t, h, options{network: network})
		c := k.caller(t)
		c.send(pick + watchOf(ordersWatch) + strings.Replace(pick, "orders", "absent", 1))
		c.answer()
		body := c.open()
		until(t, body, "event: counts")
		c.send(pick)
		local(t, h, "DELETE", ordersEndpoints, "")
		until(t, body, "event: gone")
		_, err := io.ReadAll(body)
		servicetest.Must(t, err)
		for _, want := range []string{"absent", "orders"} {
			if r, body := c.answer(); r.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", want, r.StatusCode, body)
			}
		}
		c.send(watchOf("/v1/daemon/watch", "Connection: close")) // another stream, which is the last
		body = c.open()
		until(t, body, "event: daemon")
		streams(t, h, 1)
	}
}

// A stream ends when its caller disconnects, also after it has sent more; one that only ends its side
// gets the end of the response.
func TestDisconnectionEndsAStream(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		h := newAPI(t, nil)
		k := newKit(t, h, options{network: network})
		for _, more := range []string{"", pick} {
			c := k.caller(t)
			c.send(watchOf(ordersWatch) + more)
			body := c.open()
			until(t, body, "event: counts")
			streams(t, h, 1)
			servicetest.Must(t, c.Close())
			streams(t, h, 0)
		}
		c := k.caller(t)
		c.send(watchOf(ordersWatch))
		body := c.open()
		until(t, body, "event: counts")
		servicetest.Must(t, closeWrite(c.Conn))
		_, err := io.ReadAll(body)
		servicetest.Must(t, err)
		c.ends()
		streams(t, h, 0)
	}
}

// A caller that does not read delays no other one. When it reads again, it gets the newest state.
func TestStreamOfSlowCaller(t *testing.T) {
	h := newAPI(t, nil)
	k := newKit(t, h, options{network: "unix"})
	slow, quick := k.caller(t), k.caller(t)
	slow.send(watchOf(ordersWatch))
	quick.send(watchOf(ordersWatch))
	body := quick.open()
	const size, changes = 3000, 12 // a state has more bytes than a socket buffer
	for i := range changes {
		local(t, h, "PUT", ordersEndpoints, endpoints(i, size))
		for !strings.Contains(until(t, body, "data: "), fmt.Sprintf(`"10.%d.`, i)) {
		}
	}
	body = slow.open()
	states := 0
	for newest := false; !newest; {
		if data := until(t, body, "data: "); strings.Contains(data, `"state":`) {
			states++
			newest = strings.Contains(data, fmt.Sprintf(`"10.%d.`, changes-1))
		}
	}
	if states > 3 {
		t.Errorf("the newest of %d states is number %d", changes, states)
	}
	slow.send(pick)
	local(t, h, "DELETE", ordersEndpoints, "")
	until(t, body, "event: gone")
}

// At the limit on connections, one with a stream is closed only if its caller does not read.
func TestLimitWithStreams(t *testing.T) {
	h := newAPI(t, nil)
	local(t, h, "PUT", ordersEndpoints, endpoints(0, 3000))
	k := newKit(t, h, options{network: "unix", limits: connections.Options{Max: 2}, loops: 1})
	blocked, reads := k.caller(t), k.caller(t)
	for _, c := range []*caller{blocked, reads} {
		c.send(watchOf(ordersWatch))
	}
	body := reads.open()
	until(t, body, "event: counts")
	for status := 0; status != http.StatusOK; { // a caller that does not read has a second
		third := k.caller(t)
		third.send(pick)
		r, _ := third.answer()
		status = r.StatusCode
	}
	streams(t, h, 1)
	local(t, h, "PUT", ordersEndpoints, endpoints(1, 3))
	until(t, body, "event: state")
}

// A server that stops ends its streams, and so does a drain of the service, which lets a caller read
// the end.
func TestStopEndsStreams(t *testing.T) {
	h := newAPI(t, nil)
	k := newKit(t, h, options{network: "unix"})
	for i := range 50 {
		c := k.caller(t)
		c.send(watchOf([]string{ordersWatch, "/v1/events/watch", "/v1/clusters/watch"}[i%3]))
		c.open()
	}
	streams(t, h, 50)
	k.stop()
	streams(t, h, 0)
}

func TestDrainEndsStreams(t *testing.T) {
	h, svc := newServiceAPI(t, nil)
	k := newKit(t, h, options{})
	c := k.caller(t)
	c.send(watchOf("/v1/events/watch"))
	body := c.open()
	until(t, body, "event: heartbeat")
	k.leaving.Store(true)
	svc.Drain()
	_, err := io.ReadAll(body)
	servicetest.Must(t, err)
	streams(t, h, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	k.limiter.Drain(ctx, 0)
	c.ends()
}
