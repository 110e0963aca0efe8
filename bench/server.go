package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/process"
)

// buildDaemon builds lbd and returns the path of the binary.
func buildDaemon(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "lbd")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/lbd-dev/lbd/cmd/lbd") //nolint:gosec // a fixed command
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lbd (run bench in its module, or use -lbd): %w: %s", err, out)
	}
	return path, nil
}

// server is a program that listens.
type server struct {
	*process.Process

	at peer.Listen
}

func (s *server) target() load.Target {
	return load.Target{Network: s.at.Network, Address: s.at.Address}
}

// startTimeout is how long a program may take until it listens.
const startTimeout = time.Minute

// listenAt returns an address at which a server can listen.
func (b *bench) listenAt(ctx context.Context, network string) (peer.Listen, error) {
	if network == "unix" {
		dir, err := os.MkdirTemp(b.dir, "s")
		return peer.Listen{Network: network, Address: filepath.Join(dir, "socket")}, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return peer.Listen{}, err
	}
	return peer.Listen{Network: network, Address: l.Addr().String()}, l.Close()
}

// serve starts a program at a new address, and waits until it listens. The program ends with
// r.
func (b *bench) serve(ctx context.Context, r *running, network string, command func(dir string, at peer.Listen) ([]string, error)) (*server, error) {
	at, err := b.listenAt(ctx, network)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "server")
	if err != nil {
		return nil, err
	}
	args, err := command(dir, at)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	r.onStop(p.Stop)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return &server{p, at}, p.AwaitListen(ctx, at.Network, at.Address)
}

// serveRole starts this program in the role of a server.
func (b *bench) serveRole(ctx context.Context, r *running, role, network string) (*server, error) {
	return b.serve(ctx, r, network, func(_ string, at peer.Listen) ([]string, error) {
		return []string{b.executable, roleFlag + role, at.Network, at.Address}, nil
	})
}

// daemon is a running lbd.
type daemon struct {
	*server

	client *http.Client
}

// startDaemon starts lbd with connect mode none, so that endpoints need no upstream. data is
// its data directory; if empty, it stores nothing.
func (b *bench) startDaemon(ctx context.Context, r *running, network, data string, args ...string) (*daemon, error) {
	s, err := b.serve(ctx, r, network, func(_ string, at peer.Listen) ([]string, error) {
		address := at.Address
		if at.Network == "unix" {
			address = "unix:" + address
		}
		return append([]string{b.lbd, "serve", "--listen=" + address, "--data=" + data, "--connect=none", "--log-level=error", "--caller-share=1"}, args...), nil
	})
	if err != nil {
		return nil, err
	}
	client := newClient(s.at)
	r.onStop(client.CloseIdleConnections)
	return &daemon{s, client}, nil
}

// startOrders starts lbd with a cluster to pick from.
func (b *bench) startOrders(ctx context.Context, r *running, network string, localities, each int, args ...string) (*daemon, error) {
	d, err := b.startDaemon(ctx, r, network, "", args...)
	if err != nil {
		return nil, err
	}
	endpoints, err := proto.Marshal(peer.Assignment(localities, each))
	if err != nil {
		return nil, err
	}
	config, err := proto.Marshal(peer.ClusterResource())
	if err != nil {
		return nil, err
	}
	return d, errors.Join(d.put(ctx, "config", config), d.put(ctx, "endpoints", endpoints))
}

// put pushes a resource of the cluster.
func (d *daemon) put(ctx context.Context, kind string, body []byte) error {
	_, err := d.call(ctx, http.MethodPut, "/v1/clusters/"+peer.Cluster+"/"+kind, body)
	return err
}

// call sends a request and returns the body of a successful response.
func (d *daemon) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return d.callAs(ctx, "application/x-protobuf", method, path, body)
}

// callAs is call for a body of a media type.
func (d *daemon) callAs(ctx context.Context, mediaType, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", mediaType)
	}
	response, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode > 299 {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, text)
	}
	return text, nil
}

// worker starts this program in the role of a worker, which ends with r.
func (b *bench) worker(r *running, role string, args ...string) (*process.Worker, error) {
	w, err := process.StartWorker(b.executable, append([]string{roleFlag + role}, args...)...)
	if err != nil {
		return nil, err
	}
	r.onStop(w.Stop)
	return w, nil
}

// generator is a load generator in a process of its own.
type generator struct{ *process.Worker }

func (b *bench) generator(r *running) (generator, error) {
	w, err := b.worker(r, roleLoad)
	return generator{w}, err
}

func (g generator) run(s load.Spec) (load.Result, error) {
	var result load.Result
	err := g.Do(s, &result)
	return result, err
}
