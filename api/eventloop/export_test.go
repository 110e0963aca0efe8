package eventloop

import (
	"context"
	"net/http"
	"time"
)

// NewBenchmark returns a function that serves one request of a peer, and returns the response.
func NewBenchmark(ctx context.Context, route func(string) http.Handler) func([]byte, time.Time) []byte {
	w := newWorker(Routes{Route: route, Leaving: func() bool { return false }})
	p := newPeer(w.context(ctx), "127.0.0.1:1234")
	return func(b []byte, now time.Time) []byte {
		w.response.out = w.response.out[:0]
		if _, v := w.serve(&p, b, now); v != served {
			return nil
		}
		return w.response.out
	}
}
