// Command lbd-proxy sends HTTP requests to the endpoints that lbd picks, for programs in languages without a client of
// lbd. docs/proxy.md describes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

var version = "unknown" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "lbd-proxy: %v\nlbd-proxy --help lists the flags.\n", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "lbd-proxy:", err)
		os.Exit(1)
	}
}

// run runs the proxy until ctx is done.
func run(ctx context.Context, args []string, out, logs io.Writer) error {
	var o options
	if err := o.parse(args, out); err != nil {
		return err
	}
	if o.version {
		fmt.Fprintln(out, "lbd-proxy", version)
		return nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level: %w", err)}
	}
	var handler slog.Handler = slog.NewTextHandler(logs, &slog.HandlerOptions{Level: level})
	if o.logFormat == "json" {
		handler = slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: level})
	}
	log := slog.New(handler)
	warnOfVariables(os.Environ(), log)
	p, err := newProxy(o, log)
	if err != nil {
		return usageError{err}
	}
	if err := p.open(); err != nil {
		return err
	}
	return p.serve(ctx)
}
