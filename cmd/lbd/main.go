// Command lbd is the load balancing daemon: gRPC's xDS load balancing over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/cmd/lbd/ctl"
)

// cli is the command line. Each flag of serve is also an environment variable.
type cli struct {
	Serve       serveCommand       `cmd:"" default:"withargs" set:"data=./lbd-data" help:"Run the daemon. This is the default command."`
	Demo        demoCommand        `cmd:"" set:"data=" help:"Run the daemon with a demo cluster: local HTTP upstreams and a client that picks from them."`
	Check       checkCommand       `cmd:"" help:"Validate resource files and a configuration file without a daemon. Exits with 1 if one is invalid."`
	Store       storeCommand       `cmd:"" help:"Create a fleet, and copy stores."`
	Ctl         ctl.Command        `cmd:"" help:"Inspect and change a running daemon with its API."`
	Doctor      ctl.Doctor         `cmd:"" help:"Find out what is wrong with a running daemon or a cluster, and what to do. Exits with 1 if there is a problem."`
	Token       tokenCommand       `cmd:"" help:"Make tokens for callers of the API."`
	Completion  completionCommand  `cmd:"" help:"Print the completions of a shell: bash, zsh or fish."`
	Complete    completeCommand    `cmd:"" hidden:"" help:"Print what can complete a command line."`
	Man         manCommand         `cmd:"" help:"Print the manual page, in roff."`
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

// run runs the command line and returns the exit code: 0, 1 if the command failed, or 80 and
// more if the command line is invalid. lbd ctl and lbd doctor have exit codes of their own.
func run(ctx context.Context, args []string, options ...kong.Option) int {
	var c cli
	code := -1
	parser, command, err := parse(&c, args, append(options,
		kong.Name("lbd"),
		kong.Description("A load balancing daemon: gRPC's xDS load balancing over HTTP. Without a command, lbd runs serve. To try it, run lbd demo."),
		kong.ShortUsageOnError(),
		kong.Help(printHelp),
		kong.Exit(func(n int) { code = n }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(ctl.Version(buildVersion())),
	)...)
	if code >= 0 { // --help has been printed
		return code
	}
	if err != nil {
		parser.FatalIfErrorf(err)
		if invalid, ok := errors.AsType[*kong.ParseError](err); ok && isCtl(invalid.Context) {
			return ctl.ExitUsage
		}
		return code
	}
	if err := command.Run(); err != nil {
		if text := err.Error(); text != "" && !errors.Is(err, errBad) { // otherwise, the output has the errors
			fmt.Fprintf(parser.Stderr, "lbd: %s\n", text)
		}
		var coder kong.ExitCoder
		if errors.As(err, &coder) {
			return coder.ExitCode()
		}
		return 1
	}
	return 0
}

// isCtl reports whether a command line is one of lbd ctl, or of lbd doctor, which is a client, too.
func isCtl(command *kong.Context) bool {
	return slices.ContainsFunc(command.Path, func(p *kong.Path) bool {
		return p.Command != nil && (p.Command.Name == "ctl" || p.Command.Name == "doctor")
	})
}

type serveCommand struct {
	Config
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context) error {
	return serve(ctx, c.Config, func([]string) {})
}

// parse reads the command line and the configuration file.
func parse(c *cli, args []string, options ...kong.Option) (*kong.Kong, *kong.Context, error) {
	parser := kong.Must(c, options...)
	command, err := parser.Parse(args)
	if err != nil {
		return parser, command, err
	}
	// LBD_CONFIG sets the file of every command; only one command runs.
	path := map[string]string{
		"serve": c.Serve.ConfigFile, "demo": c.Demo.ConfigFile, "healthcheck": c.Healthcheck.ConfigFile,
	}[command.Command()]
	if path == "" {
		return parser, command, nil
	}
	file, err := readConfigFile(path)
	if err != nil {
		return parser, command, err
	}
	*c = cli{}
	parser = kong.Must(c, append(options, kong.Resolvers(file))...)
	command, err = parser.Parse(args)
	return parser, command, err
}

// printHelp prints the help of a command. Without a command it prints the list of
// commands and, below it, the flags of serve, which is the default command.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() != nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	options.FlagsLast = true
	own := &kong.Group{Key: "lbd", Title: "Flags:"}
	inherited := &kong.Group{Key: "serve", Title: "Flags of serve:"}
	for _, flag := range ctx.Model.Flags {
		flag.Group = own
	}
	for _, flag := range serveFlags(ctx.Model) {
		flag.Group = inherited
		ctx.Model.Flags = append(ctx.Model.Flags, flag)
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

func serveFlags(app *kong.Application) []*kong.Flag {
	i := slices.IndexFunc(app.Children, func(command *kong.Node) bool { return command.Name == "serve" })
	return app.Children[i].Flags
}

// versionFlag is --version, which works without a command and reads no configuration.
type versionFlag bool

// BeforeReset prints the version. kong calls it.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, "lbd", buildVersion())
	app.Exit(0)
	return errors.New("version printed")
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	_, err := fmt.Println("lbd", buildVersion())
	return err
}
