package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is the API over a service that counts every endpoint as connected,
// and whose store is in memory.
type daemon struct {
	tb      testing.TB
	service *service.Service
	handler http.Handler
	log     bytes.Buffer
}

// never is a connector whose attempts do not end.
type never struct{}

func (never) Start([]string, func(lb.Connection)) func() { return func() {} }

func start(tb testing.TB, change func(*service.Options)) *daemon {
	tb.Helper()
	return startFor(tb, nil, change)
}

// startWith starts a daemon with the cluster orders.
func startWith(tb testing.TB, addresses ...string) *daemon {
	tb.Helper()
	d := start(tb, nil)
	d.must(http.StatusCreated, "PUT", orders, assignment("", addresses...))
	return d
}

// startFor starts a daemon for callers with identities.
func startFor(tb testing.TB, callers *listen.Callers, change func(*service.Options)) *daemon {
	tb.Helper()
	return startLimited(tb, callers, api.Limits{}, change)
}

// startLimited is startFor with limits of what callers use.
func startLimited(tb testing.TB, callers *listen.Callers, limits api.Limits, change func(*service.Options)) *daemon {
	tb.Helper()
	return startServing(tb, change, sources.Connections{}, func(o *api.Options) { o.Callers, o.Limits = callers, limits })
}

// startServing starts a daemon with other options of the service and the API, and what the service is
// connected to besides its store.
func startServing(tb testing.TB, change func(*service.Options), to sources.Connections, serve func(*api.Options)) *daemon {
	tb.Helper()
	d := &daemon{tb: tb}
	shared := false
	d.service, _ = servicetest.Start(tb, "", func(o *service.Options) {
		o.Sources.Changelog = changelog.Limits{Changes: 100, Bytes: 1 << 20}
		if change != nil {
			change(o)
		}
		shared = o.Fleet != nil
	}, func(c *sources.Connections) {
		to.Store = c.Store
		*c = to
	})
	d.handler = d.serve(func(served *api.Options) {
		if serve(served); shared {
			served.Peers = api.NewPeers(nil)
			tb.Cleanup(served.Peers.Close)
		}
	})
	return d
}

// serve returns the API of the service.
func (d *daemon) serve(change func(*api.Options)) http.Handler {
	o := api.OptionsFor(d.service)
	o.OpenAPI, o.Logger = lbd.OpenAPI, slog.New(slog.NewTextHandler(&d.log, nil))
	change(&o)
	o.Limits.Wait = cmp.Or(o.Limits.Wait, time.Second)
	return api.New(o)
}

// do answers a request, and checks the answer against the contract. headers
// are "Name: value".
func (d *daemon) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	d.tb.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r.Body = http.NoBody
		r.ContentLength = 0
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return d.answer(r)
}

func (d *daemon) answer(r *http.Request) *httptest.ResponseRecorder {
	d.tb.Helper()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		d.tb.Errorf("%s %s: X-Content-Type-Options is %q", r.Method, r.URL, got)
	}
	if w.Header().Get("Lbd-Index") == "" {
		d.tb.Errorf("%s %s: no Lbd-Index", r.Method, r.URL)
	}
	if err := agrees(r, w); err != nil {
		d.tb.Errorf("%s %s: the answer is not as openapi.yaml says: %v\n%s", r.Method, r.URL, err, w.Body)
	}
	return w
}

// must is do for a request that has to be answered with a status.
func (d *daemon) must(status int, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	d.tb.Helper()
	w := d.do(method, target, body, headers...)
	if w.Code != status {
		d.tb.Fatalf("%s %s: %d, want %d: %s", method, target, w.Code, status, w.Body)
	}
	return w
}

// expect checks the body of a GET, apart from what differs from run to run and a last newline.
func (d *daemon) expect(target, want string) {
	d.tb.Helper()
	got := still(d.must(200, "GET", target, "").Body.String())
	if strings.TrimSuffix(got, "\n") != strings.TrimSuffix(want, "\n") {
		d.tb.Errorf("%s:\ngot  %swant %s", target, got, want)
	}
}

// refused is do for a request that has to be refused with a code.
func (d *daemon) refused(code fault.Code, method, target, body string, headers ...string) (api.Problem, *httptest.ResponseRecorder) {
	d.tb.Helper()
	w := d.do(method, target, body, headers...)
	p := decode[api.Problem](d.tb, w.Body.Bytes())
	if p.Code != code || p.Status != w.Code || p.Type != "/problems/"+string(code) {
		d.tb.Errorf("%s %s: %d %s, want %s: %s", method, target, w.Code, p.Code, code, p.Detail)
	}
	return p, w
}

// refusedWith is refused for a detail that contains a text.
func (d *daemon) refusedWith(text string, code fault.Code, method, target, body string) {
	d.tb.Helper()
	if p, _ := d.refused(code, method, target, body); !strings.Contains(p.Detail, text) {
		d.tb.Errorf("%s %.80s: %q does not contain %q", method, target, p.Detail, text)
	}
}

// decode is strict: the body has no field that T does not.
func decode[T any](tb testing.TB, body []byte) T {
	tb.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil && err != io.EOF {
		tb.Errorf("%v: %s", err, body)
	}
	return v
}

// assignment is YAML with one endpoint for each address, in one locality.
func assignment(drops string, addresses ...string) string {
	var b strings.Builder
	b.WriteString("endpoints:\n- locality: {region: us-east1, zone: b}\n  load_balancing_weight: 1\n  lb_endpoints:\n")
	for _, a := range addresses {
		host, port, _ := strings.Cut(a, ":")
		fmt.Fprintf(&b, "  - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n", host, port)
	}
	if drops != "" {
		b.WriteString("policy: {drop_overloads: [{category: " + drops + "}]}\n")
	}
	return b.String()
}

// maxRequests is JSON of a Cluster with a limit.
func maxRequests(n int) string {
	return fmt.Sprintf(`{"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":%d}]}}`, n)
}

// aggregate is JSON of a Cluster that is made of others.
func aggregate(leaves ...string) string {
	return fmt.Sprintf(`{"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{`+
		`"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["%s"]}}}`,
		strings.Join(leaves, `","`))
}

var (
	numbers = regexp.MustCompile(`"generation":\d{13}`)
	times   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	ids     = regexp.MustCompile(`"id":"[0-9A-V]{40}"`)
	// What says why is other tests' matter.
	reasons  = regexp.MustCompile(`"error":"(\\.|[^"\\])*"`)
	rules    = regexp.MustCompile(`"reason":"(\\.|[^"\\])*"`)
	eventIDs = regexp.MustCompile(`"id":\d+`)
	ages     = regexp.MustCompile(`"age":"[0-9hms]+"`)
)

// still is a body without what differs from run to run.
func still(body string) string {
	body = numbers.ReplaceAllString(body, `"generation":G`)
	body = times.ReplaceAllString(body, `"T"`)
	body = ids.ReplaceAllString(body, `"id":"ID"`)
	return ages.ReplaceAllString(body, `"age":"A"`)
}
