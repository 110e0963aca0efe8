package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// max_ttl and max_picks of a quota limit the requests of its callers, and no others.
func TestQuotaLimitsTTLAndPicks(t *testing.T) {
	token, hash := access.NewToken()
	known, err := access.Parse(fmt.Appendf(nil, "quotas: {small: {max_ttl: 20s, max_picks: 3}}\ntokens: [{name: web, roles: [pick], quota: small, sha256: %s}]", hash))
	servicetest.Must(t, err)
	d := startFor(t, &listen.Callers{Identities: func() *access.Identities { return known }}, nil)
	specs, err := listen.Parse([]string{"127.0.0.1:1,anonymous=all"})
	servicetest.Must(t, err)
	l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(true, false)}
	do := func(caller, method, target, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, target, strings.NewReader(body)).WithContext(listen.BaseContext(l))
		r.Host = "localhost"
		if caller != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return d.answer(r)
	}
	if w := do("", http.MethodPut, orders, assignment("", "10.0.0.7:8080")); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	lease := do("web", http.MethodPost, "/pick?cluster=orders", "").Header().Get("Location")
	state := decode[picks.LeaseState](t, do("web", http.MethodGet, lease, "").Body.Bytes())
	if ttl := state.ExpiresAt.Sub(state.GrantedAt); ttl != 20*time.Second {
		t.Errorf("the default ttl is %v", ttl)
	}
	for _, tt := range []struct {
		caller, method, target string
		status                 int
		want                   string
	}{
		{"web", http.MethodGet, "/pick?cluster=orders&n=3", 200, ""},
		{"web", http.MethodGet, "/pick?cluster=orders&n=4", 400, "n: \\\"4\\\" is not allowed: max_picks of the caller's quota is 3"},
		{"web", http.MethodPost, "/pick?cluster=orders&n=1001", 400, "a whole number from 1 to 1000"},
		{"web", http.MethodPost, "/pick?cluster=orders&ttl=20s", 201, ""},
		{"web", http.MethodPost, "/pick?cluster=orders&ttl=21s", 400, "ttl: \\\"21s\\\" is not allowed: max_ttl of the caller's quota is 20s"},
		{"web", http.MethodPost, "/pick?cluster=orders&ttl=11m", 400, "a duration from 1ms to 10m0s"},
		{"web", http.MethodPost, lease + "/renew?ttl=30s", 400, "max_ttl of the caller's quota is 20s"},
		{"web", http.MethodPost, lease + "/renew", 200, ""},
		{"", http.MethodPost, "/pick?cluster=orders&n=4&ttl=21s", 201, ""},
		{"", http.MethodPost, lease + "/renew?ttl=30s", 200, ""},
	} {
		if w := do(tt.caller, tt.method, tt.target, ""); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%q %s %s: %d %s", tt.caller, tt.method, tt.target, w.Code, w.Body)
		}
	}
}

// The files of pages, which need no identity, count against the limits of the listener's callers.
func TestPagesCountAgainstTheListenersLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := quota.New(quota.Options{Default: &quota.Class{Rate: 1}, MaxAccounts: 10})
		d := startLimited(t, &listen.Callers{}, api.Limits{Quotas: m}, nil)
		specs, err := listen.Parse([]string{"127.0.0.1:1", "192.0.2.1:1,tls,anonymous=all"})
		servicetest.Must(t, err)
		get := func(spec *listen.Spec, from string) int {
			l := &listen.Listener{Spec: *spec, Policy: spec.Policy(true, true)}
			r := httptest.NewRequest(http.MethodGet, "/docs", http.NoBody).WithContext(listen.BaseContext(l))
			r.Host, r.RemoteAddr = "127.0.0.1", from
			return d.answer(r).Code
		}
		remote := map[int]int{}
		for range 20 { // recorders are used again, but not always
			if code := get(&specs[0], "127.0.0.1:1"); code != http.StatusOK {
				t.Errorf("a local caller: %d", code)
			}
			remote[get(&specs[1], "192.0.2.7:1")]++
		}
		if remote[http.StatusOK] != 1 || remote[http.StatusTooManyRequests] != 19 {
			t.Errorf("another machine: %v", remote)
		}
	})
}

// Long polls count as streams while they wait, not as bulk requests, which pushes and lists need.
func TestLongPollsAreNoBulkRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 3
		m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Bulk: 1, quota.Streams: streams}, MaxAccounts: 1})
		d := startLimited(t, nil, api.Limits{Quotas: m}, nil)
		d.must(http.StatusCreated, http.MethodPut, orders, assignment("", "10.0.0.7:8080"))
		generation := decode[observe.ClusterState](t, d.must(200, http.MethodGet, "/v1/clusters/orders", "").Body.Bytes()).Generation
		poll := fmt.Sprintf("/v1/clusters/orders?index=%d&wait=5m", generation)
		for range streams {
			go d.must(http.StatusOK, http.MethodGet, poll, "")
			synctest.Wait() // the end of a poll is bulk work: they do not begin together
			time.Sleep(time.Second)
		}
		d.must(http.StatusOK, http.MethodGet, "/v1/clusters", "")
		if p, w := d.refused(fault.RateLimited, http.MethodGet, poll, ""); w.Header().Get("Retry-After") != "1" || !strings.Contains(p.Detail, "streams") {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if m.Use(quota.Bulk) != 0 || m.Use(quota.Streams) != 0 {
			t.Error("quotas are in use after all requests have ended")
		}
	})
}
