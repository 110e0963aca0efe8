package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/cmd/lbd/demo"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

type demoCommand struct {
	Config
	Control  string `help:"Address of the HTTP API that stops and starts the demo's upstreams (default ${default})" default:"127.0.0.1:8081" env:"LBD_DEMO_CONTROL" placeholder:"ADDRESS"`
	Replicas int    `help:"Number of daemons, 1 to 5; more than one share the etcd of the store, or else one that the demo starts (default ${default})" default:"1" env:"LBD_DEMO_REPLICAS" placeholder:"N"`
}

// maxReplicas is the maximum of --replicas.
const maxReplicas = 5

// Validate checks what kong does not check. kong calls it.
func (c *demoCommand) Validate() error {
	switch {
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return fmt.Errorf("--replicas must be from 1 to %d", maxReplicas)
	case c.Replicas > 1 && c.Data != "":
		return errors.New("--replicas share an etcd, and store nothing else: leave out --data")
	}
	return c.Config.Validate()
}

// Run runs the daemons and the demo.
func (c *demoCommand) Run(ctx context.Context) error {
	configs, err := c.replicas()
	if err != nil {
		return err
	}
	if c.Replicas == 1 || c.Store != "" {
		return c.play(ctx, configs)
	}
	return demo.WithEtcd(ctx, func(ctx context.Context, address string) error {
		for i := range configs {
			configs[i].Store = "etcd://" + address + "/demo"
		}
		return c.play(ctx, configs)
	})
}

// replicas returns the configs of daemons that share a store. The first one has the addresses of
// --listen.
func (c *demoCommand) replicas() ([]Config, error) {
	if c.Replicas == 1 {
		return []Config{c.Config}, nil
	}
	host, port, err := net.SplitHostPort(c.Control)
	if err != nil {
		return nil, fmt.Errorf("--control: %w", err)
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("--control: %q is not a port", port)
	}
	configs := make([]Config, c.Replicas)
	for i := range configs {
		configs[i] = c.Config
		configs[i].Name, configs[i].Zone = fmt.Sprintf("demo-%d", i+1), fmt.Sprintf("zone-%d", i+1)
		if i == 0 {
			continue
		}
		next := 0 // any
		if first > 0 {
			next = first + i
		}
		configs[i].Listen = []string{net.JoinHostPort(host, strconv.Itoa(next))}
	}
	return configs, nil
}

// play runs daemons and the demo. It creates their fleet, if they share a store that has none.
func (c *demoCommand) play(ctx context.Context, configs []Config) error {
	if store := configs[0].Store; store != "" {
		access, err := c.StoreAccess.config(store)
		if err == nil {
			_, _, err = etcd.Init(ctx, access)
		}
		if err != nil {
			return fmt.Errorf("--store: %w", err)
		}
	}
	control, err := listenOn(ctx, listen.Spec{Address: c.Control, Mode: listen.DefaultMode})
	if err != nil {
		return fmt.Errorf("the demo's control: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving := make([]chan []string, len(configs))
	for i, config := range configs {
		serving[i] = make(chan []string, 1)
		group.Go(func() error {
			defer stop()
			return serve(ctx, config, func(addresses []string) { serving[i] <- addresses })
		})
	}
	group.Go(func() error {
		defer control.Close()
		o := demo.Options{Control: control, In: os.Stdin, Out: os.Stdout}
		for i := range serving {
			select {
			case <-ctx.Done():
				return nil
			case addresses := <-serving[i]:
				client, _, host := dialFor(listen.Spec{Address: addresses[0]})
				o.Daemons = append(o.Daemons, demo.Daemon{Client: client, URL: "http://" + host})
			}
		}
		return demo.Play(ctx, o)
	})
	return group.Wait()
}
