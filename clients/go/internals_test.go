package lbdclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestBudget has gRFC A6's example: a retry while more than half of the tokens are left.
func TestBudget(t *testing.T) {
	var b budget
	b.init(10)
	for i := range 20 {
		if got, want := b.failed(), i < 4; got != want {
			t.Errorf("failure %d: retry %v, want %v", i+1, got, want)
		}
	}
	for range 60 {
		b.succeeded() // 6 tokens
	}
	if b.failed() { // 5 are left
		t.Error("a retry with half of the tokens")
	}
	for range 1000 {
		b.succeeded()
	}
	if !b.failed() || b.tokens.Load() != 90 {
		t.Errorf("%v tenths of a token after a failure, want 90", b.tokens.Load())
	}
}

// TestBudgetOfPicks adds to the budget once for each success, and only then.
func TestBudgetOfPicks(t *testing.T) {
	known := &cluster{}
	known.budget.init(10)
	known.budget.failed()
	for _, outcome := range []Outcome{Failure, Cancelled, Success} {
		answered, ended := &Pick{cluster: known, choice: new(Choice)}, &Pick{cluster: known, choice: new(Choice)}
		answered.Answered(outcome)
		answered.Answered(Success)
		answered.End(Success)
		ended.End(outcome)
	}
	if got := known.budget.tokens.Load(); got != 92 {
		t.Errorf("%d tenths of a token, want 92", got)
	}
}

// TestCounts follows the time in flight.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counts
		c.init()
		known := c.of("a")
		begin := now()
		known = c.begin(known, "a", begin)
		time.Sleep(2 * time.Second)
		c.begin(known, "a", now())
		time.Sleep(3 * time.Second)
		known.answered(Success, now()-begin)
		known.end(now())
		since, taken := c.take()
		if len(taken) != 1 || taken[0] != (tally{Address: "a", Requests: 1, InFlight: 8, Latency: 5}) {
			t.Errorf("the first report: %+v", taken)
		}
		time.Sleep(time.Second)
		c.giveBack(since, taken)
		since, taken = c.take()
		if len(taken) != 1 || taken[0].Requests != 1 || taken[0].InFlight != 9 || now()-since != 6*time.Second {
			t.Errorf("the report after one that failed: %+v of %v", taken, now()-since)
		}
		known.answered(Failure, time.Second)
		known.end(now())
		time.Sleep(2 * reportAge)
		c.giveBack(since, taken)
		if _, taken = c.take(); len(taken) != 1 || taken[0] != (tally{Address: "a", Requests: 1, Errors: 1, Latency: 1}) {
			t.Errorf("counts that are too old: %+v", taken)
		}
		if _, taken = c.take(); len(taken) != 0 || len(c.endpoints) != 0 {
			t.Errorf("an endpoint without requests is not forgotten: %+v", taken)
		}
		c.begin(known, "a", now()) // by an old batch
		time.Sleep(time.Second)
		if _, taken = c.take(); len(taken) != 1 || taken[0].InFlight != 1 {
			t.Errorf("an endpoint that was forgotten: %+v", taken)
		}
	})
}

// TestCountsConcurrently loses no request between reports that fail.
func TestCountsConcurrently(t *testing.T) {
	var c counts
	c.init()
	known := c.of("a")
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			for range 2000 {
				counted := c.begin(known, "a", now())
				counted.answered(Success, 0)
				counted.end(now())
			}
		})
	}
	total := int64(0)
	report := func(keep bool) {
		since, taken := c.take()
		if !keep {
			c.giveBack(since, taken)
			return
		}
		for _, t := range taken {
			total += t.Requests
		}
	}
	ended := make(chan struct{})
	go func() { threads.Wait(); close(ended) }()
	for i := 0; ; i++ {
		select {
		case <-ended:
			report(true)
			if total != 16000 {
				t.Errorf("%d of 16000 requests are reported", total)
			}
			return
		default:
			report(i%2 == 0)
		}
	}
}

