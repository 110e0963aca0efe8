package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// sent is a server-sent event. A comment is one of the kind ":".
type sent struct{ kind, id, data string }

// parseEvents reads a stream, comments and retry aside.
func parseEvents(stream string) []sent {
	var out []sent
	for block := range strings.SplitSeq(stream, "\n\n") {
		if e := parseEvent(block); e.kind != "" && e.kind != ":" {
			out = append(out, e)
		}
	}
	return out
}

func parseEvent(block string) sent {
	var e sent
	for line := range strings.Lines(block) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			e = sent{kind: ":", data: value}
		}
	}
	return e
}

// streaming is the body of a stream, event by event.
type streaming struct {
	t      testing.TB
	header http.Header
	body   *bufio.Reader
}

// next returns the next event, or io.EOF as its kind.
func (s *streaming) next() sent {
	s.t.Helper()
	var block strings.Builder
	for {
		line, err := s.body.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF) && block.Len() == 0:
			return sent{kind: io.EOF.Error()}
		case err != nil:
			s.t.Fatalf("%v after %q", err, block.String())
		case line == "\n":
			if e := parseEvent(block.String()); e.kind != "" {
				return e
			}
			block.Reset() // retry
			continue
		}
		block.WriteString(line)
	}
}

func (s *streaming) must(kind string) sent {
	s.t.Helper()
	e := s.next()
	if e.kind != kind {
		s.t.Fatalf("comes %q, and not %q: %s", e.kind, kind, e.data)
	}
	return e
}

// answered reads the answer to a request that was sent on one of serve's
// connections.
func answered(t testing.TB, conn *bufio.Reader) *streaming {
	t.Helper()
	response, err := http.ReadResponse(conn, nil) //nolint:bodyclose // it would read the stream to its end, which has none
	servicetest.Must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	s := &streaming{t, response.Header, bufio.NewReader(response.Body)}
	s.must("heartbeat")
	return s
}

func get(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

// counted returns a series of the metrics, without its name.
func counted(d *daemon, series string) string {
	for line := range strings.Lines(d.do("GET", "/metrics", "").Body.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// heartbeat returns the data of a heartbeat.
func heartbeat(at time.Time) string {
	return `{"time":"` + at.UTC().Format(time.RFC3339Nano) + `"}`
}

const watchers = `lbd_watchers{kind="sse"}`

// A stream begins at once, follows what happens, outlasts the server's timeouts,
// sends heartbeats, and ends with what it is about; the connection goes on.
func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		send := serve(t, d, 15*time.Second)
		conn := send(get("/v1/clusters/orders/watch") + get("/v1/clusters/orders"))
		cluster := answered(t, conn)
		for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := cluster.header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		all := answered(t, send(get("/v1/clusters/watch?prefix=ord")))
		happened := answered(t, send(get("/v1/events/watch?cluster=orders&type=pushed&type=push_refused&last=5")))

		first := cluster.must("state")
		if body := d.must(200, "GET", "/v1/clusters/orders", "").Body.String(); first.data+"\n" != body {
			t.Errorf("the state is %s\nwant %s", first.data, body)
		}
		cluster.must("counts")
		all.must("resync")
		pushed := happened.must("event")
		began := time.Now()
		for i := range 4 {
			for _, s := range []*streaming{cluster, all, happened} {
				if e, after := s.next(), time.Duration(i+1)*api.HeartbeatInterval; e.kind != "heartbeat" || (e.id != "") != (s == happened) || e.data != heartbeat(time.Now()) || time.Since(began) != after {
					t.Errorf("after %v, and not %v: %v", time.Since(began), after, e)
				}
			}
		}
		if got := counted(d, watchers); got != "3" {
			t.Errorf("%s are counted", got)
		}

		d.must(http.StatusOK, "PUT", orders, assignment("", "10.0.0.8:8080"))
		if e := cluster.must("state"); e.id == first.id || !strings.Contains(e.data, "10.0.0.8:8080") {
			t.Errorf("the next state is %v", e)
		}
		all.must("update")
		if e := happened.must("event"); e.id == pushed.id || !strings.Contains(e.data, `"type":"pushed"`) {
			t.Errorf("the next event is %v", e)
		}
		d.must(http.StatusOK, "DELETE", orders, "")
		cluster.must("gone")
		cluster.must("EOF")
		if e := all.must("update"); e.data != `{"clusters":[],"removed":["orders"]}` {
			t.Errorf("the last update is %v", e)
		}
		response, err := http.ReadResponse(conn, nil)
		servicetest.Must(t, err)
		if _ = response.Body.Close(); response.StatusCode != http.StatusNotFound {
			t.Errorf("the next request of the connection: %s", response.Status)
		}
		happened.must("event")
		if got, route := counted(d, watchers), `lbd_http_requests_total{code="200",method="GET",route="/v1/clusters/{name}/watch"}`; got != "2" || counted(d, route) != "1" {
			t.Errorf("%s are counted; %s %s", got, route, counted(d, route))
		}
	})
}

