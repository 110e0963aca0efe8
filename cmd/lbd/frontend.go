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

	"github.com/lbd-dev/lbd/api/connections"
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
	// writeTimeout leaves time to answer after the longest wait.
	writeTimeout   = picks.MaxWait + 30*time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// closeTimeout is what is left for answers that the end of the trees
	// brings about.
	closeTimeout = time.Second
	// drainQuiet is how long a connection has to be idle, while lbd drains, until it is
	// closed: a caller in a loop asks again before, and its answer says that the
	// connection ends.
	drainQuiet = 500 * time.Millisecond
)

// budgetOf divides the descriptors that the process may have.
func budgetOf(c Config, log *slog.Logger) overload.Budget {
	b := overload.NewBudget(overload.DescriptorLimit(), c.MaxConnections, lb.MaxDials)
	if b.Connections < c.MaxConnections {
		log.Warn("the limit on descriptors allows fewer connections than --max-connections",
			"limit", b.Limit, "max_connections", c.MaxConnections, "allowed", b.Connections)
	}
	return b
}

// frontend serves HTTP. It keeps to so many connections, and when it ends it resets
// none that it has accepted.
type frontend struct {
	server  *http.Server
	limiter *connections.Limiter
	leaving atomic.Bool // each answer is the last of its connection
	serving sync.WaitGroup
}

// newFrontend returns a frontend for most connections at a time.
func newFrontend(handler http.Handler, most int, lacks *overload.Monitor, log *slog.Logger) *frontend {
	f := &frontend{limiter: connections.New(connections.Options{
		Max: most,
		Full: func() {
			lacks.Report(overload.APIConnections, fmt.Errorf("%d connections are open: %w", most, syscall.EMFILE))
		},
		Lacking: lacks.ReportIf,
	})}
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

// serve serves a listener, whose connections the limiter counts, until it is closed.
func (f *frontend) serve(l *listen.Listener) error {
	f.serving.Add(1)
	defer f.serving.Done()
	err := f.server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) || f.leaving.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", printable(l), err)
}

// leave lets each answer say that its connection ends.
func (f *frontend) leave() { f.leaving.Store(true) }

// drain accepts no more connections, and lets requests on those that there are finish
// within timeout.
func (f *frontend) drain(svc *service.Service, listeners []*listen.Listener, timeout time.Duration) {
	end := time.Now().Add(timeout)
	closeAll(listeners)
	f.serving.Wait() // what was accepted is served
	svc.Drain()
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	f.limiter.Drain(ctx, drainQuiet)
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

// shutdown lets requests in flight finish within timeout. Picks that still
// queue then are answered that the daemon is shutting down.
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