func TestBatch(t *testing.T) {
	c := newCluster(&Client{config: Config{MaxAge: time.Minute}}, "orders")
	answer := answered{Generation: 1, Dropped: map[string]int{"a": 2, "b": 1}, CircuitBroken: 3}
	for _, address := range []string{"x", "y", "x", "x"} {
		answer.Picks = append(answer.Picks, Choice{Address: address})
	}
	b, err := c.batchOf("", answer)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // rounds
		seen := map[string]int{}
		for range 10 {
			e := b.take(new(asides), 0, nil)
			name := e.address
			if e.refusal != nil {
				name = e.refusal.Kind.Error() + e.refusal.Category
			}
			seen[name]++
		}
		for name, want := range map[string]int{"x": 3, "y": 1, "droppeda": 2, "droppedb": 1, "circuit broken": 3} {
			if seen[name] != want {
				t.Errorf("%s: %d of 10 requests, want %d", name, seen[name], want)
			}
		}
	}
	if e := b.draw(func(address string) bool { return address == "y" }); e == nil || e.address != "y" {
		t.Errorf("element %v, want y", e)
	}
	if e := b.draw(func(string) bool { return false }); e != nil {
		t.Errorf("element %v, want none", e)
	}
}

func TestSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		age := spread(10 * time.Second)
		if age < 8*time.Second || age > 10*time.Second {
			t.Fatalf("a batch of 10 s is replaced after %v", age)
		}
		seen[age.Truncate(time.Second/2)] = true
	}
	if len(seen) < 4 {
		t.Errorf("batches are replaced after %v only", seen)
	}
}

func TestReporter(t *testing.T) {
	first, second := reporter(), reporter()
	form := regexp.MustCompile(`^` + regexp.QuoteMeta(process()) + `/[0-9a-f]{8}$`)
	if !form.MatchString(first) || !form.MatchString(second) || first == second {
		t.Errorf("reporters %q and %q", first, second)
	}
}

