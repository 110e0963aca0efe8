package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// TestShares sends requests from four processes, and compares how many each endpoint got with its weight, by a
// chi-square test at p = 0.01. RATE=full does it 20 times, with as many requests as independent draws would need.
func TestShares(t *testing.T) {
	n, runs := 1030, 1
	if isFull() {
		n, runs = 5000, 20
	} else {
		t.Parallel()
	}
	for _, name := range clients(t) {
		t.Run(name, func(t *testing.T) {
			if !isFull() {
				t.Parallel()
			}
			n := n
			if name == "shell" { // starts processes for each request
				n /= 20
			}
			host := newClient(t, name, "core")
			processes := make([]*client, 4)
			for i := range processes {
				processes[i] = &client{name: name, adapter: "core", daemon: host.daemon, credentials: host.credentials}
				t.Cleanup(processes[i].discard)
			}
			for _, c := range []struct {
				name     string
				weights  map[string]int
				critical float64 // of the distribution with a degree of freedom less than there are weights
			}{
				{"1:2:3:4", map[string]int{"0": 1, "1": 2, "2": 3, "3": 4}, 11.345},
				{"1 percent", map[string]int{"0": 1, "1": 99}, 6.635},
			} {
				p := &play{client: host}
				for range c.weights {
					u, err := stand.NewUpstream(&p.meter, "ok")
					must(t, err)
					t.Cleanup(u.Close)
					p.upstreams = append(p.upstreams, u)
				}
				worst := 0.0
				for run := range runs {
					p.target = fmt.Sprintf("shares-%d-%d", len(c.weights), run)
					must(t, p.push(&cluster{Weights: c.weights}))
					worst = max(worst, p.chiSquare(t, processes, c.weights, n))
				}
				if t.Logf("%s of %s: chi-square %.2f at most", c.name, name, worst); worst > c.critical {
					t.Errorf("chi-square %.2f, more than %.2f", worst, c.critical)
				}
			}
		})
	}
}

// chiSquare sends n requests from each of the processes.
func (p *play) chiSquare(t *testing.T, processes []*client, weights map[string]int, n int) (sum float64) {
	t.Helper()
	before, all := p.tries(), 0
	for _, c := range processes {
		_, err := c.do(stand.Command{Do: "open", LBD: "unix:" + p.daemon.Socket, Cluster: p.target, Mode: "batch", Adapter: "core"})
		if not := (unsupportedError{}); errors.As(err, &not) {
			t.Skip(err)
		}
		must(t, err)
		must(t, c.runner.Send(stand.Command{Do: "load", Method: "GET", Path: "/", N: n, Threads: 4, Timeout: 5}))
	}
	for _, c := range processes {
		a, err := c.runner.Receive(8 * stand.Patience)
		if must(t, err); a.Statuses["200"] != n {
			t.Fatalf("%v %v", a.Statuses, a.Errors)
		}
	}
	for _, weight := range weights {
		all += weight
	}
	for i, tries := range p.tries() {
		want := float64(len(processes)*n*weights[strconv.Itoa(i)]) / float64(all)
		sum += (float64(tries-before[i]) - want) * (float64(tries-before[i]) - want) / want
	}
	return sum
}
