// Command control-plane shows lbd behind a management server: a real one, of
// go-control-plane, with little HTTP upstreams and an lbd that follows it.
//
//	go run ./examples/control-plane
//
// It starts all three, prints what to try, and ends them with Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "control-plane: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	xds, admin, lbd string
	noDaemon        bool
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.xds, "xds", "127.0.0.1:18000", "where the management server listens")
	flag.StringVar(&o.admin, "admin", "127.0.0.1:18001", "where it takes orders")
	flag.StringVar(&o.lbd, "lbd", "127.0.0.1:8080", "where lbd listens")
	flag.BoolVar(&o.noDaemon, "no-daemon", false, "start no lbd: you do")
	flag.Parse()

	dir, err := os.MkdirTemp("", "lbd-control-plane-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is the system's to clear away
	bootstrap := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(bootstrap, fmt.Appendf(nil, bootstrapText, o.xds), 0o600); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	world, err := newWorld(ctx, group)
	if err != nil {
		return err
	}
	server := newServer(o.xds)
	if err := server.set(ctx, world); err != nil {
		return err
	}
	if err := server.start(ctx); err != nil {
		return err
	}
	defer server.stop()

	admin := &http.Server{Addr: o.admin, Handler: orders(ctx, server, world), ReadHeaderTimeout: time.Second}
	group.Go(func() error { return serve(ctx, admin) })
	fmt.Printf(greeting, o.xds, o.admin, bootstrap, o.lbd)
	if !o.noDaemon {
		group.Go(func() error { return daemon(ctx, o.lbd, bootstrap, filepath.Join(dir, "data")) })
	}
	return group.Wait()
}

const bootstrapText = `{
  "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}],
  "node": {"id": "lbd-example", "locality": {"region": "us-east1", "zone": "a"}}
}
`

const greeting = `management server %[1]s, its orders %[2]s
bootstrap file    %[3]s

Try, in another shell:

  curl 'http://%[4]s/pick?target=shop&path=/cart/items'     the target's routes choose the cluster
  curl 'http://%[4]s/pick?target=shop&path=/'               orders, or one time in ten orders-canary
  curl 'http://%[4]s/pick?cluster=orders'                   a cluster on demand
  curl  http://%[4]s/v1/xds                                 what was asked for, and what came

  curl -X POST 'http://%[2]s/canary?weight=50'              change the routes
  curl -X POST  http://%[2]s/bad                            send a Cluster that breaks a rule: see the NACK here and in /v1/xds
  curl -X POST  http://%[2]s/good                           take it back
  curl -X POST  http://%[2]s/delete                         delete the Cluster cart: its picks go on, see /v1/xds
  curl -X POST  http://%[2]s/restore                        send it again
  curl -X POST  http://%[2]s/stop                           the management server goes away: picks go on, marked stale
  curl -X POST  http://%[2]s/start                          and comes back
  curl          http://%[2]s/loads                          what lbd has reported of its picks

`

var errStopped = errors.New("see what it wrote above")

// daemon runs lbd, as a user would, until ctx ends.
func daemon(ctx context.Context, listen, bootstrap, data string) error {
	c := exec.CommandContext(ctx, "go", "run", "./cmd/lbd", "serve", //nolint:gosec // the arguments are this program's own
		"--listen", listen, "--bootstrap", bootstrap, "--target", "shop", "--data", data)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	if err := c.Run(); ctx.Err() == nil { // nobody has asked it to stop
		return fmt.Errorf("lbd stopped by itself: %w", errors.Join(err, errStopped))
	}
	return nil
}

// serve serves until ctx ends.
func serve(ctx context.Context, s *http.Server) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