func TestClustersWithoutRequestsAreForgotten(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range maxClusters {
		known, err := c.cluster(strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		known.batch.Store(new(batch))
	}
	if _, err := c.cluster("one more"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d clusters are in use: %v", maxClusters, err)
	}
	for name, known := range *c.clusters.Load() {
		if name != "1" {
			known.batch.Store(nil)
		}
	}
	if _, err := c.cluster("one more"); err != nil {
		t.Errorf("without batches: %v", err)
	}
	if all := *c.clusters.Load(); len(all) != 2 || all["1"] == nil || all["one more"] == nil {
		t.Errorf("%d clusters are left", len(all))
	}
}

// TestClustersAreForgottenInTurn: without batches, the first to go are those that lbd never gave an endpoint.
func TestClustersAreForgottenInTurn(t *testing.T) {
	d := lbdtest.Start(t)
	c, err := New(Config{Mode: ModePick, Address: d.Address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"first", "second"} {
		d.Push(t, name, "", "127.0.0.1:1")
		pick, err := c.Pick(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		pick.End(Cancelled)
	}
	for i := range 2 * maxClusters {
		if _, err := c.cluster(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if all := *c.clusters.Load(); len(all) != maxClusters || all["first"] == nil || all["second"] == nil {
		t.Errorf("%d clusters are left after unknown names", len(all))
	}
	for i := range maxClusters - 1 {
		known, err := c.cluster("known " + strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		known.picked.Store(int64(now()))
	}
	if all := *c.clusters.Load(); len(all) != maxClusters || all["first"] != nil || all["second"] == nil {
		t.Errorf("%d clusters are left", len(all))
	}
}

// TestFailedRenewal: a renewal that fails is tried again soon, also if the lease lasts for long.
func TestFailedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Address: "unix:/nowhere/lbd.sock"})
		if err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		c.api.reached = func(error) { calls.Add(1) }
		held := c.leases.hold("L", time.Hour)
		time.Sleep(29 * time.Minute)
		if got := calls.Load(); got > 0 {
			t.Errorf("%d renewals before half of the time", got)
		}
		time.Sleep(2 * time.Minute)
		if got := calls.Load(); got < 60 {
			t.Errorf("%d renewals in a minute", got)
		}
		c.leases.end(held, Success)
		synctest.Wait()
		calls.Store(0)
		time.Sleep(time.Second / 4)
		if got := calls.Load(); got > 0 {
			t.Errorf("%d renewals of a lease that has ended", got)
		}
		c.Close()
	})
}

// TestBudgetFitsBatches: a busy process may repeat more.
func TestBudgetFitsBatches(t *testing.T) {
	var b budget
	b.init(100)
	for _, step := range []struct{ picks, want int }{{20, 1000}, {500, 5000}, {1000, 10000}, {200, 2000}, {100, 1000}} {
		b.fit(step.picks)
		b.succeeded()
		if got := b.tokens.Load(); b.max.Load() != int64(step.want) || got < int64(step.want) {
			t.Errorf("%d picks: %d tokens of %d", step.picks, got, b.max.Load())
		}
	}
}

// TestStaleFollowsUnreachable: while lbd answers for one cluster, requests to another one do not change the state.
func TestStaleFollowsUnreachable(t *testing.T) {
	var got []State
	c, err := New(Config{StaleFor: 1, OnState: func(s State) { got = append(got, s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	known := newCluster(c, "orders")
	known.batch.Store(new(batch))
	known.err.Store(unavailable("orders", "lbd is unreachable", io.EOF))
	for range 2 {
		c.reached(io.EOF)
		c.reached(io.EOF)
		for range 2 {
			known.usable(now() + 1)
		}
		c.reached(nil)
		known.usable(now() + 1)
	}
	if want := []State{"unreachable", "stale", "recovered", "unreachable", "stale", "recovered"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHostsWithHTTPSAreBounded: each has a clone of a Transport.
func TestHostsWithHTTPSAreBounded(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 2 * maxClusters {
		clone := c.clones.of(c.upstream, strconv.Itoa(i))
		if clone.TLSClientConfig.ServerName != strconv.Itoa(i) || c.clones.of(c.upstream, strconv.Itoa(i)) != clone || len(c.clones.known) > maxClusters {
			t.Fatalf("host %d: a clone for %s, of %d", i, clone.TLSClientConfig.ServerName, len(c.clones.known))
		}
	}
}

// TestCutKeyStays: all endpoints of a key had too little time to connect, and lbd is lost before one is tried again. The
// request has no endpoint of another key.
func TestCutKeyStays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("exclude") {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"all_excluded"}`)
	}))
	defer server.Close()
	c, err := New(Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	known := newCluster(c, "orders")
	known.tried = make(chan struct{})
	b, err := known.batchOf("&hash=b", answered{Generation: 1, Picks: []Choice{{Address: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	known.publish(b, nil)
	var next Pick
	last := &Pick{cluster: known, query: "&hash=a", choice: &Choice{Address: "a"}, outcome: Unreachable, cut: true}
	if last.next(t.Context(), &next, true) {
		t.Errorf("the next endpoint is %s", next.Address())
	}
}

// TestHurries: the first three connects of a request have less time, also after a retry.
func TestHurries(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	known, err := c.cluster("orders")
	if err != nil {
		t.Fatal(err)
	}
	b, err := known.batchOf("", answered{Generation: 1, Picks: []Choice{{Address: "1"}, {Address: "2"}, {Address: "3"}, {Address: "4"}}})
	if err != nil {
		t.Fatal(err)
	}
	known.batch.Store(b)
	pick, err := c.Pick(t.Context(), "orders")
	again := []func(*Pick, context.Context) (*Pick, error){(*Pick).Retry, (*Pick).Move, (*Pick).Move}
	for i := range 4 {
		if err != nil || pick.hurries != (i < 3) {
			t.Fatalf("connect %d has less time: %v, %v", i+1, pick.hurries, err)
		}
		if i < len(again) {
			pick, err = again[i](pick, t.Context())
		}
	}
}
