package parity_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	// pause is the time between looks at both sides. Both are quiet when nothing has
	// changed for quietLooks, 200 ms or longer on a busy machine. A side that is not in
	// the expected state after stuckLooks, 1 s, does not reach it.
	pause      = 20 * time.Millisecond
	quietLooks = 10
	stuckLooks = 50

	// mostLooks bounds the looks: lbd's back-off grows with each failure of an endpoint.
	// The bound is not a time, because a busy machine may stop for a while.
	mostLooks = 2000

	// attempts is the number of comparisons while neither side changes, mostAttempts the
	// number of all, and retryDelay the time between two.
	attempts     = 4
	mostAttempts = 20
	retryDelay   = time.Second

	// minLife is the age at which the loss of a connection is no failed attempt for lbd.
	minLife = time.Second

	scenarioTimeout = 20 * time.Minute
)

// run has what the scenarios of both kinds share: a network, and steps.
type run struct {
	name    string
	seed    uint64
	net     *upstreams
	changed time.Time // the last time that a side changed
	story   []string
}

// newRun returns the run of the nth scenario.
func newRun(t *testing.T, letter string, seed uint64, n int, server *grpc.Server) *run {
	net, err := claimHost(server, n)
	must(t, err)
	t.Cleanup(net.close)
	return &run{name: fmt.Sprint(letter, n), seed: seed, net: net}
}

// steps compares both sides at the beginning and after n steps. next draws a step,
// compare returns the differences, and sent the resources that both sides received.
func (r *run) steps(t *testing.T, n int, next func() string, compare func(ctx context.Context, i int) ([]string, error), sent func() resources) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	for i := range n + 1 {
		what := "begin"
		if i > 0 {
			what = next()
		}
		r.story = append(r.story, what)
		found, err := compare(ctx, i)
		if err != nil {
			t.Fatalf("%s\nstep %d: %v", r.describe(sent()), i, err)
		}
		if len(found) > 0 {
			t.Fatalf("%s\nstep %d differs:\n%s", r.describe(sent()), i, strings.Join(found, "\n"))
		}
	}
}

// settleNet starts and stops upstreams as drawn, once connections are old enough. mixed
// reports that some started and others stopped.
func (r *run) settleNet() (mixed bool, err error) {
	if len(r.net.stopping()) > 0 {
		time.Sleep(time.Until(r.changed.Add(minLife)))
	}
	return r.net.settle()
}

var errChanging = errors.New("something still changes")

// settle looks at both sides until nothing has changed for a while; for longer, if a
// side is not in the expected state. wrong is why a look is not final.
func (r *run) settle(look func() (saw string, expected bool, wrong, err error)) error {
	var wrong error
	last, looks := "", 0
	for range mostLooks {
		time.Sleep(pause)
		saw, expected, why, err := look()
		if err != nil {
			return err
		}
		same := saw == last
		if last, wrong = saw, why; !same {
			r.changed = time.Now()
		}
		if !same || wrong != nil {
			looks = 0
			continue
		}
		if looks++; looks >= quietLooks && expected || looks >= stuckLooks {
			return nil
		}
	}
	return fmt.Errorf("not quiet after %d looks: %w", mostLooks, cmp.Or(wrong, errChanging))
}

// notSettled is what compare saw if the sides did not become quiet in time.
const notSettled = "not settled"

// retry repeats a comparison that finds differences, a few times, and as long as saw
// changes: on a busy machine grpc-go may not have applied an update that it has
// acknowledged.
func retry(compare func() (found []string, saw string, err error)) ([]string, error) {
	alike, last := 0, ""
	for n := 1; ; n++ {
		found, saw, err := compare()
		if err != nil || len(found) == 0 || saw == notSettled {
			return found, err
		}
		if saw != last {
			last, alike = saw, 0
		}
		if alike++; alike == attempts || n == mostAttempts {
			return found, nil
		}
		time.Sleep(retryDelay)
	}
}

// describe lists the steps, the upstreams and the resources.
func (r *run) describe(sent resources) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, scenario %s on %s\n", r.seed, r.name, r.net.host)
	for i, what := range r.story {
		fmt.Fprintf(&b, "step %d: %s\n", i, what)
	}
	b.WriteString("up: ")
	for _, u := range r.net.all {
		if u.listener != nil {
			fmt.Fprintf(&b, "%s(%s) ", u.name, u.address)
		}
	}
	for _, typ := range resourceTypes {
		for _, m := range sent.all()[typ] {
			js, err := protojson.Marshal(m)
			if err != nil {
				js = []byte(err.Error())
			}
			fmt.Fprintf(&b, "\n%s", js)
		}
	}
	return b.String()
}
