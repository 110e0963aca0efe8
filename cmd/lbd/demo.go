package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/cmd/lbd/demo"
)

type demoCommand struct {
	Config
	Control string `help:"Address of the HTTP API that stops and starts the demo's upstreams (default ${default})" default:"127.0.0.1:8081" env:"LBD_DEMO_CONTROL" placeholder:"ADDRESS"`
}

// Run runs the daemon and the demo.
func (c *demoCommand) Run(ctx context.Context) error {
	control, err := listenOn(ctx, listen.Spec{Address: c.Control, Mode: listen.DefaultMode})
	if err != nil {
		return fmt.Errorf("the demo's control: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving := make(chan []string, 1)
	group.Go(func() error {
		defer stop()
		return serve(ctx, c.Config, func(addresses []string) { serving <- addresses })
	})
	group.Go(func() error {
		defer control.Close()
		select {
		case <-ctx.Done():
			return nil
		case addresses := <-serving:
			client, _, host := dialFor(listen.Spec{Address: addresses[0]})
			return demo.Play(ctx, demo.Options{
				Client: client, URL: "http://" + host, Control: control, In: os.Stdin, Out: os.Stdout,
			})
		}
	})
	return group.Wait()
}
