package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

// WithEtcd calls f with the address of an etcd that begins empty, is only on loopback, and ends with f.
func WithEtcd(ctx context.Context, f func(ctx context.Context, address string) error) (err error) {
	dir, err := os.MkdirTemp("", "lbd-demo-")
	if err != nil {
		return fmt.Errorf("the demo's etcd: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs, c.UnsafeNoFsync = dir, "panic", []string{os.DevNull}, true
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.ListenPeerUrls = loopback, loopback
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start the demo's etcd: %w", err)
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-ctx.Done():
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- f(ctx, e.Clients[0].Addr().String()) }()
	select {
	case err := <-ended:
		return err
	case err := <-e.Err():
		stop(err)
		return errors.Join(fmt.Errorf("the demo's etcd ended: %w", err), <-ended)
	}
}
