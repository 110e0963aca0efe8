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
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/bench/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is how rows are measured.
type bench struct {
	runs, rounds int
	// measure is the time of one subject in one round, and warmup the time before it.
	measure, warmup time.Duration
	brief           bool
	// clusters is how many the row start has, and leases how many the row expiry.
	clusters, leases int
	// localities have so many endpoints each in the rows of picks.
	localities, each int

	executable string // of this program
	lbd        string // path of the daemon
	dir        string // of scratch files
	profiles   string // directory of CPU profiles; empty for none
	programs   peer.Programs
}

// options are the flags.
type options struct {
	list, brief, long      bool
	rows, lbd, peers, json string
	profiles               string
	runs, rounds           int
	measure                time.Duration
	clusters, leases       int
}

func (o *options) flags(out io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.list, "list", false, "list the rows")
	f.StringVar(&o.rows, "rows", "", "regular expression of the rows to run (default all)")
	f.BoolVar(&o.brief, "brief", false, "run each row for a moment, with small numbers: the figures mean nothing")
	f.BoolVar(&o.long, "long", false, "also run the rows that take minutes")
	f.IntVar(&o.runs, "runs", 3, "number of runs; each starts all programs again")
	f.IntVar(&o.rounds, "rounds", 5, "number of rounds of a run, in which the subjects take turns")
	f.DurationVar(&o.measure, "measure", 2*time.Second, "time of one subject in one round, up to 1m")
	f.IntVar(&o.clusters, "clusters", 100_000, "number of clusters of the row start")
	f.IntVar(&o.leases, "leases", 1_000_000, "number of leases of the row expiry")
	f.StringVar(&o.lbd, "lbd", "", "path of the lbd daemon (default build it)")
	f.StringVar(&o.peers, "peers", "", "directory of nginx, haproxy and envoy, before PATH")
	f.StringVar(&o.json, "json", "", "file to write all figures to")
	f.StringVar(&o.profiles, "profiles", "", "directory for CPU profiles of the work in the process")
	return f
}

// Bounds of the flags, so that a run ends.
const (
	maxRuns    = 100
	maxMeasure = time.Minute
	maxThings  = 2_000_000
)

func (o *options) check() error {
	switch {
	case o.runs < 1 || o.runs > maxRuns || o.rounds < 1 || o.rounds > maxRuns:
		return fmt.Errorf("-runs and -rounds must be from 1 to %d", maxRuns)
	case o.measure <= 0 || o.measure > maxMeasure:
		return fmt.Errorf("-measure must be positive and at most %s", maxMeasure)
	case o.clusters < 1 || o.clusters > maxThings || o.leases < 1 || o.leases > maxThings:
		return fmt.Errorf("-clusters and -leases must be from 1 to %d", maxThings)
	}
	return nil
}

// roleFlag begins the first argument of the processes that bench starts of itself.
const roleFlag = "-role="

// command runs the program with arguments.
func command(ctx context.Context, args []string, out io.Writer, log *slog.Logger) error {
	if len(args) > 0 && strings.HasPrefix(args[0], roleFlag) {
		return play(ctx, strings.TrimPrefix(args[0], roleFlag), args[1:])
	}
	var o options
	if err := o.flags(out).Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	pattern, err := regexp.Compile("^(?:" + o.rows + ")$")
	if o.rows == "" {
		pattern, err = regexp.Compile("")
	}
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if o.list {
		for _, r := range rows() {
			fmt.Fprintf(out, "%-20s %s (%s)\n", r.name, r.work, r.peers())
		}
		return nil
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	return b.run(ctx, o, pattern, out, log)
}

func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{
		runs: o.runs, rounds: o.rounds, measure: o.measure, warmup: o.measure / 10, clusters: o.clusters, leases: o.leases,
		localities: 100, each: 100, lbd: o.lbd, programs: peer.FindPrograms(o.peers),
		profiles: o.profiles,
	}
	if o.brief {
		b.brief, b.runs, b.rounds, b.measure, b.warmup = true, 1, 1, 50*time.Millisecond, 10*time.Millisecond
		b.clusters, b.leases, b.localities, b.each = 200, 2000, 5, 4
	}
	var err error
	if b.executable, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "lbd-bench"); err != nil {
		return nil, err
	}
	if b.lbd == "" {
		if b.lbd, err = buildDaemon(ctx, b.dir); err != nil {
			_ = os.RemoveAll(b.dir)
			return nil, err
		}
	}
	return b, nil
}

// run measures the rows and writes the results. A row that fails does not end the others.
func (b *bench) run(ctx context.Context, o options, pattern *regexp.Regexp, out io.Writer, log *slog.Logger) error {
	rep := report{Machine: thisMachine(b.programs), Runs: b.runs, Rounds: b.rounds, Brief: b.brief, Values: make(map[string]values)}
	var failed []error
	matched := false
	for _, r := range rows() {
		if !pattern.MatchString(r.name) {
			continue
		}
		matched = true
		if r.long && !o.long && !b.brief {
			rep.NotRun = append(rep.NotRun, r.name+" (needs -long)")
			continue
		}
		if err := ctx.Err(); err != nil {
			failed = append(failed, err)
			break
		}
		res, err := r.run(ctx, b, log)
		if err != nil {
			log.Error("failed", "error", err)
			failed = append(failed, err)
			rep.NotRun = append(rep.NotRun, r.name+" (failed)")
			continue
		}
		rep.Lines = append(rep.Lines, res.lines()...)
		rep.Values[r.name] = res.values
	}
	if !matched {
		return errors.New("-rows matches no row: see -list")
	}
	for _, name := range b.programs.Missing() {
		rep.NotRun = append(rep.NotRun, name+" (not installed)")
	}
	if err := table(out, rep.Lines); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", rep.Machine)
	if o.json != "" {
		if err := rep.save(o.json); err != nil {
			return err
		}
	}
	if len(rep.NotRun) > 0 {
		fmt.Fprintf(out, "not run: %s\n", strings.Join(rep.NotRun, ", "))
	}
	return errors.Join(failed...)
}