// A stream goes on where it was, by what the browser says or by the parameter.
func TestStreamsResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		send := serve(t, d, time.Hour)
		one := answered(t, send(get("/v1/clusters/orders/watch"))).must("state").id
		many := answered(t, send(get("/v1/clusters/watch"))).must("resync").id
		last := answered(t, send(get("/v1/events/watch?last=1"))).must("event").id
		for _, c := range []struct{ path, id, known, unknown string }{
			{"/v1/clusters/orders/watch", one, "counts", "state"},
			{"/v1/clusters/watch", many, "heartbeat", "resync"},
			{"/v1/events/watch", last, "heartbeat", "resync"},
		} {
			answered(t, send(get(c.path, "Last-Event-ID: "+c.id))).must(c.known)
			answered(t, send(get(c.path+"?last_event_id="+c.id))).must(c.known)
			answered(t, send(get(c.path+"?last_event_id=7", "Last-Event-ID: "+c.id))).must(c.known)
			answered(t, send(get(c.path+"?last_event_id="+c.id, "Last-Event-ID: 7"))).must(c.unknown)
		}
	})
}

// Who takes nothing is disconnected after a while, and delays no other reader.
func TestSlowReaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		send := serve(t, d, time.Hour)
		slow := send(get("/v1/clusters/orders/watch"))
		quick := answered(t, send(get("/v1/clusters/orders/watch?endpoints=false")))
		began := time.Now()
		quick.must("state")
		quick.must("counts")
		for i := range 5 {
			d.must(http.StatusOK, "PUT", orders, assignment("", fmt.Sprintf("10.0.1.%d:8080", i)))
			changed := time.Now()
			quick.must("state")
			if late := time.Since(changed); late > 100*time.Millisecond {
				t.Errorf("the other reader gets the change %v late", late)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(api.StreamTimeout - time.Millisecond - time.Since(began))
		synctest.Wait()
		before := counted(d, watchers)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if after := counted(d, watchers); before != "2" || after != "1" {
			t.Errorf("%s are counted before the time is over, and %s after", before, after)
		}
		if rest, err := io.ReadAll(slow); len(rest) != 0 || err != nil {
			t.Errorf("who took nothing has %q, %v", rest, err)
		}
	})
}

// A reader that comes back to its socket gets the current state, not each change.
func TestSlowReaderGetsNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		send := serve(t, d, time.Hour)
		one, all := answered(t, send(get("/v1/clusters/orders/watch"))), answered(t, send(get("/v1/clusters/watch")))
		one.must("state")
		all.must("resync")
		for i := range 20 {
			d.must(http.StatusOK, "PUT", orders, assignment("", fmt.Sprintf("10.0.1.%d:8080", i)))
			time.Sleep(time.Second)
		}
		now := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/orders", "").Body.Bytes()).Generation
		newest := fmt.Sprintf(`"generation":%d`, now)
		for name, reader := range map[string]*streaming{"the cluster's": one, "the list's": all} {
			n := 1
			for e := reader.next(); !strings.Contains(e.data, newest); e = reader.next() {
				n++
			}
			if n > 4 { // one or two were being written when the reader stopped
				t.Errorf("%s watcher gets the newest of 20 changes as number %d", name, n)
			}
		}
	})
}

// Draining ends streams at once, and soon those whose reader takes nothing.
func TestDrainEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		send := serve(t, d, time.Hour)
		readers := []*streaming{
			answered(t, send(get("/v1/clusters/orders/watch"))), answered(t, send(get("/v1/clusters/watch"))), answered(t, send(get("/v1/events/watch"))),
		}
		readers[0].must("state")
		readers[0].must("counts")
		readers[1].must("resync")
		send(get("/v1/clusters/orders/watch"))
		synctest.Wait()
		began := time.Now()
		d.service.Drain()
		for _, r := range readers {
			r.must("EOF")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("streams ended after %v", took)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := counted(d, watchers); got != "0" {
			t.Errorf("%s are counted a second after", got)
		}
		d.refused(fault.ShuttingDown, "GET", "/v1/events/watch", "")
	})
}

