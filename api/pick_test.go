package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/resource"
)

const orders = "/v1/clusters/orders/endpoints"

func TestPickAnswers(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	d.must(http.StatusCreated, "PUT", "/v1/clusters/a%2Fb%25c/endpoints", assignment("", "10.0.0.8:80"))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/shed/endpoints",
		assignment("throttle, drop_percentage: {numerator: 50}", "10.0.0.7:8080"))
	for _, c := range []struct {
		name, method, query, accept string
		status                      int
		want                        string
	}{
		{
			"one", "GET", "/pick?cluster=orders", "", 200,
			`{"cluster":"orders","address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0,"generation":G}`,
		},
		{
			"versioned path", "GET", "/v1/pick?cluster=orders", "", 200,
			`{"cluster":"orders","address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0,"generation":G}`,
		},
		{
			"encoded name", "GET", "/pick?cluster=a%2Fb%25c", "", 200,
			`{"cluster":"a/b%c","address":"10.0.0.8:80","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0,"generation":G}`,
		},
		{
			"n of one is a list", "GET", "/pick?cluster=orders&n=1", "", 200,
			`{"cluster":"orders","generation":G,"picks":[{"address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0}],"dropped":{},"circuit_broken":0}`,
		},
		{
			"half are dropped", "GET", "/pick?cluster=shed&n=2", "", 200,
			`{"cluster":"shed","generation":G,"picks":[{"address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0}],"dropped":{"throttle":1},"circuit_broken":0}`,
		},
		{"text", "GET", "/pick?cluster=orders", "text/plain", 200, "10.0.0.7:8080"},
		{"text of n", "GET", "/pick?cluster=orders&n=2", "text/plain;q=0.9, application/json;q=0.5", 200, "10.0.0.7:8080\n10.0.0.7:8080"},
		{
			"lease", "POST", "/pick?cluster=orders", "text/plain", 201,
			`{"cluster":"orders","address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0,"lease":{"id":"ID","expires_at":"T"},"generation":G}`,
		},
		{
			"leases", "POST", "/v1/pick?cluster=orders&n=1&ttl=5s", "", 201,
			`{"cluster":"orders","generation":G,"picks":[{"address":"10.0.0.7:8080","locality":{"region":"us-east1","zone":"b","sub_zone":""},"priority":0,"lease":{"id":"ID","expires_at":"T"}}],"dropped":{},"circuit_broken":0}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.tb = t
			w := d.must(c.status, c.method, c.query, "", "Accept: "+c.accept)
			if got := still(w.Body.String()); got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control is %q", got)
			}
			if got := w.Header().Get("Content-Length"); got != fmt.Sprint(w.Body.Len()) {
				t.Errorf("Content-Length is %s of %d", got, w.Body.Len())
			}
			lease := c.name == "lease"
			if got := strings.HasPrefix(w.Header().Get("Location"), "/v1/leases/"); got != lease {
				t.Errorf("Location is %q", w.Header().Get("Location"))
			}
		})
	}
}

func TestPickExplains(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	one := decode[api.PickAnswer](t, d.must(200, "GET", "/pick?cluster=orders&explain", "").Body.Bytes())
	many := decode[api.PicksAnswer](t, d.must(200, "GET", "/pick?cluster=orders&explain=1&n=2", "").Body.Bytes())
	for _, steps := range [][]picks.Step{one.Explain, many.Picks[0].Explain, many.Picks[1].Explain} {
		if len(steps) == 0 || steps[len(steps)-1].Endpoint == nil {
			t.Errorf("the steps do not end with an endpoint: %v", steps)
		}
	}
	if quiet := decode[api.PickAnswer](t, d.must(200, "GET", "/pick?cluster=orders&explain=false", "").Body.Bytes()); quiet.Explain != nil {
		t.Error("explain=false explains")
	}
	d.must(http.StatusCreated, "PUT", "/v1/clusters/shed/endpoints",
		assignment("all, drop_percentage: {numerator: 100}", "10.0.0.7:8080"))
	if p, _ := d.refused(fault.Dropped, "GET", "/pick?cluster=shed&explain=true", ""); len(p.Explain) == 0 {
		t.Error("a refusal that asked for it is not explained")
	}
}

func TestBadPickParametersAreNamed(t *testing.T) {
	d := start(t, nil)
	long := strings.Repeat("x", 513)
	for query, says := range map[string]string{
		"":                                 "cluster or target is required",
		"cluster=":                         `cluster: "" is not a name of 1 to 512 bytes`,
		"cluster=" + long:                  "… (513 bytes)",
		"cluster=%ff":                      "printable UTF-8",
		"cluster=a%0ab":                    "printable UTF-8",
		"cluster=%zz":                      `"%zz" is not valid percent-encoding`,
		"cluster=o&cluster=p":              "cluster: given twice",
		"cluster=o&klaster=p":              `"klaster": unknown parameter; there are cluster, n,`,
		"cluster=o&n=0":                    `n: "0" is not a whole number from 1 to 1000`,
		"cluster=o&n=1001":                 `n: "1001" is not`,
		"cluster=o&n":                      `n: "" is not`,
		"cluster=o&n=ten":                  `n: "ten" is not`,
		"cluster=o&wait=5":                 `wait: "5" is not a duration from 0s to 1m0s`,
		"cluster=o&wait=61s":               `wait: "61s" is not`,
		"cluster=o&wait=-1s":               `wait: "-1s" is not`,
		"cluster=o&wait_for_ready=yes":     `wait_for_ready: "yes" is not true or false`,
		"cluster=o&explain=":               `explain: "" is not true or false`,
		"cluster=o&hash=" + long + long:    "hash: ",
		"cluster=o&exclude=10.0.0.1":       `exclude: "10.0.0.1" is not an address, such as`,
		"cluster=o&exclude=:80":            "exclude: ",
		"cluster=o&exclude=a:0":            "exclude: ",
		"cluster=o&exclude=a:70000":        "exclude: ",
		"cluster=o&exclude=2001:db8::1:80": "exclude: ",
		"cluster=o&ttl=5s":                 `"ttl": unknown parameter`,
		"cluster=o" + strings.Repeat("&exclude=a:1", 101): "at most 100 addresses",
		"cluster=o&target=o":                              "set either cluster or target, not both",
		"target=":                                         `target: "" is not a name of 1 to 512 bytes`,
		"cluster=o&path=/":                                "path is only valid with target",
		"cluster=o&header.a=b":                            "header.a is only valid with target",
		"target=o&path=a":                                 `path: "a" is not a path such as /package.Service/Method`,
		"target=o&path=":                                  "path: ",
		"target=o&path=/%0a":                              "path: ",
		"target=o&path=/a&path=/b":                        "path: given twice",
		"target=o&path=/" + strings.Repeat("a", api.MaxPathBytes): "of at most 4096 bytes",
		"target=o&header.=b":        `"" is not a header name`,
		"target=o&header.a%20b=b":   `"a b" is not a header name`,
		"target=o&header.%c3%a4=b":  "is not a header name",
		"target=o&header.a=%0d%0ab": "control character",
		"target=o&header=b":         `"header": unknown parameter; there are cluster, n, wait, wait_for_ready, hash, exclude, target, path, header.NAME, explain`,
		"target=o" + strings.Repeat("&header.a=b", picks.MaxHeaders+1):  "at most 100 headers",
		"target=o&header.a=" + strings.Repeat("b", api.MaxHeadersBytes): "at most 16384 bytes",
	} {
		d.refusedWith(says, fault.InvalidArgument, "GET", "/pick?"+query, "")
	}
	for query, says := range map[string]string{
		"cluster=o&ttl=0":   `ttl: "0" is not a duration from 1ms to 10m0s`,
		"cluster=o&ttl=11m": `ttl: "11m" is not`,
	} {
		d.refusedWith(says, fault.InvalidArgument, "POST", "/pick?"+query, "")
	}
	for _, key := range []string{"Idempotency-Key: ", "Idempotency-Key: " + long, "Idempotency-Key: ä"} {
		d.refused(fault.InvalidArgument, "POST", "/pick?cluster=o", "", key)
	}
	d.refusedWith("in the query", fault.InvalidArgument, "POST", "/pick", "cluster=orders")
	d.refused("uri_too_long", "GET", "/pick?cluster=o&hash="+strings.Repeat("x", api.MaxURLBytes), "")
	// Good values, for a cluster that there is not: what is read comes first.
	for _, query := range []string{
		"cluster=o&n=1000&wait=0&wait_for_ready&hash=a%20b&exclude=[::1]:80&exclude=a:1&explain=0&&",
		"cluster=%E2%82%AC+%2B",
		"cluster=o" + strings.Repeat("&exclude=a:1", 100),
	} {
		d.refused(fault.UnknownCluster, "GET", "/pick?"+query, "")
	}
}

func TestIdempotencyKeyReturnsTheSameLease(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	first := d.must(http.StatusCreated, "POST", "/pick?cluster=orders", "", "Idempotency-Key: one")
	again := d.must(http.StatusCreated, "POST", "/pick?cluster=orders", "", "Idempotency-Key: one")
	other := d.must(http.StatusCreated, "POST", "/pick?cluster=orders", "", "Idempotency-Key: two")
	if first.Body.String() != again.Body.String() || first.Header().Get("Location") != again.Header().Get("Location") ||
		again.Header().Get("Lbd-Key-Scope") != "daemon" {
		t.Errorf("another answer: %s, then %s", first.Body, again.Body)
	}
	if first.Body.String() == other.Body.String() {
		t.Error("another key has the same lease")
	}
}

// Every way in which picks are refused, with the status and headers that the
// contract has for it.
func TestPickRefusals(t *testing.T) {
	d := start(t, func(o *service.Options) {
		o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectNone: nil, resource.ConnectDefault: never{}}
		o.Sources.ConnectMode = resource.ConnectTCP
		o.MaxLeases = 1
	})
	none := func(config string) string {
		return strings.TrimSuffix(config, "}") + `,"metadata":{"filter_metadata":{"lbd":{"connect":"none"}}}}`
	}
	put := func(cluster, config, endpoints string) {
		if config != "" {
			d.must(http.StatusCreated, "PUT", "/v1/clusters/"+cluster+"/config", config)
		}
		if endpoints != "" {
			d.must(http.StatusCreated, "PUT", "/v1/clusters/"+cluster+"/endpoints", endpoints)
		}
	}
	put("fine", none(`{"type":"EDS"}`), assignment("", "a:1"))
	put("shed", none(`{"type":"EDS"}`), assignment("thröttle, drop_percentage: {numerator: 100}", "a:1"))
	put("full", none(maxRequests(0)), assignment("", "a:1"))
	put("homeless", `{"type":"EDS"}`, "")
	put("slow", "", assignment("", "a:1"))
	for _, c := range []struct {
		query      string
		code       fault.Code
		status     int
		grpc, drop string
		category   string
	}{
		{"GET /pick?cluster=unknown", fault.UnknownCluster, 404, "NOT_FOUND", "", ""},
		{"GET /pick?cluster=shed", fault.Dropped, 503, "UNAVAILABLE", "thr?ttle", "thröttle"},
		{"GET /pick?cluster=full", fault.CircuitBroken, 503, "UNAVAILABLE", "circuit-breaker", ""},
		{"GET /pick?cluster=homeless", fault.NoReadyEndpoint, 503, "UNAVAILABLE", "", ""},
		{"GET /pick?cluster=fine&exclude=a:1", fault.AllExcluded, 503, "UNAVAILABLE", "", ""},
		{"GET /pick?cluster=slow&wait=0", fault.PickTimeout, 504, "DEADLINE_EXCEEDED", "", ""},
		{"POST /pick?cluster=unknown", fault.UnknownCluster, 404, "NOT_FOUND", "", ""},
	} {
		method, target, _ := strings.Cut(c.query, " ")
		p, w := d.refused(c.code, method, target, "")
		if w.Code != c.status || p.GRPCCode != c.grpc || p.Category != c.category || p.Cluster == "" || p.Title == "" {
			t.Errorf("%s: %s", c.query, w.Body)
		}
		if got := w.Header().Get("Lbd-Drop"); got != c.drop {
			t.Errorf("%s: Lbd-Drop is %q, want %q", c.query, got, c.drop)
		}
		if got := w.Header().Get("Retry-After"); got != "" {
			t.Errorf("%s: Retry-After is %q", c.query, got)
		}
	}
	d.must(http.StatusCreated, "POST", "/pick?cluster=fine", "")
	p, w := d.refused(fault.RateLimited, "POST", "/pick?cluster=fine", "")
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" || p.RetryAfterMS != 1000 {
		t.Errorf("rate limited: %d, Retry-After %q, %d ms", w.Code, w.Header().Get("Retry-After"), p.RetryAfterMS)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w = httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pick?cluster=slow", nil).WithContext(gone))
	if w.Code != 499 || w.Body.Len() > 0 {
		t.Errorf("a caller that is gone: %d %s", w.Code, w.Body)
	}
}

func TestShuttingDownRefusesPicks(t *testing.T) {
	d := startWith(t, "a:1")
	d.must(200, "GET", "/readyz", "")
	d.service.Drain()
	if w := d.must(503, "GET", "/readyz", ""); !strings.Contains(w.Body.String(), "[-]serving: shutting down\nreadyz check failed\n") {
		t.Errorf("readyz says %s", w.Body)
	}
	d.must(200, "GET", "/livez", "")
	d.must(200, "GET", "/pick?cluster=orders", "")
	d.service.Close()
	d.refused(fault.ShuttingDown, "GET", "/pick?cluster=orders", "")
}

// sink is a ResponseWriter that can be used again.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }

func BenchmarkPickHandler(b *testing.B) {
	for _, c := range []struct{ name, target, accept string }{
		{"json", "/pick?cluster=orders", ""},
		{"text", "/pick?cluster=orders", "text/plain"},
		{"n=100", "/pick?cluster=orders&n=100", ""},
		{"n=100 text", "/pick?cluster=orders&n=100", "text/plain"},
		{"dropped", "/pick?cluster=shed", ""},
		{"routed", "/pick?target=shop&path=/shop.Cart/Add&header.tenant=alpha", ""},
		{"routed n=100", "/pick?target=shop&path=/shop.Cart/Add&n=100", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := startWith(b, "10.0.0.7:8080", "10.0.0.8:8080")
			d.must(http.StatusCreated, "PUT", "/v1/clusters/shed/endpoints",
				assignment("all, drop_percentage: {numerator: 100}", "10.0.0.7:8080"))
			d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
			r := httptest.NewRequest(http.MethodGet, c.target, nil)
			if c.accept != "" {
				r.Header.Set("Accept", c.accept)
			}
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				d.handler.ServeHTTP(w, r)
			}
		})
	}
}
