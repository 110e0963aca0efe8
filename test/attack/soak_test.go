package attack_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSoak runs a mixed load for SOAK (20s): picks, leases, pushes that change
// endpoints and clusters, snapshots, streams, long polls, invalid requests, and
// upstreams that restart. No pick may fail without a reason, and after 10 minutes
// or more, the memory, goroutines and descriptors of the last sixth must be those
// of the second one.
func TestSoak(t *testing.T) {
	length := 20 * time.Second
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newSoak(t)
	ctx, cancel := context.WithCancel(t.Context()) // without a deadline, before which requests would fail
	defer cancel()
	defer time.AfterFunc(length, cancel).Stop()
	var load sync.WaitGroup
	s.start(ctx, &load)
	series := s.sample(ctx, 10*time.Second)
	cancel()
	load.Wait()
	s.d.alive()
	s.report()
	series.report(t)
	if length >= 10*time.Minute {
		series.checkFlat(t)
	}
}

// load is a kind of request that the soak repeats.
type load struct {
	name  string
	every time.Duration
	// run makes the request number i. An error is a failure that nothing explains.
	run func(ctx context.Context, i int) error
}

// result is what became of the requests of one kind.
type result struct {
	mu       sync.Mutex
	done     int
	failed   int
	examples []string
}

func (r *result) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done++; err == nil {
		return
	}
	if r.failed++; len(r.examples) < 3 {
		r.examples = append(r.examples, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	}
}

// start runs every kind of load until ctx is done.
func (s *soak) start(ctx context.Context, wg *sync.WaitGroup) {
	for _, l := range s.loads() {
		r := &result{}
		s.results[l.name] = r
		wg.Go(func() {
			tick := time.NewTicker(l.every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if err := l.run(ctx, i); ctx.Err() == nil {
					r.add(err)
				}
			}
		})
	}
}

// report logs what became of the load, and fails the test for failures.
func (s *soak) report() {
	s.t.Helper()
	var text strings.Builder
	for _, l := range s.loads() {
		r := s.results[l.name]
		fmt.Fprintf(&text, "\n%-24s %8d, %d failed without a reason", l.name, r.done, r.failed)
		if r.failed > 0 || r.done == 0 {
			s.t.Errorf("%s: %d of %d requests failed: %s", l.name, r.failed, r.done, strings.Join(r.examples, "; "))
		}
	}
	s.t.Log("requests:" + text.String())
}

// series are samples of the daemon's resources, by name.
type series map[string][]float64

// sampled are the metrics of a soak, with the growth that is not a leak in addition
// to a tenth: of pools and caches, and of what is open at the time.
var sampled = []struct {
	metric string
	scale  float64
	unit   string
	slack  float64
}{
	{"process_resident_memory_bytes", 1 << 20, "MiB", 8},
	{"go_memstats_next_gc_bytes", 2 << 20, "MiB of live heap", 2}, // a collection begins when the heap has doubled
	{"go_memstats_stack_inuse_bytes", 1 << 20, "MiB", 1},
	{"go_goroutines", 1, "", 20},
	{"process_open_fds", 1, "", 20},
	{"lbd_quota_used{resource=\"leases\"}", 1, "", 100},
	{"lbd_quota_used{resource=\"bytes\"}", 1 << 20, "MiB", 1},
	{"process_cpu_seconds_total", 1, "s", 0},
}

// sample reads the metrics until ctx is done.
func (s *soak) sample(ctx context.Context, every time.Duration) series {
	all := make(series)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		text, err := s.get(ctx, "/metrics", s.tokens["operator"])
		if ctx.Err() != nil {
			return all
		}
		if err != nil {
			s.t.Error(err)
			return all
		}
		for _, m := range sampled {
			all[m.metric] = append(all[m.metric], metric(text, m.metric)/m.scale)
		}
		if file := os.Getenv("SOAK_SAMPLES"); file != "" {
			s.record(file, all)
		}
	}
}

// record appends the last sample to a file, for a look at a soak that runs.
func (s *soak) record(file string, all series) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = fmt.Fprint(f, time.Now().UTC().Format(time.TimeOnly))
	for _, m := range sampled {
		values := all[m.metric]
		_, _ = fmt.Fprintf(f, " %.1f", values[len(values)-1])
	}
	_, _ = fmt.Fprintln(f)
}

// metric returns the value of a series in Prometheus' text format.
func metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return -1
}

// sixth returns the median of a sixth of the samples.
func (s series) sixth(name string, n int) float64 {
	values := s[name]
	part := slices.Clone(values[len(values)*n/6 : len(values)*(n+1)/6])
	if len(part) == 0 {
		return -1
	}
	slices.Sort(part)
	return part[len(part)/2]
}

// report logs the medians of each sixth.
func (s series) report(t *testing.T) {
	t.Helper()
	var text strings.Builder
	for _, m := range sampled {
		fmt.Fprintf(&text, "\n%-34s", m.metric)
		for n := range 6 {
			fmt.Fprintf(&text, " %8.1f", s.sixth(m.metric, n))
		}
		fmt.Fprintf(&text, " %s", m.unit)
	}
	t.Log("medians of each sixth:" + text.String())
}

// checkFlat fails the test if a median has grown from the second to the last sixth.
func (s series) checkFlat(t *testing.T) {
	t.Helper()
	for _, m := range sampled {
		if m.slack == 0 {
			continue
		}
		if before, after := s.sixth(m.metric, 1), s.sixth(m.metric, 5); after > before*1.1+m.slack {
			t.Errorf("%s grew from %.1f to %.1f %s", m.metric, before, after, m.unit)
		}
	}
}

// get reads a resource.
func (s *soak) get(ctx context.Context, path, token string) (string, error) {
	status, text, err := s.call(ctx, http.MethodGet, path, "", token)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, status, text)
	}
	return text, err
}

// call makes a request; token may be empty.
func (s *soak) call(ctx context.Context, method, path, body, token string, header ...string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.d.url(path), strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := s.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err
}

// expect makes a request that must have one of the statuses, separated by commas.
func (s *soak) expect(ctx context.Context, statuses, method, path, body, token string, header ...string) (string, error) {
	status, text, err := s.call(ctx, method, path, body, token, header...)
	if err == nil && !slices.Contains(strings.Split(statuses, ","), strconv.Itoa(status)) {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, text)
	}
	return text, err
}
