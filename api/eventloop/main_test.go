package eventloop_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/test/servicetest"
)

const pick = "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestMain(m *testing.M) {
	// net/http waits for half a second before it closes a connection after an invalid request.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// newAPI returns the API over a service with the cluster orders, which has one endpoint.
func newAPI(tb testing.TB, callers *listen.Callers) *api.Handler {
	tb.Helper()
	h, _ := newServiceAPI(tb, callers)
	return h
}

// newServiceAPI returns the service, too.
func newServiceAPI(tb testing.TB, callers *listen.Callers) (*api.Handler, *service.Service) {
	tb.Helper()
	svc, _ := servicetest.Start(tb, "", func(o *service.Options) { o.MaxLeases, o.Draw = 1000, nil })
	o := api.OptionsFor(svc)
	o.Callers, o.Logger = callers, slog.New(slog.DiscardHandler)
	o.Limits = api.Limits{Wait: 10 * time.Millisecond, Quotas: quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Leases: 1000}, MaxAccounts: 10})}
	h := api.New(o)
	front := &recording{header: http.Header{}}
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPut, "http://localhost/v1/clusters/orders/endpoints", strings.NewReader(
		`{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"10.0.0.7","port_value":8080}}}}]}],"policy":{}}`))
	servicetest.Must(tb, err)
	r.Header.Set("Content-Type", "application/json")
	if callers != nil {
		specs, err := listen.Parse([]string{"unix:/x"})
		servicetest.Must(tb, err)
		r = r.WithContext(listen.BaseContext(&listen.Listener{Spec: specs[0], Policy: specs[0].Policy(false, false)}))
	}
	h.ServeHTTP(front, r)
	if front.status != http.StatusCreated {
		tb.Fatalf("%d %s", front.status, front.body.Bytes())
	}
	return h, svc
}

// recording is a ResponseWriter.
type recording struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recording) Header() http.Header         { return r.header }
func (r *recording) WriteHeader(status int)      { r.status = status }
func (r *recording) Write(b []byte) (int, error) { return r.body.Write(b) }

// kit serves an API.
type kit struct {
	limiter *connections.Limiter
	loops   *eventloop.Server // nil for net/http alone
	leaving atomic.Bool
	network string
	address string
	stop    func()
}

// options change what newKit starts.
type options struct {
	network  string // unix, or else tcp
	plain    bool   // net/http serves all
	limits   connections.Options
	timeouts time.Duration // of all kinds; 0 for long ones
	route    func(string) http.Handler
	loops    int // 0 for 2
}

func newKit(tb testing.TB, h *api.Handler, o options) *kit {
	tb.Helper()
	k := &kit{network: "tcp", address: "127.0.0.1:0"}
	if o.network == "unix" {
		k.network, k.address = "unix", filepath.Join(socketDir(tb), "s")
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), k.network, k.address)
	servicetest.Must(tb, err)
	k.address = l.Addr().String()
	spec := k.address
	if o.network == "unix" {
		spec = listen.UnixPrefix + k.address
	}
	specs, err := listen.Parse([]string{spec})
	servicetest.Must(tb, err)
	own := &listen.Listener{Listener: l, Spec: specs[0], Policy: specs[0].Policy(false, false)}
	if o.limits.Max == 0 {
		o.limits.Max = 1000
	}
	o.limits.Peer = listen.Peer
	o.limits.Lacking = func(err error) bool { return errors.Is(err, os.ErrInvalid) }
	if o.limits.Full == nil {
		o.limits.Full = func() {}
	}
	o.limits.PeerFull = func(string) {}
	k.limiter = connections.New(o.limits)
	if o.timeouts == 0 {
		o.timeouts = 10 * time.Minute
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: h, BaseContext: listen.BaseContext, Protocols: protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ReadHeaderTimeout: o.timeouts, IdleTimeout: o.timeouts, MaxHeaderBytes: 64 << 10,
	}
	k.limiter.Attach(server)
	count := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return listen.ConnContext(count(ctx, c), c) }
	done := make(chan error, 1)
	if o.plain {
		counted := *own
		counted.Listener = k.limiter.Listen(l)
		go func() { done <- server.Serve(&counted) }()
	} else {
		own.Listener, err = eventloop.Take(l, false)
		servicetest.Must(tb, err)
		if o.route == nil {
			o.route = h.Route
		}
		k.loops, err = eventloop.New(eventloop.Options{
			Routes: eventloop.Routes{Route: o.route, Leaving: k.leaving.Load},
			Loops:  cmp.Or(o.loops, 2), Limiter: k.limiter, HandOver: server.Serve, Logger: slog.New(slog.DiscardHandler),
			ReadTimeout: o.timeouts, IdleTimeout: o.timeouts, WriteTimeout: o.timeouts,
		})
		servicetest.Must(tb, err)
		go func() { done <- k.loops.Serve(own) }()
	}
	stopped := false
	k.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = own.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			tb.Error(err)
		}
		if k.loops != nil {
			servicetest.Must(tb, k.loops.Close())
		}
		_ = server.Close()
	}
	tb.Cleanup(k.stop)
	return k
}

func (k *kit) dial(tb testing.TB) net.Conn {
	tb.Helper()
	c, err := new(net.Dialer).DialContext(tb.Context(), k.network, k.address)
	servicetest.Must(tb, err)
	servicetest.Must(tb, c.SetDeadline(time.Now().Add(5*time.Minute))) // for all of the test, also on a machine that is busy
	return c
}

// exchange sends parts, ends the sending side, and returns what the server sends.
func (k *kit) exchange(tb testing.TB, parts ...[]byte) string {
	tb.Helper()
	c := k.dial(tb)
	defer func() { _ = c.Close() }()
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			break // the server has rejected what came before
		}
	}
	_ = closeWrite(c) // as above
	b, err := io.ReadAll(c)
	if err != nil && !strings.Contains(err.Error(), "reset by peer") {
		tb.Errorf("read: %v", err)
	}
	return string(b)
}

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// socketDir returns a directory for a socket: the path of t.TempDir is too long.
func socketDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "loop") //nolint:usetesting // see above
	servicetest.Must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var changing = regexp.MustCompile(`201 Created\r\n[^\r]*\r\nContent-Length: \d+|Date: [^\r]*|"generation":\d+|"(id|expires_at|granted_at|ended_at)":"[^"]*"|leases/[0-9A-Z]{20,}`)

// still returns responses without what differs from one to the next.
func still(s string) string { return changing.ReplaceAllString(s, "-") }

// anonymous are callers without identities, whose Host header is checked.
func anonymous() *listen.Callers {
	return &listen.Callers{Identities: func() *access.Identities { return nil }}
}
