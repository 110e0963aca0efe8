package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// server returns the server of a listener of callers.
func (p *proxy) server(r route) *http.Server {
	s := &http.Server{
		Handler:           p.handler(r),
		ReadHeaderTimeout: p.headerTimeout,
		IdleTimeout:       p.idleTimeout,
		MaxHeaderBytes:    p.maxHeader,
		Protocols:         new(http.Protocols),
		HTTP2:             p.pings(),
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ConnState:         p.count,

		DisableGeneralOptionsHandler: true, // OPTIONS * is for the endpoint
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// count counts the connections of callers. It closes those that are too many.
func (p *proxy) count(conn net.Conn, state http.ConnState) {
	switch state { //nolint:exhaustive // the others change nothing
	case http.StateNew:
		if p.metrics.connections.Add(1) > p.maxConnections {
			p.metrics.refused.Add(1)
			p.warn("connection refused: too many are open, see --max-connections")
			_ = conn.Close()
		}
	case http.StateHijacked, http.StateClosed:
		p.metrics.connections.Add(-1)
	}
}

// opened is a server with its listener.
type opened struct {
	*http.Server

	listener net.Listener
}

// open opens all listeners.
func (p *proxy) open() (err error) {
	if p.tlsCert != "" {
		p.certificate = &certificate{chain: p.tlsCert, key: p.tlsKey, log: p.log}
		if err := p.certificate.open(); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	}
	one := func(address, what string, s *http.Server) *opened {
		l, listenErr := listen(address, p.socketMode)
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("listen: %w", listenErr))
			return nil
		}
		p.log.Info("listening", "address", l.Addr().String(), "for", what)
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			p.log.Warn("all machines that reach this address may send requests", "address", l.Addr().String(), "for", what)
		}
		return &opened{s, l}
	}
	add := func(address, what string, r route) {
		s := p.server(r)
		if o := one(address, what, s); o != nil {
			if p.certificate != nil {
				current := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate.current.Load(), nil }
				s.TLSConfig = &tls.Config{GetCertificate: current, MinVersion: tls.VersionTLS12}
			}
			p.callers = append(p.callers, o)
		}
	}
	for _, address := range p.listen {
		if address != "none" {
			add(address, "clusters by their names", route{})
		}
	}
	for address, r := range p.routes {
		add(address, r.scheme+" to cluster "+r.cluster, r)
	}
	if p.admin != "none" {
		p.administrator = one(p.admin, "/metrics and /healthz", &http.Server{
			Handler:      p.administration(),
			ReadTimeout:  p.headerTimeout,
			WriteTimeout: p.stallTimeout,
			IdleTimeout:  p.idleTimeout,
			ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		})
	}
	if err != nil {
		for _, o := range p.callers {
			o.listener.Close()
		}
		if p.administrator != nil {
			p.administrator.listener.Close()
		}
	}
	return err
}

func (p *proxy) administration() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var text bytes.Buffer
		p.metrics.write(&text, p.client.RetryTokens)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = text.WriteTo(w) // not with the locks of metrics
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if p.closing.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// serve serves callers until ctx is done, and lets their requests come to an end.
func (p *proxy) serve(ctx context.Context) (err error) {
	defer p.client.Close()
	defer p.stop()
	failed := make(chan error, len(p.callers)+1)
	start := func(o *opened) {
		if o.TLSConfig != nil {
			failed <- o.ServeTLS(o.listener, "", "")
			return
		}
		failed <- o.Serve(o.listener)
	}
	if p.administrator != nil {
		go start(p.administrator)
		defer func() { _ = p.administrator.Close() }()
	}
	for _, o := range p.callers {
		go start(o)
	}
	if p.certificate != nil {
		go p.certificate.follow(p.stopped)
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	p.closing.Store(true)
	p.log.Info("shutting down", "in_flight", p.metrics.inFlight.Load(), "tunnels", p.metrics.tunnels.Load())
	if err == nil {
		time.Sleep(p.drainDelay)
	}
	p.drain()
	return err
}

// drain ends the servers when their requests and tunnels have ended. After drainTimeout, it ends these, and gives them
// a second for that.
func (p *proxy) drain() {
	p.shutdown(p.drainTimeout)
	p.stop()
	p.shutdown(time.Second)
	for _, o := range p.callers {
		_ = o.Close()
	}
}

// shutdown waits until no request and no tunnel is left.
func (p *proxy) shutdown(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var ending sync.WaitGroup
	for _, o := range p.callers {
		ending.Go(func() { _ = o.Shutdown(ctx) }) // what is left then is ended
	}
	ending.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p.metrics.tunnels.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
