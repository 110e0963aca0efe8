// Package demo runs HTTP upstreams in three localities and two priorities, and callers that
// pick an endpoint, call it, and end most of their leases. One upstream stops and starts. The
// package uses lbd only through the HTTP API.
package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// cluster is the name of the cluster.
	cluster = "demo"
	// comesAndGoes is the time after which one upstream stops or starts.
	comesAndGoes = 15 * time.Second
)

// Options configure the demo.
type Options struct {
	// Daemons are called by turns. More than one share their store.
	Daemons []Daemon
	// Control serves the control API. Play closes it.
	Control net.Listener
	// In has keys, one per line. Out gets the instructions and messages.
	In  io.Reader
	Out io.Writer
}

// Daemon is how to call one lbd.
type Daemon struct {
	Client *http.Client
	URL    string
}

type world struct {
	Options
	upstreams []*upstream

	mu      sync.Mutex   // guards stopped, and starts and stops of upstreams
	stopped map[int]bool // by priority
}

var zones = []zone{
	{region: "us-east1", name: "a", priority: 0, weight: 3},
	{region: "us-east1", name: "b", priority: 0, weight: 1},
	{region: "us-west1", name: "a", priority: 1, weight: 1},
}

const upstreamsPerZone = 2

// Play starts the upstreams, pushes the cluster, and runs until ctx ends.
func Play(ctx context.Context, o Options) error {
	w := &world{Options: o, stopped: make(map[int]bool)}
	defer w.close()
	for _, z := range zones {
		for i := range upstreamsPerZone {
			u := &upstream{name: fmt.Sprintf("%s-%s-%d", z.region, z.name, i), zone: z, address: "127.0.0.1:0"}
			if err := u.start(ctx); err != nil {
				return err
			}
			w.upstreams = append(w.upstreams, u)
		}
	}
	if err := w.push(ctx); err != nil {
		return err
	}
	w.welcome()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.serveControl(ctx) })
	group.Go(func() error { return w.comeAndGo(ctx) })
	for range callers {
		group.Go(func() error { return w.call(ctx) })
	}
	go w.keys(ctx) // blocks on standard input until the process ends
	return group.Wait()
}

func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range w.upstreams {
		u.stop()
	}
}

func (w *world) welcome() {
	_, control, _ := net.SplitHostPort(w.Control.Addr().String())
	fmt.Fprintf(w.Out, `
The demo runs at %[1]s. Cluster %[2]q has HTTP upstreams in three localities and two priorities,
drops 5 %% of the picks, and admits at most %[4]d requests in flight. A client picks with leases, and one
upstream stops or starts every %[5]v. Try in another shell:

  curl -s '%[1]s/pick?cluster=%[2]s'                     a pick
  curl -s '%[1]s/pick?cluster=%[2]s&explain=true'        a pick with every step of the decision
  curl -s '%[1]s/v1/clusters/%[2]s'                      the state
  curl -s '%[1]s/metrics' | grep ^lbd_                   the metrics
  curl -s -X POST 'localhost:%[3]s/stop?priority=0'      stop the upstreams of priority 0: picks move to 1
  curl -s -X POST 'localhost:%[3]s/start?priority=0'     start them again: picks return

Keys (then Enter): 0 or 1 stops or starts that priority's upstreams. Ctrl-C ends the demo.

`, w.Daemons[0].URL, cluster, control, maxRequests, comesAndGoes)
	if len(w.Daemons) == 1 {
		return
	}
	fmt.Fprint(w.Out, "These daemons share an etcd, and the limit of the cluster. A push to one is used by all:\n\n")
	for _, d := range w.Daemons {
		fmt.Fprintf(w.Out, "  %s/#/fleet\n", d.URL)
	}
	fmt.Fprintln(w.Out)
}

// comeAndGo stops and starts the last upstream of priority 0, unless its
// priority is stopped.
func (w *world) comeAndGo(ctx context.Context) error {
	u := w.upstreams[2*upstreamsPerZone-1]
	tick := time.NewTicker(comesAndGoes)
	defer tick.Stop()
	for up := false; ; up = !up {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.turn(ctx, u, up); err != nil {
			fmt.Fprintln(w.Out, err) // its port is in use: the next turn retries
		}
	}
}

func (w *world) turn(ctx context.Context, u *upstream, up bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped[u.zone.priority] {
		return nil
	}
	return u.set(ctx, up)
}

// set stops or starts the upstreams of a priority.
func (w *world) set(ctx context.Context, priority int, up bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped[priority] = !up
	for _, u := range w.upstreams {
		if u.zone.priority != priority {
			continue
		}
		if err := u.set(ctx, up); err != nil {
			return err
		}
	}
	return nil
}

// up reports whether a priority is not stopped.
func (w *world) up(priority int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.stopped[priority]
}

// keys stops or starts the priority of each typed key.
func (w *world) keys(ctx context.Context) {
	lines := bufio.NewScanner(w.In)
	for lines.Scan() && ctx.Err() == nil {
		priority := slices.Index([]string{"0", "1"}, strings.TrimSpace(lines.Text()))
		if priority < 0 {
			continue
		}
		up := !w.up(priority)
		if err := w.set(ctx, priority, up); err != nil {
			fmt.Fprintln(w.Out, err)
		}
		fmt.Fprintln(w.Out, describe(priority, up))
	}
}

func describe(priority int, up bool) string {
	if up {
		return fmt.Sprintf("the upstreams of priority %d run", priority)
	}
	return fmt.Sprintf("the upstreams of priority %d are stopped", priority)
}

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
			fmt.Fprintln(w.Out, describe(priority, up))
			_, _ = fmt.Fprintln(rw, describe(priority, up))
		})
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(w.Control); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the control API of the demo: %w", err)
	}
	return nil
}

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
