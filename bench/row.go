package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/bench/stat"
)

// row is one kind of work, as lbd and its peers do it.
type row struct {
	name string
	work string // what is done, for the table
	// long rows run only with -long.
	long bool
	// start starts the subjects. A subject whose program is not installed is left out.
	start func(ctx context.Context, b *bench) (*running, error)
	// comparisons are the lines of the row in the table.
	comparisons []comparison
}

// running are the subjects of a row.
type running struct {
	subjects []subject
	// derive computes further figures of a round, if it is set.
	derive func(round map[string]figures)
	stops  []func()
}

// onStop adds what ends a subject.
func (r *running) onStop(stop func()) { r.stops = append(r.stops, stop) }

// stop ends what was started, the last first.
func (r *running) stop() {
	for _, stop := range slices.Backward(r.stops) {
		stop()
	}
	r.stops = nil
}

// add adds a subject.
func (r *running) add(name string, measure func(context.Context) (figures, error)) {
	r.subjects = append(r.subjects, subject{name, measure})
}

// subject is lbd or a peer.
type subject struct {
	name    string
	measure func(context.Context) (figures, error)
}

// figures are measurements by the name of what is measured, with its unit.
type figures map[string]float64

// comparison is a figure of one subject, relative to that of another.
type comparison struct {
	figure string
	of     string
	over   string // empty for a comparison of the figure itself
	bound  bound
}

// bound is what a comparison must reach.
type bound struct {
	kind  boundKind
	value float64
}

type boundKind int

const (
	none boundKind = iota
	atMost
	atLeast
)

func (b bound) String() string {
	switch b.kind {
	case atMost:
		return "≤ " + exact(b.value)
	case atLeast:
		return "≥ " + exact(b.value)
	}
	return "–"
}

// reached reports whether the median of a comparison reaches the bound.
func (b bound) reached(s stat.Summary) bool {
	if s.N == 0 {
		return false
	}
	switch b.kind {
	case atMost:
		return s.Median <= b.value
	case atLeast:
		return s.Median >= b.value
	}
	return true
}

// values are the figures of all rounds: by subject, then by figure.
type values map[string]map[string][]float64

func (v values) add(name string, f figures) {
	if v[name] == nil {
		v[name] = make(map[string][]float64)
	}
	for figure, value := range f {
		v[name][figure] = append(v[name][figure], value)
	}
}

// result is what was measured of a row.
type result struct {
	row row
	// values are in the order of the rounds.
	values values
}

// line is a comparison with its measurements.
type line struct {
	Row     string        `json:"row"`
	Work    string        `json:"work"`
	Figure  string        `json:"figure"`
	Of      string        `json:"of"`
	Over    string        `json:"over,omitempty"`
	Value   stat.Summary  `json:"value"`
	Peer    *stat.Summary `json:"peer,omitempty"`
	Ratio   *stat.Summary `json:"ratio,omitempty"`
	Bound   string        `json:"bound,omitempty"`
	Reached *bool         `json:"reached,omitempty"`
}

// lines returns the comparisons whose subjects were measured.
func (r result) lines() []line {
	var out []line
	for _, c := range r.row.comparisons {
		of := r.values[c.of][c.figure]
		over := r.values[c.over][c.figure]
		if len(of) == 0 || c.over != "" && len(over) == 0 {
			continue
		}
		l := line{Row: r.row.name, Work: r.row.work, Figure: c.figure, Of: c.of, Over: c.over, Value: stat.Summarize(of)}
		judged := l.Value
		if c.over != "" {
			peer, ratio := stat.Summarize(over), stat.Summarize(stat.Ratios(of, over))
			l.Peer, l.Ratio, judged = &peer, &ratio, ratio
		}
		if c.bound.kind != none {
			reached := c.bound.reached(judged)
			l.Bound, l.Reached = c.bound.String(), &reached
		}
		out = append(out, l)
	}
	return out
}

// run measures a row: in each run the subjects start again, and in each round they take
// turns, beginning with another one.
func (r row) run(ctx context.Context, b *bench, log *slog.Logger) (result, error) {
	res := result{row: r, values: make(values)}
	for run := range b.runs {
		if err := r.runOnce(ctx, b, run, res.values); err != nil {
			return res, fmt.Errorf("%s: %w", r.name, err)
		}
		log.Info("measured", "row", r.name, "run", run+1, "of", b.runs)
	}
	return res, nil
}

func (r row) runOnce(ctx context.Context, b *bench, run int, into values) error {
	started, err := r.start(ctx, b)
	if started != nil {
		defer started.stop()
	}
	if err != nil {
		return err
	}
	n := len(started.subjects)
	if n == 0 {
		return errors.New("no subject")
	}
	for i := range b.rounds {
		round := make(map[string]figures, n)
		for j := range n {
			s := started.subjects[(i+j+run)%n]
			f, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			round[s.name] = f
		}
		if started.derive != nil {
			started.derive(round)
		}
		for name, f := range round {
			into.add(name, f)
		}
	}
	return nil
}

// peers lists the subjects that a row compares.
func (r row) peers() string {
	names := make(map[string]bool)
	for _, c := range r.comparisons {
		names[c.of] = true
		if c.over != "" {
			names[c.over] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
