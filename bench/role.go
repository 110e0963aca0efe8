package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lbd-dev/lbd/bench/load"
	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/process"
	"github.com/lbd-dev/lbd/bench/work"
)

// The roles of the processes that bench starts of itself.
const (
	roleLoad    = "load"    // generates a load
	roleBare    = "bare"    // net/http and chi; arguments: network, address
	roleFast    = "fast"    // fasthttp; the same
	roleWork    = "work"    // does a kind of work; its argument is the name
	roleMemory  = "memory"  // measures memory
	roleCallers = "callers" // send requests that are not measured
)

// roles have a main function and the number of its arguments.
var roles = map[string]struct {
	arguments int
	main      func(ctx context.Context, args []string) error
}{
	roleLoad: {0, func(context.Context, []string) error {
		return process.Serve(os.Stdin, os.Stdout, func(s load.Spec) (any, error) { return load.Run(s) })
	}},
	roleBare:    {2, func(_ context.Context, args []string) error { return peer.ServeBare(args[0], args[1]) }},
	roleFast:    {2, func(_ context.Context, args []string) error { return peer.ServeFast(args[0], args[1]) }},
	roleWork:    {1, func(ctx context.Context, args []string) error { return playWork(ctx, args[0]) }},
	roleCallers: {0, func(ctx context.Context, _ []string) error { return playCallers(ctx) }},
	roleMemory: {0, func(context.Context, []string) error {
		return process.Serve(os.Stdin, os.Stdout, func(r work.MemoryRequest) (any, error) { return work.Memory(r) })
	}},
}

// play is the main function of a role.
func play(ctx context.Context, name string, args []string) error {
	role, found := roles[name]
	if !found || len(args) != role.arguments {
		return fmt.Errorf("role %s with %d arguments does not exist", name, len(args))
	}
	return role.main(ctx, args)
}

// workRequest is the first request, with Start, and each later one, with Measure.
type workRequest struct {
	Start   *work.Options `json:"start,omitempty"`
	Measure *work.Request `json:"measure,omitempty"`
}

func playWork(ctx context.Context, name string) error {
	var started *work.Started
	defer func() {
		if started != nil {
			started.Stop()
		}
	}()
	return process.Serve(os.Stdin, os.Stdout, func(r workRequest) (any, error) {
		switch {
		case r.Start != nil && started == nil:
			var err error
			started, err = work.Start(ctx, name, *r.Start)
			return work.Result{}, err
		case r.Measure != nil && started != nil:
			return started.Measure(*r.Measure)
		}
		return nil, fmt.Errorf("work %s is not started, or started twice", name)
	})
}
