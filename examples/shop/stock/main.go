// Stock knows how many pieces of each product are there. It is an upstream like any other: nothing in it knows of lbd.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

var pieces = map[string]int{"tea": 120, "coffee": 7, "cup": 64, "kettle": 0}

func main() {
	instance := os.Getenv("INSTANCE")
	var broken atomic.Bool

	mux := http.NewServeMux()
	mux.HandleFunc("GET /stock/{product}", func(w http.ResponseWriter, r *http.Request) {
		n, known := pieces[r.PathValue("product")]
		switch {
		case broken.Load():
			http.Error(w, instance+" is broken", http.StatusServiceUnavailable)
		case !known:
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"pieces": n, "instance": instance})
		}
	})
	mux.HandleFunc("POST /break", func(w http.ResponseWriter, _ *http.Request) {
		broken.Store(true)
		fmt.Fprintf(w, "%s answers 503 from now on\n", instance)
	})
	mux.HandleFunc("POST /repair", func(w http.ResponseWriter, _ *http.Request) {
		broken.Store(false)
		fmt.Fprintf(w, "%s works again\n", instance)
	})

	server := http.Server{
		Addr:              "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "9101"),
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
	}
	fmt.Fprintln(os.Stderr, "stock:", server.ListenAndServe())
	os.Exit(1)
}
