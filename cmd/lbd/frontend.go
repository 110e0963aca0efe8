package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/picks"
)

// Limits of the HTTP server.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 60 * time.Second
	// writeTimeout allows a response after the longest wait.
	writeTimeout   = picks.MaxWait + 30*time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// closeTimeout is the time for responses to picks that end when the trees close.
	closeTimeout = time.Second
	// drainQuiet is the idle time after which draining closes a connection: a caller in a
	// loop sends its next request earlier, and the response has Connection: close.
	drainQuiet = 500 * time.Millisecond
)

// budgetOf divides the descriptors of the process.
func budgetOf(c Config, memory int64, log *slog.Logger) overload.Budget {
	b := overload.NewBudget(overload.DescriptorLimit(), c.MaxConnections, lb.MaxDials, memory)
	if b.Connections < c.MaxConnections {
		log.Warn("the limit on descriptors allows fewer connections than --max-connections",
			"limit", b.Limit, "max_connections", c.MaxConnections, "allowed", b.Connections)
	}
	return b
}

// frontend serves HTTP with a limit on connections, and shuts down without resetting
// accepted connections.
type frontend struct {
	server  *http.Server
	loops   *eventloop.Server // nil without event loops
	limiter *connections.Limiter
	leaving atomic.Bool // each response is the last of its connection
	serving sync.WaitGroup
}

// sparseInterval is the minimum time between two records of the log about the same.
const sparseInterval = time.Minute

// sparse is when something was logged last, in nanoseconds of Unix time.
type sparse struct{ last atomic.Int64 }

// due reports whether it is time to log it again.
func (s *sparse) due() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return now-last >= int64(sparseInterval) && s.last.CompareAndSwap(last, now)
}

// newFrontend returns a frontend with limits on connections.
func newFrontend(handler *api.Handler, limits connections.Options, lacks *overload.Monitor, log *slog.Logger) *frontend {
	limits.Full = func() {
		lacks.Report(overload.APIConnections, fmt.Errorf("%d connections are open: %w", limits.Max, syscall.EMFILE))
	}
	limits.Lacking = lacks.ReportIf
	limits.Peer = listen.Peer
	var peersLogged, errorsLogged sparse
	limits.AcceptFailed = func(err error) {
		if errorsLogged.due() {
			log.Warn("accepting a connection failed", "err", err)
		}
	}
	limits.PeerFull = func(peer string) {
		if peersLogged.due() {
			log.Warn("connections are rejected: their peer has as many as --max-peer-connections allows", "peer", peer, "limit", limits.MaxPeer)
		}
	}
	f := &frontend{limiter: connections.New(limits)}
	f.server = newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	}), log)
	f.limiter.Attach(f.server)
	count := f.server.ConnContext
	f.server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return listen.ConnContext(count(ctx, c), c) }
	return f
}

// startLoops starts event loops, which serve the listeners without TLS. Without loops, and on other
// systems than Linux, net/http serves all.
func (f *frontend) startLoops(loops int, handler *api.Handler, listeners []*listen.Listener, log *slog.Logger) (err error) {
	if !eventloop.Supported || loops == 0 {
		return nil
	}
	for _, l := range listeners {
		if l.TLS {
			continue
		}
		taken, err := eventloop.Take(l.Listener, l.Inherited)
		if err != nil {
			return fmt.Errorf("serve %s: %w", printable(l), err)
		}
		l.Listener = taken
	}
	f.loops, err = eventloop.New(eventloop.Options{
		Routes:      eventloop.Routes{Route: handler.Route, Leaving: f.leaving.Load},
		Loops:       loops,
		Limiter:     f.limiter,
		HandOver:    f.server.Serve,
		ReadTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
		Logger: log,
	})
	return err
}

// serve serves a listener, whose connections the limiter counts, until it is closed. The caller adds
// it to serving.
func (f *frontend) serve(l *listen.Listener, sec *security) error {
	defer f.serving.Done()
	var err error
	if f.loops != nil && !l.TLS {
		err = f.loops.Serve(l)
	} else {
		err = f.server.Serve(sec.wrap(l, f.limiter.Listen(l)))
	}
	if errors.Is(err, http.ErrServerClosed) || f.leaving.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", printable(l), err)
}

// drain stops accepting connections and waits until requests finish, at most for timeout.
func (f *frontend) drain(svc *service.Service, listeners []*listen.Listener, timeout time.Duration) {
	end := time.Now().Add(timeout)
	closeAll(listeners)
	f.serving.Wait() // accepted connections are served
	svc.Drain()
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	f.limiter.Drain(ctx, drainQuiet)
	if f.loops != nil {
		_ = f.loops.Close() // which has no error
	}
	shutdown(f.server, svc, time.Until(end))
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		BaseContext:       listen.BaseContext,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// shutdown waits for requests, at most for timeout. Then queued picks get shutting_down.
func shutdown(server *http.Server, svc *service.Service, timeout time.Duration) {
	svc.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if server.Shutdown(ctx) == nil {
		return
	}
	svc.Close()
	ctx, cancel = context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}
