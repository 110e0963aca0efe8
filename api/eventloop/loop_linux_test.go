package eventloop_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// caller is a connection of a caller.
type caller struct {
	net.Conn

	tb     testing.TB
	reader *bufio.Reader
}

func (k *kit) caller(tb testing.TB) *caller {
	tb.Helper()
	c := k.dial(tb)
	tb.Cleanup(func() { _ = c.Close() })
	return &caller{c, tb, bufio.NewReader(c)}
}

func (c *caller) send(s string) {
	c.tb.Helper()
	_, err := io.WriteString(c, s)
	servicetest.Must(c.tb, err)
}

// answer is a response.
type answer struct {
	StatusCode int
	Location   string
	Close      bool
}

// answer reads a response, and returns it and its body.
func (c *caller) answer() (answer, string) {
	c.tb.Helper()
	r, err := http.ReadResponse(c.reader, nil)
	servicetest.Must(c.tb, err)
	body, err := io.ReadAll(r.Body)
	servicetest.Must(c.tb, err)
	servicetest.Must(c.tb, r.Body.Close())
	return answer{r.StatusCode, r.Header.Get("Location"), r.Close}, string(body)
}

// ends checks that the server closes the connection.
func (c *caller) ends() {
	c.tb.Helper()
	if n, err := c.reader.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.tb.Errorf("the connection is open: %d bytes, %v", n, err)
	}
}

// Picks, leases and other requests may use one connection.
func TestMixedRequests(t *testing.T) {
	k := newKit(t, newAPI(t, anonymous()), options{network: "unix"})
	c := k.caller(t)
	for range 3 {
		c.send(pick)
		if r, body := c.answer(); r.StatusCode != http.StatusOK || !strings.Contains(body, "10.0.0.7:8080") {
			t.Fatal(r.StatusCode, body)
		}
		c.send("POST /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
		r, _ := c.answer()
		lease := r.Location
		c.send("POST " + lease + "/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 21\r\n\r\n")
		c.send(`{"outcome":"success"}`)
		if r, body := c.answer(); r.StatusCode != http.StatusOK || !strings.Contains(body, `"outcome":"success"`) {
			t.Fatal(r.StatusCode, body)
		}
		c.send("POST " + lease + "/renew HTTP/1.1\r\nHost: localhost\r\n\r\n") // from here on by net/http
		if r, body := c.answer(); r.StatusCode != http.StatusNotFound {
			t.Fatal(r.StatusCode, body)
		}
	}
}

// A caller that does not read its responses gets them later, complete and in order. Meanwhile the loop
// reads no further requests of it, and serves others.
func TestCallerThatDoesNotRead(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{})
	slow := k.caller(t)
	const n = 20_000
	sent := make(chan error, 1)
	go func() {
		_, err := slow.Write(bytes.Repeat([]byte(strings.Replace(pick, "orders", "orders&n=9", 1)), n))
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Fatalf("all requests were read: %v", err)
	default:
	}
	other := k.caller(t)
	for range 100 {
		other.send(pick)
		other.answer()
	}
	for i := range n {
		if r, body := slow.answer(); r.StatusCode != http.StatusOK || !strings.HasPrefix(body, `{"cluster":"orders"`) {
			t.Fatalf("response %d: %d %s", i, r.StatusCode, body)
		}
	}
	servicetest.Must(t, <-sent)
}

// Connections end without a request, with a part of one, and with a response that is not read.
func TestTimeouts(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{network: "unix", timeouts: 50 * time.Millisecond})
	t.Run("idle", func(t *testing.T) {
		c := k.caller(t)
		c.ends()
		c = k.caller(t)
		c.send(pick)
		c.answer()
		c.ends()
	})
	t.Run("head", func(t *testing.T) {
		c := k.caller(t)
		c.send(pick[:20])
		c.ends()
	})
	t.Run("body", func(t *testing.T) {
		c := k.caller(t)
		c.send("POST /v1/leases/A/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n{}")
		servicetest.Must(t, closeWrite(c.Conn)) // net/http waits, until then
		if r, body := c.answer(); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, "ends after 2 of 4 bytes") {
			t.Error(r.StatusCode, body)
		}
	})
	t.Run("response", func(t *testing.T) {
		c := k.caller(t)
		_, err := c.Write(bytes.Repeat([]byte(strings.Replace(pick, "orders", "orders&n=99", 1)), 50_000))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection is open: %v", err)
		}
	})
}

// At the limit, the connection that has been idle longest is closed, and a new one is served.
func TestLimit(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{limits: connections.Options{Max: 3}})
	var all []*caller
	for range 4 {
		c := k.caller(t)
		c.send(pick)
		c.answer()
		all = append(all, c)
	}
	all[0].ends()
	all[3].send(pick)
	all[3].answer()
}

// At the limit, a connection on which a part of a request was received is not closed as long as one is
// idle.
func TestLimitWithPartsOfRequests(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{limits: connections.Options{Max: 2}, loops: 1})
	busy := k.caller(t)
	busy.send("POST /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lease, _ := busy.answer()
	for _, parts := range [][2]string{
		{"POST " + lease.Location + "/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 21\r\n\r\n", `{"outcome":"success"}`},
		{pick + pick[:20], pick[20:]},
	} {
		idle := k.caller(t)
		idle.send(pick)
		idle.answer()
		busy.send(parts[0])
		if strings.HasPrefix(parts[0], pick) {
			busy.answer()
		} else {
			k.untilIdle(t, 1) // the loop has read the part
		}
		third := k.caller(t)
		third.send(pick)
		third.answer()
		idle.ends()
		_ = third.Close()
		busy.send(parts[1])
		if r, body := busy.answer(); r.StatusCode != http.StatusOK {
			t.Errorf("%q: %d %s", parts, r.StatusCode, body)
		}
	}
}

