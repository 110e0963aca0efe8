package conformance

import (
	"errors"
	"flag"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write RESULTS.md")

// TestConformance plays all scenarios to all clients: the adapters of all clients at the
// same time (-parallel), each with an lbd of its own.
func TestConformance(t *testing.T) {
	all, err := scenarios()
	if err != nil {
		t.Fatal(err)
	}
	came := new(results)
	var mu sync.Mutex
	var complete []string
	t.Run("clients", func(t *testing.T) {
		for _, name := range clients(t) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				played, planned := 0, 0
				t.Run("adapters", func(t *testing.T) {
					for i, adapter := range adaptersOf(t, name) {
						mine := of(all, i == 0)
						for _, s := range mine {
							planned += len(s.Modes)
						}
						t.Run(adapter, func(t *testing.T) {
							t.Parallel()
							n := playAll(t, newClient(t, name, adapter), mine, came)
							mu.Lock()
							defer mu.Unlock()
							played += n
						})
					}
				})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case t.Failed():
				case played < planned:
					t.Logf("%d of %d plays: the results are not compared", played, planned)
				default:
					complete = append(complete, name)
				}
			})
		}
	})
	came.compare(t, all, complete, *update)
}

// of returns the scenarios of an adapter.
func of(all []scenario, first bool) (mine []scenario) {
	for _, s := range all {
		if first || !s.Once {
			mine = append(mine, s)
		}
	}
	return mine
}

// playAll plays scenarios in each mode, and returns how many -run has selected.
func playAll(t *testing.T, c *client, all []scenario, came *results) (played int) {
	for _, s := range all {
		for _, mode := range s.Modes {
			t.Run(s.Name+"/"+mode, func(t *testing.T) {
				played++
				var err error
				if reason, cannot := s.Without[c.adapter]; cannot {
					err = unsupportedError{reason}
				} else {
					err = c.run(s, mode)
				}
				var not unsupportedError
				for plays := 1; err != nil && !errors.As(err, &not); plays++ {
					if !s.Timed || plays == 3 {
						t.Fatal(err)
					}
					t.Log(err)
					err = c.run(s, mode)
				}
				came.add(result{c.name, c.adapter, s.Name, mode, strings.ReplaceAll(not.reason, "|", "/")})
				if err != nil {
					t.Skip(err)
				}
			})
		}
	}
	return played
}
