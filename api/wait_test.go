package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

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
			o.ConnectMode = resource.ConnectTCP
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
