// Command lbd is the load balancing daemon: gRPC's xDS load balancing over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set when a release is built.
var version = ""

// cli is the command line. Every flag can be given by its environment variable
// as well.
type cli struct {
	Serve       serveCommand       `cmd:"" default:"withargs" set:"data=./lbd-data" help:"Run the daemon. This is the default command."`
	Demo        demoCommand        `cmd:"" set:"data=" help:"Run the daemon with a demo cluster: local HTTP upstreams and a client that picks from them."`
	Check       checkCommand       `cmd:"" help:"Validate resource files and a configuration file without a daemon. Exits with 1 if one is invalid."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	ShowVersion versionFlag        `name:"version" help:"Print the version."`
	Healthcheck healthcheckCommand `cmd:"" help:"Check that a running daemon is ready, or alive. Exits with 1 if it is not."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// run runs the command line and returns the exit code: 0, 1 where the command
// failed, or 80 and more where the command line cannot be read.
func run(ctx context.Context, args []string) int {
	var c cli
	code := -1
	parser, command, err := parse(&c, args,
		kong.Name("lbd"),
		kong.Description("A load balancing daemon: gRPC's xDS load balancing over HTTP. Without a command, lbd runs serve. To try it, run lbd demo."),
		kong.ShortUsageOnError(),
		kong.Help(printHelp),
		kong.Exit(func(n int) { code = n }),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if code >= 0 { // --help was asked for and answered
		return code
	}
	if err != nil {
		parser.FatalIfErrorf(err)
		return code
	}
	if err := command.Run(); err != nil {
		if !errors.Is(err, errBad) { // check has said what is bad
			fmt.Fprintf(os.Stderr, "lbd: %v\n", err)
		}
		return 1
	}
	return 0
}

type serveCommand struct {
	Config
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context) error {
	return serve(ctx, c.Config, func([]string) {})
}

// versionFlag is --version, which needs no command and reads no configuration.
type versionFlag bool

// BeforeReset prints the version. kong calls it.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, "lbd", buildVersion())
	app.Exit(0)
	return errors.New("the version is printed")
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	_, err := fmt.Println("lbd", buildVersion())
	return err
}

// buildVersion is the release's version, or the revision that was built.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
