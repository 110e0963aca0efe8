package ledger

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
)

const (
	// keptPerSecond is the weight of a second against the one after it: a minute ago counts a twentieth.
	keptPerSecond = 0.95
	// manyFail is the part of all from which on many fail, if at least fewest do; without any success,
	// one failure is enough.
	manyFail, fewest = 0.05, 3
	// failureAge is how long failures count after the last one, and recoveryAge if something has succeeded since.
	failureAge, recoveryAge = time.Minute, 5 * time.Second
)

// Failing finds out whether many of something fail, such as the picks from a cluster. Its zero value has
// seen none.
type Failing struct {
	now atomic.Pointer[Failure]

	// Of the goroutine that calls Note.
	noted, last, fine time.Time // the last call, and the last ones with a failure and a success
	successes         recent
	failures          map[string]*recent // by kind
}

// recent is a counter, and how much it has grown of late.
type recent struct {
	total uint64
	grown float64
}

func (r *recent) note(total uint64) {
	r.grown = r.grown*keptPerSecond + float64(total-min(total, r.total))
	r.total = total
}

// Failure says that many fail. It is never changed.
type Failure struct {
	// Since is when they began to, with a resolution of a second.
	Since time.Time
	// Percent is the part that fails, rounded to a multiple of 5.
	Percent int
	// Kind is how most of them fail.
	Kind string
}

// Now returns what fails; nil if few or none do. Any goroutine may call it.
func (f *Failing) Now() *Failure { return f.now.Load() }

// Note takes the counters as they are now: what succeeded, and what failed by kind. It is called once a second.
func (f *Failing) Note(now time.Time, succeeded uint64, failed iter.Seq2[string, uint64]) {
	if now.Equal(f.noted) {
		return // several targets have these totals
	}
	if succeeded > f.successes.total {
		f.fine = now
	}
	f.successes.note(succeeded)
	is, sum, most := Failure{Since: f.noted}, 0.0, 0.0
	if f.noted.IsZero() {
		is.Since = now
	}
	for kind, n := range failed {
		of := f.failures[kind]
		if of == nil {
			of = new(recent)
			if f.failures == nil {
				f.failures = make(map[string]*recent)
			}
			f.failures[kind] = of
		}
		if n > of.total {
			f.last = now
		}
		of.note(n)
		if sum += of.grown; of.grown > most {
			most, is.Kind = of.grown, kind
		}
	}
	f.noted = now
	none := f.successes.grown < 1-keptPerSecond
	part := sum / max(f.successes.grown+sum, 1e-9)
	age := now.Sub(f.last)
	if age > failureAge || age > recoveryAge && f.fine.After(f.last) {
		for _, of := range f.failures {
			of.grown = 0
		}
		part = 0
	}
	if part < manyFail || !none && sum < fewest {
		f.now.Store(nil)
		return
	}
	is.Percent = 5 * max(1, int(20*part+0.5))
	was := f.now.Load()
	if was != nil {
		is.Since = was.Since
	}
	if was == nil || is != *was {
		f.now.Store(&is)
	}
}

// harmless are the results of picks that are no failures of lbd or of endpoints: a caller that is at its limit
// harms only itself.
var harmless = map[Result]bool{
	OK: true, Result(fault.Dropped): true, Result(fault.CallerGone): true, Result(fault.ShuttingDown): true, Result(fault.InvalidArgument): true,
	Result(fault.RateLimited): true,
}

// Note takes the counters of a second for the Failing of the target, its clusters and their totals. One
// goroutine calls it for all targets.
func (t *Target) Note(now time.Time) {
	all := uint64(0)
	for _, c := range t.View().Clusters.All() {
		succeeded := c.Succeeded()
		all += succeeded
		if c.OwnSeries { // else its counts are those of other clusters, too
			c.Refusing.Note(now, succeeded, c.refused)
		}
		if c.Totals.OwnSeries {
			c.Totals.note(now)
		}
	}
	if t.Unrouted != nil && t.Unrouted.OwnSeries {
		t.Unrouted.Refusing.Note(now, all, t.Unrouted.refused)
	}
}

// refused yields how many picks failed, by result.
func (c *Counts) refused(yield func(string, uint64) bool) {
	for result, n := range c.Picks.All() {
		if !harmless[result] && !yield(string(result), n) {
			return
		}
	}
}

func (t *Totals) note(now time.Time) {
	var succeeded, failed uint64
	for _, of := range []*Tally[policy.Outcome]{&t.Outcomes, &t.Reported.Outcomes} {
		for o, n := range of.All() {
			switch o { //nolint:exhaustive // the others say nothing about the endpoints
			case policy.OutcomeSuccess:
				succeeded += n
			case policy.OutcomeError:
				failed += n
			}
		}
	}
	t.Failing.Note(now, succeeded, func(yield func(string, uint64) bool) { yield("error", failed) })
}
