package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// serveControl serves POST /stop?priority=N and POST /start?priority=N.
func (w *world) serveControl(ctx context.Context) error {
	mux := http.NewServeMux()
	for path, up := range map[string]bool{"/stop": false, "/start": true} {
		mux.HandleFunc("POST "+path, func(rw http.ResponseWriter, r *http.Request) {
			priority, err := strconv.Atoi(r.URL.Query().Get("priority"))
			if err != nil || priority < 0 || priority > 1 {
				http.Error(rw, "priority must be 0 or 1", http.StatusBadRequest)
				return
			}
			// The upstreams outlive the request.
			if err := w.set(context.WithoutCancel(r.Context()), priority, up); err != nil {
				http.Error(rw, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprintln(w.Out, said(priority, up))
			_, _ = fmt.Fprintln(rw, said(priority, up))
		})
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(w.Control); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the control API of the demo: %w", err)
	}
	return nil
}
