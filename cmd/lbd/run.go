package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/web"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/store"
)

// Limits of the HTTP server.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 60 * time.Second
	// writeTimeout leaves time to answer after the longest wait.
	writeTimeout   = service.MaxWait + 30*time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// closeTimeout is what is left for answers that the end of the trees
	// brings about.
	closeTimeout = time.Second
)

// serve builds the parts, joins them, and serves until ctx ends. ready is told
// the addresses once they are served.
//
// The parts stop in the order of the flow: API, leases, trees, connections,
// store.
func serve(ctx context.Context, c Config, ready func(addresses []string)) (err error) {
	log := c.logger()
	b, err := loadBootstrap(c, log)
	if err != nil {
		return err
	}
	dialer := lb.NewDialer(b)
	defer dialer.Close()
	svc := service.New(service.Options{
		Logger:      log,
		Connectors:  dialer.Connectors(c.connectMode()),
		ConnectMode: c.connectMode(),
		Wait:        c.PickWait,
		Name:        c.daemonName(),
		Version:     buildVersion(),

		RequireIfMatch: c.RequireIfMatch,
		Bootstrap:      b,
		Targets:        c.Target,
		OnDemand:       c.OnDemand,
		OnDemandIdle:   c.OnDemandIdle,
		HistoryBytes:   c.historyBytes(),
	})
	defer svc.Close()

	listeners, err := listenAll(ctx, c.Listen, log)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	st, err := store.Open(c.Data, store.Options{Logger: log, OnCommit: svc.Commit, OnLost: svc.StoreLost})
	if err != nil {
		return err
	}
	// The trees close before the store: its last commits still reach them.
	defer func() {
		svc.Close()
		err = errors.Join(err, st.Close())
	}()
	if b != nil {
		f, followErr := follow(c, svc, b, log)
		if followErr != nil {
			return followErr
		}
		defer func() {
			svc.Close()
			err = errors.Join(err, f.close())
		}()
	}
	if c.Resources != "" {
		watcher, openErr := files.Open(c.Resources, files.Options{
			Logger: log, OnChange: svc.FilesChanged, Custom: lb.Foreign, Certificates: b.HasCertificateProvider,
		})
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, watcher.Close()) }()
	}
	err = svc.Start(ctx, st)
	if ctx.Err() != nil { // asked to stop already: nothing has failed
		log.Info("stopped before serving")
		return nil
	}
	if err != nil {
		return fmt.Errorf("build the trees of what was pushed: %w", err)
	}

	server := newServer(api.New(api.Options{
		Service: svc, Logger: log, OpenAPI: lbd.OpenAPI, Dashboard: web.Files(),
	}), log)
	addresses := make([]string, len(listeners))
	group, failed := errgroup.WithContext(ctx)
	for i, l := range listeners {
		addresses[i] = printable(l)
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", printable(l), err)
			}
			return nil
		})
	}
	log.Info("serving", "addresses", addresses, "version", buildVersion(), "data", c.Data, "resources", st.Snapshot().Len())
	ready(addresses)
	notify(log, daemon.SdNotifyReady)

	<-failed.Done()
	notify(log, daemon.SdNotifyStopping)
	log.Info("draining", "timeout", c.DrainTimeout)
	shutdown(server, svc, c.DrainTimeout)
	err = group.Wait()
	log.Info("stopped")
	return err
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
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

// listenAll returns systemd's sockets, where it passes any, else listens on each
// address. An address that was asked for and is not among the sockets is told of
// in the log.
func listenAll(ctx context.Context, addresses []string, log *slog.Logger) ([]net.Listener, error) {
	listeners, err := activated()
	if err != nil {
		return nil, err
	}
	if len(listeners) > 0 {
		if unheard := replaced(addresses, listeners); len(unheard) > 0 {
			log.Warn("the sockets that systemd passes take the place of --listen", "not_listening", unheard)
		}
		return listeners, nil
	}
	for _, a := range addresses {
		l, err := listen(ctx, a)
		if err != nil {
			closeAll(listeners)
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // the server may have closed it
	}
}
