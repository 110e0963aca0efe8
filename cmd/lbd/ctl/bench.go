package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"
)

// maxRequests limits the latencies that are kept in memory.
const maxRequests = 10_000_000

type benchCommand struct {
	pickFlags
	Duration    time.Duration `help:"Maximum time in which requests begin (default ${default})" default:"5s" placeholder:"DURATION"`
	Requests    int           `help:"Maximum number of requests, at most 10000000 (default ${default})" default:"10000000" placeholder:"N"`
	Concurrency int           `short:"c" help:"Number of requests at a time, 1 to 256 (default ${default})" default:"1" placeholder:"N"`
	N           *int          `short:"n" help:"Number of picks of each request, 1 to 1000 (default 1)" placeholder:"N"`
}

// Run makes picks in a loop, and prints their rate and latency. A signal ends the loop early.
func (b *benchCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	q, err := b.query()
	switch {
	case err != nil:
		return err
	case b.Duration <= 0:
		return usage("--duration must be positive, not %v", b.Duration)
	case b.Requests < 1 || b.Requests > maxRequests:
		return usage("--requests must be from 1 to %d, not %d", maxRequests, b.Requests)
	case b.Concurrency < 1 || b.Concurrency > maxConcurrency:
		return usage("--concurrency must be from 1 to %d, not %d", maxConcurrency, b.Concurrency)
	}
	if b.N != nil {
		q.Set("n", strconv.Itoa(*b.N))
	}
	return o.with(app, func(s *session) error {
		r := request{method: http.MethodGet, path: "/pick", query: q, wait: b.wait()}
		m, err := b.measure(ctx, s.client, r)
		if err != nil {
			return err
		}
		if len(m.latencies) == 0 {
			return errInterrupted
		}
		raw, err := json.Marshal(m.report())
		if err != nil {
			return err
		}
		rates, results := m.tables()
		if err := s.printTables(raw, rates, results); err != nil {
			return err
		}
		if m.picks == 0 {
			return errNegative
		}
		return nil
	})
}

// measurement is what a bench has measured.
type measurement struct {
	elapsed time.Duration
	// latencies of all responses, ascending.
	latencies []time.Duration
	picks     int
	// results are the numbers of responses by result: ok, or the code of the problem.
	results map[string]int
}

// measure makes requests until the limit of time or number is reached, or ctx ends. Picks without an
// endpoint are counted. Any other error ends the bench: the daemon refuses all such requests, or has
// too much to do.
func (b *benchCommand) measure(ctx context.Context, c *client, r request) (*measurement, error) {
	m := &measurement{results: map[string]int{}}
	var mu sync.Mutex // guards m
	var begun atomic.Int64
	start := time.Now()
	group, limited := errgroup.WithContext(ctx)
	for range b.Concurrency {
		group.Go(func() error {
			mine := measurement{results: map[string]int{}}
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				m.add(&mine)
			}()
			for time.Since(start) < b.Duration && begun.Add(1) <= int64(b.Requests) && limited.Err() == nil {
				if err := mine.once(limited, c, r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	m.elapsed = time.Since(start)
	slices.Sort(m.latencies)
	if ctx.Err() != nil { // a signal: the report is of what there is
		err = nil
	}
	return m, err
}

// once makes one request and adds its result.
func (m *measurement) once(ctx context.Context, c *client, r request) error {
	start := time.Now()
	answer, err := c.do(ctx, r)
	latency := time.Since(start)
	result := "ok"
	if err != nil {
		refused, ok := errors.AsType[*refusal](err)
		if !ok || !slices.Contains(noEndpoint, refused.Code) {
			return err
		}
		result = refused.Code
	} else {
		n, err := countPicks(r, answer.body)
		if err != nil {
			return err
		}
		m.picks += n
	}
	m.latencies = append(m.latencies, latency)
	m.results[result]++
	return nil
}

// countPicks returns the number of endpoints in the answer to a pick.
func countPicks(r request, body []byte) (int, error) {
	if !r.query.Has("n") {
		return 1, nil
	}
	var many struct {
		Picks []struct{} `json:"picks"`
	}
	err := decode(body, &many)
	return len(many.Picks), err
}

func (m *measurement) add(other *measurement) {
	m.latencies = append(m.latencies, other.latencies...)
	m.picks += other.picks
	for result, n := range other.results {
		m.results[result] += n
	}
}

// percentile returns the latency that p of the requests do not exceed, by the nearest rank.
func (m *measurement) percentile(p float64) time.Duration {
	rank := int(math.Ceil(p * float64(len(m.latencies))))
	return m.latencies[min(max(rank, 1), len(m.latencies))-1]
}

// percentiles of a report, with their names.
var percentiles = []struct {
	name string
	p    float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}}

// perSecond returns a rate.
func (m *measurement) perSecond(n int) float64 { return float64(n) / m.elapsed.Seconds() }

// report returns the measurement for JSON.
func (m *measurement) report() map[string]any {
	latency := map[string]float64{}
	for _, one := range percentiles {
		latency[one.name] = m.percentile(one.p).Seconds()
	}
	return map[string]any{
		"seconds": m.elapsed.Seconds(), "requests": len(m.latencies), "picks": m.picks, "results": m.results,
		"requests_per_second": m.perSecond(len(m.latencies)), "picks_per_second": m.perSecond(m.picks),
		"latency_seconds": latency,
	}
}

// tables returns the measurement for people. Their names are those of the results.
func (m *measurement) tables() (rates, results *table) {
	header := []string{"SECONDS", "REQUESTS", "REQUESTS/S", "PICKS", "PICKS/S"}
	row := []string{
		decimal(m.elapsed.Seconds()), strconv.Itoa(len(m.latencies)), decimal(m.perSecond(len(m.latencies))),
		strconv.Itoa(m.picks), decimal(m.perSecond(m.picks)),
	}
	for _, one := range percentiles {
		header = append(header, one.name)
		row = append(row, m.percentile(one.p).Round(time.Microsecond).String())
	}
	rates = newTable(header...)
	rates.add(row...)
	results = newTable("RESULT", "REQUESTS", "SHARE")
	for _, result := range slices.Sorted(maps.Keys(m.results)) {
		n := m.results[result]
		results.add(result, strconv.Itoa(n), percent(float64(n)/float64(len(m.latencies))))
	}
	rates.names = results.names
	return rates, results
}
