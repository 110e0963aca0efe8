package parity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// run is what the scenarios of both kinds share: a network, and steps.
type run struct {
	name    string
	seed    uint64
	net     *upstreams
	changed time.Time // when a side was seen to change last
	story   []string
}

// newRun returns the run of the nth scenario. Close its network.
func newRun(name string, seed uint64, n int, server *grpc.Server) (*run, error) {
	net, err := claimHost(server, n)
	return &run{name: name, seed: seed, net: net}, err
}

// steps compares both sides at the beginning and after n steps. next draws a step,
// compare returns the differences, and resources what both sides were sent.
func (r *run) steps(t *testing.T, n int, next func() string, compare func(i int) ([]string, error), resources func() []types.Resource) {
	t.Helper()
	for i := range n + 1 {
		what := "begin"
		if i > 0 {
			what = next()
		}
		r.story = append(r.story, what)
		found, err := compare(i)
		if err != nil {
			t.Fatalf("%s\nstep %d: %v", r.describe(resources()), i, err)
		}
		if len(found) > 0 {
			t.Fatalf("%s\nstep %d differs:\n%s", r.describe(resources()), i, strings.Join(found, "\n"))
		}
	}
}

// settleNet starts and stops upstreams as drawn, once connections have lived for long
// enough. mixed reports that some started and others stopped.
func (r *run) settleNet() (mixed bool, err error) {
	if len(r.net.stopping()) > 0 {
		time.Sleep(time.Until(r.changed.Add(youth)))
	}
	return r.net.settle()
}

// restless is what both sides are like that did not become quiet in time.
const restless = "restless"

// insist compares again while there are differences, a few times, and as long as what
// the sides are like changes.
func insist(compare func() (found []string, saw string, err error)) ([]string, error) {
	alike, last := 0, ""
	for n := 1; ; n++ {
		found, saw, err := compare()
		if err != nil || len(found) == 0 || saw == restless {
			return found, err
		}
		if saw != last {
			last, alike = saw, 0
		}
		if alike++; alike == attempts || n == mostAttempts {
			return found, nil
		}
		time.Sleep(respite)
	}
}

// describe lists the steps, the upstreams and the resources.
func (r *run) describe(resources []types.Resource) string {
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
	for _, m := range resources {
		js, err := protojson.Marshal(m)
		if err != nil {
			js = []byte(err.Error())
		}
		fmt.Fprintf(&b, "\n%s", js)
	}
	return b.String()
}