// untilIdle waits until the limiter counts a number of connections as idle.
func (k *kit) untilIdle(t *testing.T, want int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(k.limiter)
	for range 10_000 {
		families, err := registry.Gather()
		servicetest.Must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if l := m.GetLabel(); len(l) == 1 && l[0].GetValue() == "idle" && int(m.GetGauge().GetValue()) == want {
					return
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("not %d connections are idle", want)
}

// A peer at its limit gets a response, although a loop has accepted its connection.
func TestPeerLimit(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{network: "unix", limits: connections.Options{MaxPeer: 1}, loops: 1})
	stream := k.caller(t)
	stream.send("GET /v1/daemon/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status, err := stream.reader.ReadString('\n'); err != nil || status != "HTTP/1.1 200 OK\r\n" {
		t.Fatal(status, err)
	}
	second := k.caller(t)
	second.send(pick)
	if r, _ := second.answer(); r.StatusCode != http.StatusServiceUnavailable || !r.Close {
		t.Errorf("the second connection of a user: %+v", r)
	}
	second.ends()
}

// The last responses say so, and idle connections are closed.
func TestLeaving(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{})
	busy, idle := k.caller(t), k.caller(t)
	idle.send(pick)
	idle.answer()
	k.leaving.Store(true)
	busy.send(pick + pick)
	if r, _ := busy.answer(); !r.Close {
		t.Error("the connection stays open")
	}
	busy.ends()
	k.limiter.Drain(t.Context(), 0)
	idle.ends()
}

// A handler that panics ends its connection, and no other.
func TestPanic(t *testing.T) {
	h := newAPI(t, nil)
	k := newKit(t, h, options{route: func(route string) http.Handler {
		if route == "GET /v1/pick" {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				panic(http.ErrAbortHandler)
			})
		}
		return h.Route(route)
	}})
	other, c := k.caller(t), k.caller(t)
	other.send(pick)
	other.answer()
	c.send(pick + strings.Replace(pick, "/pick", "/v1/pick", 1) + pick)
	c.answer()
	c.ends()
	other.send(pick)
	other.answer()
}

// Many connections come and go, also while the server stops. None stays.
func TestNoDescriptorIsLost(t *testing.T) {
	h := newAPI(t, nil)
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		servicetest.Must(t, err)
		return len(all)
	}
	before := descriptors()
	for _, network := range []string{"tcp", "unix"} {
		k := newKit(t, h, options{network: network, limits: connections.Options{Max: 20}})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 60 {
					c, err := new(net.Dialer).DialContext(t.Context(), k.network, k.address)
					if err != nil {
						return // the server has stopped
					}
					_ = c.SetDeadline(time.Now().Add(20 * time.Second))
					switch request := fmt.Sprintf("GET /pick?cluster=orders&hash=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i*n); n % 5 {
					case 0: // without a request
					case 1:
						_, _ = io.WriteString(c, request[:len(request)-n%40])
					case 2:
						_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
						_, _ = c.Read(make([]byte, 1))
					default:
						_, _ = io.WriteString(c, request)
						_, _ = c.Read(make([]byte, 1<<10))
					}
					_ = c.Close()
					if i == 0 && n == 40 {
						k.stop()
					}
				}
			})
		}
		wg.Wait()
		k.stop()
	}
	for end := time.Now().Add(10 * time.Second); descriptors() > before; { // net/http closes the last ones soon
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open, %d before", descriptors(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

// The file of a unix socket is removed by who has created it.
func TestTakeRemovesTheSocketFile(t *testing.T) {
	for _, inherited := range []bool{false, true} {
		dir := socketDir(t)
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", dir+"/s")
		servicetest.Must(t, err)
		taken, err := eventloop.Take(l, inherited)
		servicetest.Must(t, err)
		s, err := eventloop.New(eventloop.Options{
			Routes:  eventloop.Routes{Route: func(string) http.Handler { return nil }, Leaving: func() bool { return false }},
			Limiter: connections.New(connections.Options{Max: 1}), HandOver: func(net.Listener) error { return nil },
		})
		servicetest.Must(t, err)
		if _, err := os.Stat(dir + "/s"); err != nil {
			t.Error(err)
		}
		servicetest.Must(t, taken.Close())
		if err := s.Serve(&listen.Listener{Listener: taken}); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		servicetest.Must(t, s.Close())
		if _, err := os.Stat(dir + "/s"); (err == nil) != inherited {
			t.Errorf("inherited %t: %v", inherited, err)
		}
	}
}

// A caller that sends many requests at once gets all responses, although others are served between
// them, and need not send more.
func TestTurns(t *testing.T) {
	k := newKit(t, newAPI(t, nil), options{network: "unix", loops: 1})
	c, other := k.caller(t), k.caller(t)
	const n = 200
	c.send(strings.Repeat(pick, n))
	other.send(pick)
	other.answer()
	for range n {
		c.answer()
	}
	c.send(pick)
	c.answer()
}
