package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/go-chi/chi/v5"
	"github.com/valyala/fasthttp"
)

// Body is a pick as lbd answers it, which the constant servers answer.
const Body = `{"cluster":"orders","address":"127.0.0.1:8080","locality":{"region":"region","zone":"zone-0","sub_zone":""},"priority":0,"generation":1795348573647}`

// Size of the body of a request to a constant server with the parameter size.
const sizeParameter = "size"

func bodies() func(size string) []byte {
	constant := []byte(Body)
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = Body[i%len(Body)]
	}
	return func(size string) []byte {
		if n, err := strconv.Atoi(size); err == nil && n >= 0 && n <= len(large) {
			return large[:n]
		}
		return constant
	}
}

// ServeBare serves with net/http and chi: a query, a counter and a constant body.
func ServeBare(network, address string) error {
	body := bodies()
	var count atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		query := r.URL.Query()
		if query.Get("cluster") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body(query.Get(sizeParameter))) // the client may be gone
	}
	router := chi.NewRouter()
	router.Get("/pick", answer)
	router.Post("/pick", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
		answer(w, r)
	})
	server := &http.Server{Handler: router} //nolint:gosec // loopback, and no timeouts to compare with
	return serve(network, address, server.Serve)
}

// ServeFast serves with fasthttp: a query, a counter and a constant body.
func ServeFast(network, address string) error {
	body := bodies()
	var count atomic.Int64
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		count.Add(1)
		query := ctx.QueryArgs()
		if len(query.Peek("cluster")) == 0 {
			ctx.SetStatusCode(fasthttp.StatusBadRequest)
			return
		}
		ctx.SetContentType("application/json")
		ctx.SetBody(body(string(query.Peek(sizeParameter))))
	}}
	return serve(network, address, server.Serve)
}

// serve listens until a SIGTERM.
func serve(network, address string, serve func(net.Listener) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	go func() {
		<-ctx.Done()
		_ = l.Close() // ends serve
	}()
	if err := serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
