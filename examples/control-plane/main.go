// Command control-plane runs a management server on go-control-plane, local HTTP
// upstreams, and an lbd that follows the server.
//
//	go run ./examples/control-plane
//
// It prints commands to try, and ends all three with Ctrl-C.
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
	flag.StringVar(&o.xds, "xds", "127.0.0.1:18000", "address of the management server")
	flag.StringVar(&o.admin, "admin", "127.0.0.1:18001", "address of its control API")
	flag.StringVar(&o.lbd, "lbd", "127.0.0.1:8080", "address of lbd")
	flag.BoolVar(&o.noDaemon, "no-daemon", false, "do not start lbd")
	flag.Parse()

	dir, err := os.MkdirTemp("", "lbd-control-plane-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system deletes what is left
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

const greeting = `management server %[1]s, control API %[2]s
bootstrap file    %[3]s

Try, in another shell:

  curl 'http://%[4]s/pick?target=shop&path=/cart/items'     the target's routes choose the cluster
  curl 'http://%[4]s/pick?target=shop&path=/'               orders, or one time in ten orders-canary
  curl 'http://%[4]s/pick?cluster=orders'                   a cluster on demand
  curl  http://%[4]s/v1/xds                                 requested resources and their states

  curl -X POST 'http://%[2]s/canary?weight=50'              change the routes
  curl -X POST  http://%[2]s/bad                            send a Cluster that breaks a rule: see the NACK here and in /v1/xds
  curl -X POST  http://%[2]s/good                           send a valid one again
  curl -X POST  http://%[2]s/delete                         delete the Cluster cart: its picks continue, see /v1/xds
  curl -X POST  http://%[2]s/restore                        send it again
  curl -X POST  http://%[2]s/stop                           stop the management server: picks continue, marked stale
  curl -X POST  http://%[2]s/start                          start it again
  curl          http://%[2]s/loads                          the load reports of lbd

`

var errStopped = errors.New("see its output above")

// daemon runs lbd as a process until ctx ends.
func daemon(ctx context.Context, listen, bootstrap, data string) error {
	c := exec.CommandContext(ctx, "go", "run", "./cmd/lbd", "serve", //nolint:gosec // the arguments are this program's own
		"--listen", listen, "--bootstrap", bootstrap, "--target", "shop", "--data", data)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	if err := c.Run(); ctx.Err() == nil { // it was not asked to stop
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
