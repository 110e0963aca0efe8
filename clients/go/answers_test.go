package lbdclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// standIn starts a server in the place of lbd, for moments that a real one has too rarely.
func standIn(t testing.TB, handle http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// TestNoCallAfterClose: a closed client asks lbd for nothing.
func TestNoCallAfterClose(t *testing.T) {
	address := standIn(t, func(_ http.ResponseWriter, r *http.Request) { t.Error(r.URL) })
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		client, _ := connect(t, lbdclient.Config{Address: address, Mode: mode, Fallback: "127.0.0.1:1"})
		client.Close()
		if _, err := client.Pick(t.Context(), "orders"); !strings.HasSuffix(fmt.Sprint(err), "the client is closed") {
			t.Errorf("%s: error %v", mode, err)
		}
	}
}

// TestAllAreSetAside: the only endpoint is set aside, and used nevertheless, by each way to ask lbd for what a request needs.
func TestAllAreSetAside(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1")
	ctx := lbdclient.WithAsk(t.Context(), lbdclient.Ask{Hash: "a"})
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		client, _ := connect(t, lbdclient.Config{Address: d.Address, Mode: mode})
		for range 3 {
			pick, err := client.Pick(ctx, "orders")
			if err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			pick.End(lbdclient.Unreachable)
		}
	}
}

// TestTokenIsRotatedUnderLoad has several calls that lbd rejects at the same time: each is repeated with the new token.
func TestTokenIsRotatedUnderLoad(t *testing.T) {
	const callers = 5
	file := t.TempDir() + "/token"
	var rejected sync.WaitGroup
	rejected.Add(callers)
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer second" {
			fmt.Fprint(w, `{"address":"127.0.0.1:1"}`)
			return
		}
		rejected.Done()
		rejected.Wait() // all calls have the first token
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"code":"unauthenticated"}`)
	})
	write(t, file, "first")
	client, _ := connect(t, lbdclient.Config{Address: address, TokenFile: file, Mode: lbdclient.ModePick})
	write(t, file, "second")
	var picks sync.WaitGroup
	for range callers {
		picks.Go(func() {
			if _, err := client.Pick(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
		})
	}
	picks.Wait()
}

// TestReportUnderWayAtClose has a report that lbd has counted, but not answered, when the client is closed.
func TestReportUnderWayAtClose(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var requests atomic.Int64
	var first sync.Once
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/pick":
			if r.URL.Query().Get("cluster") == "unknown" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"code":"unknown_cluster"}`)
				return
			}
			fmt.Fprint(w, `{"generation":1,"picks":[{"address":"127.0.0.1:1"}]}`)
		case "/v1/reports":
			var report struct {
				Clusters []struct {
					Endpoints []struct {
						Requests int64 `json:"requests"`
					} `json:"endpoints"`
				} `json:"clusters"`
			}
			if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
				t.Error(err)
			}
			for _, c := range report.Clusters {
				for _, e := range c.Endpoints {
					requests.Add(e.Requests)
				}
			}
			first.Do(func() {
				close(arrived)
				select {
				case <-release:
				case <-r.Context().Done():
				}
			})
			fmt.Fprint(w, `{}`)
		default:
			<-r.Context().Done() // nothing changes
		}
	})
	client, _ := connect(t, lbdclient.Config{Address: address, ReportInterval: time.Millisecond})
	pick, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	pick.End(lbdclient.Success)
	<-arrived
	var closing sync.WaitGroup
	closing.Go(client.Close)
	lbdtest.Until(t, "the client is closing", func() bool {
		_, err := client.Pick(t.Context(), "unknown")
		return strings.Contains(err.Error(), "closed")
	})
	close(release)
	closing.Wait()
	if got := requests.Load(); got != 1 {
		t.Errorf("1 request is reported as %d", got)
	}
}

// TestLeaseIsRenewedUnderLoad ends leases without a pause: each call that ends some takes so long that there are more.
func TestLeaseIsRenewedUnderLoad(t *testing.T) {
	var client *lbdclient.Client
	var taken, renewed atomic.Int64
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/pick":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"address":"127.0.0.1:1","lease":{"id":"L%d"}}`, taken.Add(1))
		case strings.HasSuffix(r.URL.Path, "/renew"):
			renewed.Add(1)
			fmt.Fprint(w, `{}`)
		default:
			if pick, err := client.Pick(r.Context(), "orders"); err == nil && renewed.Load() == 0 {
				pick.End(lbdclient.Success)
			}
			fmt.Fprint(w, `{}`)
		}
	})
	client, _ = connect(t, lbdclient.Config{Address: address, Mode: lbdclient.ModeLease, TTL: time.Second})
	held, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	pick, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	pick.End(lbdclient.Success)
	lbdtest.Until(t, "the lease is renewed", func() bool { return renewed.Load() > 0 })
	runtime.KeepAlive(held)
}

