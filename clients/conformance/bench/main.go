// Command bench measures what each client adds to a request, compared with a request
// without it, and with one through nginx, in one run.
//
// The runner of a client sends requests one after another from one thread, with the same
// HTTP library and connections that stay open: to an upstream (direct), through nginx to
// it, and with the client of lbd in the modes batch and pick, with lbd on a unix socket.
// These take turns, round after round, so that a change of the machine's speed affects
// all of them. Figures are the median of the rounds, and its 95 % confidence interval.
//
// make bench-clients runs it. It uses loopback addresses only.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

const cluster = "bench"

var adapters = []string{
	"core", "core-async", "requests", "httpx", "httpx-async", "guzzle", "psr18", "undici", "fetch", "faraday", "okhttp",
}

func main() {
	lbd := flag.String("lbd", "bin/lbd", "path of lbd")
	nginx := flag.String("nginx", "nginx", "path of nginx")
	clients := flag.String("clients", "clients", "directory of the clients")
	only := flag.String("only", "", "clients to measure, separated by spaces (default all with a runner)")
	rounds := flag.Int("rounds", 15, "rounds of each adapter")
	seconds := flag.Float64("seconds", 0.15, "approximate time of each way in a round, in seconds")
	warmup := flag.Duration("warmup", 4*time.Second, "time for which each way is used before the first round, for compilers such as Java's")
	flag.Parse()
	b := bench{lbd: *lbd, nginx: *nginx, rounds: *rounds, seconds: *seconds, warmup: *warmup}
	if err := b.run(*clients, strings.Fields(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	lbd, nginx string
	rounds     int
	seconds    float64
	warmup     time.Duration

	daemon   *stand.Daemon
	upstream *stand.Upstream
	proxy    *stand.Nginx
}

func (b *bench) run(folder string, only []string) (err error) {
	dir, err := os.MkdirTemp("", "lbd")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := stand.WriteCredentials(dir); err != nil {
		return err
	}
	if b.upstream, err = stand.NewUpstream(new(stand.Meter), "ok"); err != nil {
		return err
	}
	defer b.upstream.Close()
	if b.proxy, err = stand.StartNginx(b.nginx, dir, "", b.upstream.Address); err != nil {
		return err
	}
	defer b.proxy.Stop()
	b.daemon = stand.NewDaemon(b.lbd, dir)
	if err := b.daemon.Start(); err != nil {
		return err
	}
	defer b.daemon.Stop(syscall.SIGTERM)
	if err := b.daemon.Push(cluster, b.upstream.Address); err != nil {
		return err
	}
	if len(only) == 0 {
		runners, err := filepath.Glob(filepath.Join(folder, "*", "conformance", "run"))
		if err != nil {
			return err
		}
		for _, path := range runners {
			only = append(only, filepath.Base(filepath.Dir(filepath.Dir(path))))
		}
	}
	fmt.Printf("%s\n\n%s", machine(b.proxy.Version), head)
	for _, name := range only {
		for _, adapter := range adapters {
			if err := b.measure(filepath.Join(folder, name), name, adapter); err != nil {
				return fmt.Errorf("%s, %s: %w", name, adapter, err)
			}
		}
	}
	return nil
}

// way is one way to send requests.
type way struct {
	name   string
	runner *stand.Runner
	load   stand.Command
	micros []float64 // for each request, by round
	sent   int
	conns  int64 // that the upstream accepted meanwhile
}

// errUnsupported is the answer of a runner that does not have the mode or the adapter.
var errUnsupported = errors.New("unsupported")

func do(r *stand.Runner, c stand.Command) (stand.Answer, error) {
	a, err := r.Do(c, 30*time.Second)
	if err == nil && a.Unsupported != "" {
		err = errUnsupported
	}
	return a, err
}

// once sends n requests, and returns the microseconds of each.
func (w *way) once(n int) (float64, error) {
	c := w.load
	c.Do, c.N, c.Threads, c.Method, c.Timeout = "load", n, 1, "GET", 10
	a, err := do(w.runner, c)
	if err != nil {
		return 0, err
	}
	if a.Statuses["200"] != n {
		return 0, fmt.Errorf("%s: not all of %d requests succeeded: %v %v", w.name, n, a.Statuses, a.Errors)
	}
	return a.Seconds / float64(n) * 1e6, nil
}

// ways starts runners, one for each mode of the client.
func (b *bench) ways(folder, adapter string) (all []*way, stop func(), err error) {
	var runners []*stand.Runner
	stop = func() {
		for _, r := range runners {
			r.Kill()
		}
	}
	for _, mode := range []string{"batch", "pick"} {
		r, err := stand.StartRunner(folder)
		if err != nil {
			return nil, stop, err
		}
		runners = append(runners, r)
		_, err = do(r, stand.Command{Do: "open", LBD: "unix:" + b.daemon.Socket, Cluster: cluster, Mode: mode, Adapter: adapter})
		if errors.Is(err, errUnsupported) {
			continue
		}
		if err != nil {
			return nil, stop, err
		}
		if all == nil {
			all = append(all, &way{name: "direct", runner: r, load: stand.Command{URL: "http://" + b.upstream.Address + "/"}},
				&way{name: "nginx", runner: r, load: stand.Command{URL: "http://" + b.proxy.Address + "/"}})
		}
		all = append(all, &way{name: mode, runner: r, load: stand.Command{Path: "/"}})
	}
	return all, stop, nil
}

// measure measures one adapter, and prints its line; nothing if the client does not have it.
func (b *bench) measure(folder, name, adapter string) error {
	ways, stop, err := b.ways(folder, adapter)
	defer stop()
	if err != nil || ways == nil {
		return err
	}
	n := make([]int, len(ways))
	for i, w := range ways { // warms up, and finds out how many requests take the time of a round
		n[i] = 10
		for end := time.Now().Add(b.warmup); time.Now().Before(end); {
			micros, err := w.once(n[i])
			if err != nil {
				return err
			}
			n[i] = max(5, int(b.seconds*1e6/micros))
		}
	}
	for round := range b.rounds {
		for i := range ways {
			at := (i + round) % len(ways)
			before := b.upstream.Conns.Load()
			micros, err := ways[at].once(n[at])
			if err != nil {
				return err
			}
			ways[at].micros = append(ways[at].micros, micros)
			ways[at].sent += n[at]
			ways[at].conns += b.upstream.Conns.Load() - before
		}
	}
	fmt.Print(line(name, adapter, ways))
	return nil
}