func TestStreamsAreBounded(t *testing.T) {
	d := start(t, nil)
	for range observe.MaxWatchers {
		w, err := d.service.Watches.WatchEvents(observe.EventFilter{}, "")
		servicetest.Must(t, err)
		defer w.Close()
	}
	for _, path := range []string{"/v1/events/watch", "/v1/clusters/watch"} {
		if _, w := d.refused(fault.RateLimited, "GET", path, ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "10" {
			t.Errorf("%s: %d, Retry-After %q", path, w.Code, w.Header().Get("Retry-After"))
		}
	}
}

func TestStreamRefusals(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	d.refused(fault.UnknownCluster, "GET", "/v1/clusters/unknown/watch", "")
	d.refused(fault.UnknownTarget, "GET", "/v1/clusters/orders/watch?target=unknown", "")
	for _, target := range []string{
		"/v1/clusters/orders/watch?endpoints=2", "/v1/clusters/orders/watch?index=1", "/v1/clusters/orders/watch?last_event_id=",
		"/v1/clusters/orders/watch?target=", "/v1/clusters/%00/watch",
		"/v1/clusters/watch?prefix=", "/v1/clusters/watch?limit=1", "/v1/clusters/watch?last_event_id=" + strings.Repeat("1", 65),
		"/v1/events/watch?last=1001", "/v1/events/watch?last=-1", "/v1/events/watch?type=explosion", "/v1/events/watch?cluster=", "/v1/events/watch?limit=1",
	} {
		d.refused(fault.InvalidArgument, "GET", target, "")
	}
	if got := counted(d, watchers); got != "0" {
		t.Errorf("%s are counted", got)
	}
}

// HEAD has a stream's header and ends; so does a reader that is gone at once. Both
// leave no watchers.
func TestStreamsWithoutReaders(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	for _, path := range []string{"/v1/clusters/orders/watch", "/v1/clusters/watch", "/v1/events/watch"} {
		if w := d.must(200, "HEAD", path, ""); w.Body.Len() != 0 || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("HEAD %s: %v %q", path, w.Header(), w.Body)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		d.answer(httptest.NewRequestWithContext(gone, "GET", path, nil))
	}
	if got := counted(d, watchers); got != "0" {
		t.Errorf("%s are counted", got)
	}
}

// A cluster may have the name of a part of a path.
func TestClusterNamedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, nil)
		d.must(http.StatusCreated, "PUT", "/v1/clusters/watch/endpoints", assignment("", "10.0.0.7:8080"))
		if c := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/%77atch", "").Body.Bytes()); c.Name != "watch" {
			t.Errorf("%+v", c)
		}
		d.must(200, "GET", "/v1/clusters/watch/endpoints", "")
		send := serve(t, d, time.Hour)
		for path, want := range map[string]string{"/v1/clusters/watch": "resync", "/v1/clusters/watch/watch": "state", "/v1/clusters/%77atch/watch": "state"} {
			answered(t, send(get(path))).must(want)
		}
		d.refused("method_not_allowed", "PUT", "/v1/clusters/watch", "{}")
	})
}

// Over real sockets, HTTP/1.1 and HTTP/2: events come as they happen, other requests of
// the connection go on, and a server that shuts down does not wait for readers.
func TestStreamsOverSockets(t *testing.T) {
	for _, two := range []bool{false, true} {
		d := startWith(t, "10.0.0.7:8080")
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!two)
		protocols.SetUnencryptedHTTP2(two)
		server := httptest.NewUnstartedServer(d.handler)
		server.Config.Protocols = protocols
		server.Start()
		transport := &http.Transport{Protocols: protocols}
		ask := func(method, path, body string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
			servicetest.Must(t, err)
			response, err := transport.RoundTrip(r)
			servicetest.Must(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
			return response
		}
		for round := range 2 {
			response := ask("GET", "/v1/clusters/orders/watch", "")
			s := &streaming{t, response.Header, bufio.NewReader(response.Body)}
			s.must("heartbeat")
			first := s.must("state")
			s.must("counts")
			_ = ask("PUT", orders, assignment("", fmt.Sprintf("10.0.%d.8:8080", round))).Body.Close()
			if e := s.must("state"); e.id == first.id {
				t.Errorf("HTTP/%d: the state is the same", response.ProtoMajor)
			}
			if round == 0 {
				_ = response.Body.Close()
				continue
			}
			idle := ask("GET", "/v1/events/watch", "") //nolint:bodyclose // ask does
			d.service.Drain()
			if err := server.Config.Shutdown(t.Context()); err != nil {
				t.Errorf("HTTP/%d: %v", response.ProtoMajor, err)
			}
			for e := s.next(); e.kind != "EOF"; e = s.next() {
				if e.kind != "counts" {
					t.Errorf("after the end: %v", e)
				}
			}
			if _, err := io.ReadAll(idle.Body); err != nil {
				t.Errorf("HTTP/%d: the end of a stream is %v", response.ProtoMajor, err)
			}
		}
		transport.CloseIdleConnections()
		server.Close()
	}
}