// slowCall is a call about one lease that is not answered until one about another lease has arrived. Its repetitions are
// answered at once.
type slowCall struct {
	first             sync.Once
	arrived, answered chan struct{}
	others            chan struct{}
}

func newSlowCall() *slowCall {
	return &slowCall{arrived: make(chan struct{}), answered: make(chan struct{}), others: make(chan struct{}, 1000)}
}

func (s *slowCall) serve(t *testing.T, r *http.Request) {
	s.first.Do(func() {
		close(s.arrived)
		defer close(s.answered)
		select {
		case <-s.others:
		case <-r.Context().Done():
			t.Errorf("%s: the others wait for this call", r.URL)
		}
	})
}

// TestSlowCallsAboutLeases has a renewal and an end of a lease that lbd does not answer: the others do not wait.
func TestSlowCallsAboutLeases(t *testing.T) {
	var taken atomic.Int64
	renewal, end := newSlowCall(), newSlowCall()
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); {
		case r.URL.Path == "/v1/pick":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"address":"127.0.0.1:1","lease":{"id":"L%d"}}`, taken.Add(1))
			return
		case strings.Contains(string(body), `"L1"`):
			end.serve(t, r)
		case r.URL.Path == "/v1/leases/done":
			end.others <- struct{}{}
		case r.URL.Path == "/v1/leases/L1/renew":
			renewal.serve(t, r)
		default:
			renewal.others <- struct{}{}
		}
		fmt.Fprint(w, `{}`)
	})
	client, _ := connect(t, lbdclient.Config{Address: address, Mode: lbdclient.ModeLease, TTL: 400 * time.Millisecond})
	pick := func() *lbdclient.Pick {
		p, err := client.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := pick()
	<-renewal.arrived
	second := pick()
	<-renewal.answered
	first.End(lbdclient.Success)
	<-end.arrived
	second.End(lbdclient.Success)
	<-end.answered
}

// TestRejectedRenewal has a lease whose renewals lbd rejects: the other one is renewed.
func TestRejectedRenewal(t *testing.T) {
	var taken, renewed atomic.Int64
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/pick":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"address":"127.0.0.1:1","lease":{"id":"L%d"}}`, taken.Add(1))
		case r.URL.Path == "/v1/leases/L1/renew":
			renewed.Add(1)
			fmt.Fprint(w, `{}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"code":"invalid_argument"}`)
		}
	})
	client, _ := connect(t, lbdclient.Config{Address: address, Mode: lbdclient.ModeLease, TTL: 200 * time.Millisecond})
	held := make([]*lbdclient.Pick, 50) // they are renewed in any order
	for i := range held {
		var err error
		if held[i], err = client.Pick(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	lbdtest.Until(t, "the lease is renewed, again and again", func() bool { return renewed.Load() > 3 })
	runtime.KeepAlive(held)
}

// TestRetryIsGivenUp has a caller that gives the request up while the lease of a failed try ends: no other is taken.
func TestRetryIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var picks, ends atomic.Int64
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/pick" {
			picks.Add(1)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"address":"127.0.0.1:1","lease":{"id":"L1"}}`)
			return
		}
		cancel()
		ends.Add(1)
		fmt.Fprint(w, `{}`)
	})
	client, _ := connect(t, lbdclient.Config{Address: address, Mode: lbdclient.ModeLease})
	pick, err := client.Pick(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pick.Retry(ctx); !errors.Is(err, lbdclient.ErrNoRetry) {
		t.Errorf("error %v", err)
	}
	lbdtest.Until(t, "the lease is ended in the background", func() bool { return ends.Load() >= 2 })
	if _, err := client.Pick(t.Context(), "orders"); err != nil { // after a call of Retry, if there was one
		t.Fatal(err)
	}
	if got := picks.Load(); got != 2 {
		t.Errorf("%d picks", got)
	}
}

func TestAnswerWithoutLease(t *testing.T) {
	address := standIn(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"address":"127.0.0.1:1"}`) })
	client, _ := connect(t, lbdclient.Config{Address: address, Mode: lbdclient.ModeLease})
	if _, err := client.Pick(t.Context(), "orders"); !errors.Is(err, lbdclient.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// TestNoRequestWithoutTime has a caller whose deadline has passed before: no endpoint is to blame.
func TestNoRequestWithoutTime(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, sender := connect(t, lbdclient.Config{Address: d.Address})
	mustGet(t, sender, "http://orders.lbd/")
	body := &counted{strings.NewReader("body"), new(atomic.Int64)}
	ctx, cancel := contextWithoutTime(t)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders.lbd/", body)
	if err != nil {
		t.Fatal(err)
	}
	transport := &lbdclient.Transport{Client: client}
	if _, err := transport.RoundTrip(request); !errors.Is(err, ctx.Err()) { //nolint:bodyclose // there is an error
		t.Errorf("error %v", err)
	}
	if body.closed.Load() == 0 {
		t.Error("the body of the request is not closed")
	}
	client.Close()
	for outcome, want := range map[string]float64{"success": 1, "error": 0, "cancelled": 0} {
		if got := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="`+outcome+`"}`); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
}

// lateContext is a context whose deadline passes while lbd answers. Nothing that waits for it is woken.
type lateContext struct {
	context.Context

	late *atomic.Bool
}

func (lateContext) Done() <-chan struct{} { return nil }

func (c lateContext) Err() error {
	if c.late.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// TestNoRequestWithoutTimeAfterPick has callers whose deadline passes before lbd has answered: no endpoint is to blame.
func TestNoRequestWithoutTimeAfterPick(t *testing.T) {
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease} {
		t.Run(string(mode), func(t *testing.T) {
			var late, told atomic.Bool
			address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/pick":
					late.Store(true)
					fmt.Fprint(w, `{"generation":1,"picks":[{"address":"127.0.0.1:1"}],"address":"127.0.0.1:1","lease":{"id":"L"}}`)
				case "/v1/leases/done":
					if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `{"id":"L","outcome":"cancelled"}`) {
						t.Errorf("ends of leases: %s", body)
					}
					told.Store(true)
					fmt.Fprint(w, `{}`)
				case "/v1/reports":
					t.Error("there is something to report")
				default:
					<-r.Context().Done()
				}
			})
			client, _ := connect(t, lbdclient.Config{Address: address, Mode: mode})
			transport := &lbdclient.Transport{Client: client, Base: baseFunc(func(*http.Request) (*http.Response, error) {
				t.Error("the request is sent")
				return nil, context.DeadlineExceeded
			})}
			request, err := http.NewRequestWithContext(lateContext{t.Context(), &late}, http.MethodGet, "http://orders.lbd/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transport.RoundTrip(request); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is an error
				t.Errorf("error %v", err)
			}
			client.Close()
			if mode == lbdclient.ModeLease && !told.Load() {
				t.Error("the lease has not ended")
			}
		})
	}
}

// TestBatchesOfManyGenerations has a cluster whose generation is different in each answer.
func TestBatchesOfManyGenerations(t *testing.T) {
	const batches, pause = 8, 100 * time.Millisecond
	var generation, fetched atomic.Int64
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/pick" {
			fetched.Add(1)
			if got := r.URL.Query().Get("wait"); got != "1000ms" {
				t.Errorf("wait=%s", got)
			}
		}
		fmt.Fprintf(w, `{"generation":%d,"picks":[{"address":"127.0.0.1:1"}]}`, generation.Add(1))
	})
	begin := time.Now()
	client, _ := connect(t, lbdclient.Config{Address: address})
	if _, err := client.Pick(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	lbdtest.Until(t, "there are some batches", func() bool { return fetched.Load() >= batches })
	if took := time.Since(begin); took < (batches-1)*pause {
		t.Errorf("%d batches within %v", batches, took)
	}
}

// TestHugeAnswer is an answer that does not end.
func TestHugeAnswer(t *testing.T) {
	address := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"address":"`)
		part := strings.Repeat("x", 64<<10)
		for {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	})
	for _, mode := range []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick} {
		client, _ := connect(t, lbdclient.Config{Address: address, Mode: mode})
		if _, err := client.Pick(t.Context(), "orders"); !errors.Is(err, lbdclient.ErrUnavailable) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: error %v", mode, err)
		}
	}
}
