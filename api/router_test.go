package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
)

// serve answers one request by h behind a route.
func serve(h handler) (w *httptest.ResponseRecorder, log string, aborted any) {
	var b bytes.Buffer
	r := &router{
		mux: chi.NewRouter(), logger: slog.New(slog.NewTextHandler(&b, nil)),
		metrics: newMetrics(prometheus.NewRegistry()), origins: http.NewCrossOriginProtection(),
		routes: make(map[string]*route), index: &servedIndex{index: func() uint64 { return 0 }},
		missing: func(err error) error { return err },
	}
	r.as(0).get("/x", h)
	w = httptest.NewRecorder()
	func() {
		defer func() { aborted = recover() }()
		r.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/x", nil))
	}()
	return w, b.String(), aborted
}

func TestPanicIsAnsweredAndLoggedOnce(t *testing.T) {
	w, log, aborted := serve(func(*recorder, *http.Request) error { panic("a bug") })
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"internal"`) || strings.Contains(w.Body.String(), "a bug") {
		t.Errorf("answer: %d %s", w.Code, w.Body)
	}
	if strings.Count(log, "a bug") != 1 || !strings.Contains(log, "router_test.go") || aborted != nil {
		t.Errorf("aborted by %v; log: %s", aborted, log)
	}
}

func TestHalfAnAnswerIsAborted(t *testing.T) {
	for name, end := range map[string]handler{
		"panic": func(*recorder, *http.Request) error { panic("a bug") },
		"error": func(*recorder, *http.Request) error { return errors.New("a fault") },
		"abort": func(*recorder, *http.Request) error { panic(http.ErrAbortHandler) },
	} {
		w, log, aborted := serve(func(w *recorder, r *http.Request) error {
			_, _ = w.Write([]byte("half"))
			return end(w, r)
		})
		if err, ok := aborted.(error); !ok || !errors.Is(err, http.ErrAbortHandler) || w.Body.String() != "half" {
			t.Errorf("%s: aborted by %v after %q", name, aborted, w.Body)
		}
		if (log == "") != (name == "abort") {
			t.Errorf("%s: log: %s", name, log)
		}
	}
}

// What is lbd's own fault is logged; its details are not for callers, unless
// they are about what they pushed.
func TestFaultsAreLogged(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		detail string
		logged bool
	}{
		{errors.New("disk on fire"), 500, "internal error; see the log of lbd", true},
		{fault.Errorf(fault.Internal, "disk on fire"), 500, "internal error; see the log of lbd", true},
		{fault.Errorf(fault.StorageFailed, "disk on fire"), 507, "disk on fire", true},
		{fmt.Errorf("wrapped: %w", fault.Errorf(fault.Blocked, "no endpoint")), 409, "no endpoint", false},
		{fault.Errorf("a code that is not known", "disk on fire"), 500, "internal error; see the log of lbd", true},
	} {
		w, log, _ := serve(func(*recorder, *http.Request) error { return c.err })
		var p Problem
		noError(t, json.Unmarshal(w.Body.Bytes(), &p))
		if w.Code != c.status || p.Detail != c.detail || strings.Contains(log, "disk on fire") != c.logged {
			t.Errorf("%v: %d %s; log: %s", c.err, w.Code, w.Body, log)
		}
	}
}

// Each of the service's codes has a status and a title, and is in the contract
// by its Problem's enum.
func TestEveryCodeHasAnAnswer(t *testing.T) {
	for _, code := range []fault.Code{
		fault.InvalidArgument, fault.UnknownCluster, fault.UnknownTarget, fault.UnknownEndpoint, fault.NoRoute, fault.UnknownLease, fault.UnknownChange, fault.UnknownOverlay, fault.PreconditionFailed, fault.PreconditionRequired,
		fault.TooLarge, fault.UnsupportedMedia, fault.InvalidResource, fault.Blocked, fault.RateLimited,
		fault.Dropped, fault.CircuitBroken, fault.NoReadyEndpoint, fault.AllExcluded, fault.PickTimeout, fault.IndexNotReached,
		fault.ShuttingDown, fault.CallerGone, fault.StorageFailed, fault.StoreUnavailable, fault.ReplicaUnavailable, fault.Internal,
		notFound, methodNotAllowed, listen.Unauthenticated, listen.PermissionDenied, listen.MisdirectedRequest, uriTooLong, overloaded,
	} {
		p := problemOf(&fault.Error{Code: code})
		if p.Status == 0 || p.Title == "" || p.GRPCCode == "" {
			t.Errorf("%s: %+v", code, p)
		}
		for _, text := range []string{answers[code].means, answers[code].fix} {
			if len(text) < 20 || !strings.HasSuffix(text, ".") {
				t.Errorf("GET /problems/%s has %q", code, text)
			}
		}
	}
	if len(answers) != 34 {
		t.Errorf("%d codes have an answer, and 34 are tested", len(answers))
	}
}

func TestRetryAfterOnlyWhereItHelps(t *testing.T) {
	for _, c := range []struct {
		code   fault.Code
		after  time.Duration
		header string
		ms     int64
	}{
		{fault.NoReadyEndpoint, 1500 * time.Millisecond, "2", 1500},
		{fault.NoReadyEndpoint, time.Nanosecond, "1", 1},
		{fault.NoReadyEndpoint, 0, "", 0},
		{fault.RateLimited, time.Second, "1", 1000},
		{fault.Dropped, time.Second, "", 0},
		{fault.CircuitBroken, time.Second, "", 0},
		{fault.PickTimeout, time.Second, "", 0},
	} {
		w := httptest.NewRecorder()
		writeProblem(&recorder{ResponseWriter: w}, problemOf(&fault.Error{Code: c.code, RetryAfter: c.after}))
		var p Problem
		noError(t, json.Unmarshal(w.Body.Bytes(), &p))
		if w.Header().Get("Retry-After") != c.header || p.RetryAfterMS != c.ms {
			t.Errorf("%s after %v: Retry-After %q, %d ms", c.code, c.after, w.Header().Get("Retry-After"), p.RetryAfterMS)
		}
	}
}

func TestFrom(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for address, want := range map[string]string{"192.0.2.1:7": "192.0.2.1:7", "": "unix", "@": "unix"} {
		r.RemoteAddr = address
		if got := from(&recorder{}, r); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
	if got := from(&recorder{caller: &access.Caller{Name: "ci"}}, r); got != "ci" {
		t.Errorf("an identity: %q, want ci", got)
	}
}

// goneCaller is the answer to a caller that has hung up.
type goneCaller struct{ http.ResponseWriter }

func (goneCaller) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

// unwell is a collector whose metrics cannot be gathered.
type unwell struct{ *prometheus.Desc }

func (c unwell) Describe(out chan<- *prometheus.Desc) { out <- c.Desc }

func (c unwell) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.NewInvalidMetric(c.Desc, errors.New("unwell"))
}

// TestScrapeErrors: a metric that cannot be gathered is logged, and a caller that hangs
// up is not.
func TestScrapeErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		writer http.ResponseWriter
		bad    bool
	}{
		{"a caller that hangs up", goneCaller{httptest.NewRecorder()}, false},
		{"a bad metric", httptest.NewRecorder(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbd_a"}), prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbd_b"}))
			if tt.bad {
				registry.MustRegister(unwell{prometheus.NewDesc("lbd_c", "", nil, nil)})
			}
			var log bytes.Buffer
			h, w := &handlers{Logger: slog.New(slog.NewTextHandler(&log, nil))}, &recorder{ResponseWriter: tt.writer, router: new(router)}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
			func() {
				defer func() {
					if v := recover(); (v == http.ErrAbortHandler) == tt.bad { //nolint:errorlint // panics are compared
						t.Error(v)
					}
				}()
				if err := h.scrape(w, r, make(chan struct{}, 1), 1, func() *observe.Gathered { return h.gather(registry) }); err != nil {
					t.Error(err)
				}
			}()
			if logged := strings.Contains(log.String(), "level=ERROR"); logged != tt.bad {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}
