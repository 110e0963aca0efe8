package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// upstream is an HTTP server that can be stopped and restarted on the same port, by one goroutine at
// a time.
type upstream struct {
	name    string
	zone    zone
	address string
	server  *http.Server // nil while stopped
	serving sync.WaitGroup
}

type zone struct {
	region, name string
	priority     int
	weight       int
}

// set starts or stops the upstream.
func (u *upstream) set(ctx context.Context, up bool) error {
	if up {
		return u.start(ctx)
	}
	u.stop()
	return nil
}

// start starts the upstream if it is stopped.
func (u *upstream) start(ctx context.Context) error {
	if u.server != nil {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.address)
	if err != nil {
		return fmt.Errorf("start upstream %s: %w", u.name, err)
	}
	u.address = l.Addr().String()
	server := &http.Server{Handler: u, ReadHeaderTimeout: 5 * time.Second}
	u.server = server
	u.serving.Go(func() { _ = server.Serve(l) }) // ends when the upstream is stopped
	return nil
}

// stop closes the listener and every connection.
func (u *upstream) stop() {
	if u.server == nil {
		return
	}
	_ = u.server.Close()
	u.serving.Wait()
	u.server = nil
}

// ServeHTTP responds after 20 to 80 ms.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond):
	case <-r.Context().Done():
		return
	}
	_, _ = fmt.Fprintf(w, "hello from %s in %s/%s\n", u.name, u.zone.region, u.zone.name)
}
