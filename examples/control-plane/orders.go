package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// orders is the control API of the management server. A server that it starts
// serves until ctx ends.
func orders(ctx context.Context, s *server, w *world) http.Handler {
	mux := http.NewServeMux()
	change := func(pattern string, change func(*http.Request) error) {
		mux.HandleFunc(pattern, func(out http.ResponseWriter, r *http.Request) {
			if err := change(r); err != nil {
				http.Error(out, err.Error(), http.StatusBadRequest)
				return
			}
			fmt.Fprintln(out, "done")
		})
	}
	change("POST /canary", func(r *http.Request) error {
		weight, err := strconv.ParseUint(r.FormValue("weight"), 10, 32)
		if err != nil || weight > 100 {
			return fmt.Errorf("weight is %q, and should be from 0 to 100", r.FormValue("weight"))
		}
		w.mu.Lock()
		w.canary = uint32(weight)
		w.mu.Unlock()
		return s.set(r.Context(), w)
	})
	set := func(flag *bool, to bool) func(*http.Request) error {
		return func(r *http.Request) error {
			w.mu.Lock()
			*flag = to
			w.mu.Unlock()
			return s.set(r.Context(), w)
		}
	}
	change("POST /bad", set(&w.bad, true))
	change("POST /good", set(&w.bad, false))
	change("POST /delete", set(&w.deleted, true))
	change("POST /restore", set(&w.deleted, false))
	change("POST /stop", func(*http.Request) error { s.stop(); return nil })
	change("POST /start", func(*http.Request) error { return s.start(ctx) })
	mux.HandleFunc("GET /loads", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(s.loads.read()) // the client has disconnected
	})
	return mux
}
