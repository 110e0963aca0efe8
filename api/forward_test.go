package api_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// fleetOf is a fleet whose replicas the test sets.
type fleetOf struct {
	id     string
	owners []roster.Owner
}

func (*fleetOf) Share(*policy.ClusterCounters, uint32) {}
func (*fleetOf) Unshare(*policy.ClusterCounters)       {}
func (*fleetOf) Close()                                {}
func (f *fleetOf) ID() string                          { return f.id }

func (f *fleetOf) Roster(context.Context) *roster.Roster { return &roster.Roster{Self: f.id} }

func (f *fleetOf) Find(_ context.Context, match func(id string) bool) (roster.Owner, bool) {
	for _, o := range f.owners {
		if match(o.ID) {
			return o, true
		}
	}
	return roster.Owner{}, false
}

// inFleet starts a daemon with the cluster orders in a fleet with other replicas.
func inFleet(tb testing.TB, callers *listen.Callers, id string, others ...roster.Owner) (*daemon, *fleetOf) {
	tb.Helper()
	f := &fleetOf{id: id, owners: others}
	d := startFor(tb, callers, func(o *service.Options) { o.Fleet = f })
	return d, f
}

func live(id, url string) roster.Owner {
	return roster.Owner{Replica: roster.Replica{ID: id, Name: "lbd-" + id, Address: url}, Live: true}
}

// replicaAt is a daemon with the cluster orders at an address, which counts requests.
func replicaAt(tb testing.TB, id string) (d *daemon, url string, requests *atomic.Int64) {
	tb.Helper()
	d, f := inFleet(tb, nil, id)
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		d.handler.ServeHTTP(w, r)
	}))
	tb.Cleanup(s.Close)
	f.owners = append(f.owners, live(id, s.URL))
	return d, s.URL, requests
}

// TestLeaseAtAnotherReplica: requests about a lease reach the daemon that has granted it.
func TestLeaseAtAnotherReplica(t *testing.T) {
	a, url, requests := replicaAt(t, "a")
	a.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.1:80"))
	b, _ := inFleet(t, nil, "b", live("a", url))
	lease := a.lease()

	got := b.must(http.StatusOK, "GET", lease, "").Body.String()
	if want := a.must(http.StatusOK, "GET", lease, "").Body.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	before := decode[picks.LeaseState](t, []byte(got))
	after := decode[picks.LeaseState](t, b.must(http.StatusOK, "POST", lease+"/renew?ttl=5m", "").Body.Bytes())
	if after.ExpiresAt.Sub(before.ExpiresAt) < time.Minute {
		t.Errorf("expires at %v, before at %v", after.ExpiresAt, before.ExpiresAt)
	}
	for range 2 {
		if s := decode[picks.LeaseState](t, b.must(http.StatusOK, "POST", lease+"/done", `{"outcome":"error"}`).Body.Bytes()); s.Outcome != picks.Failure {
			t.Errorf("%+v", s)
		}
	}
	b.refused(fault.InvalidArgument, "POST", lease+"/done", `{"outcome":"maybe"}`)
	b.refused(fault.UnknownLease, "POST", lease+"/renew", "") // it has ended
	if n := requests.Load(); n != 6 {
		t.Errorf("%d requests were forwarded", n)
	}
	b.refused(fault.UnknownLease, "GET", "/v1/leases/x", "")
	b.refused(fault.InvalidArgument, "POST", lease+"/renew?ttl=-1s", "") // not forwarded
	if n := requests.Load(); n != 6 {
		t.Errorf("%d requests were forwarded", n)
	}
}

// TestForwardedOnce: a request that was forwarded is not forwarded again.
func TestForwardedOnce(t *testing.T) {
	a, _, _ := replicaAt(t, "a")
	a.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.1:80"))
	lease := a.lease()
	c, url, requests := replicaAt(t, "c") // others take it for a
	b, _ := inFleet(t, nil, "b", live("a", url))
	b.refused(fault.UnknownLease, "POST", lease+"/done", "")
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	c.refused(fault.UnknownLease, "POST", lease+"/done", "", "Lbd-Forwarded: 1")
}

// TestOwnerUnavailable: the problem says why the lease cannot be reached, and when it ends.
func TestOwnerUnavailable(t *testing.T) {
	a, _ := inFleet(t, nil, "a")
	a.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.1:80"))
	lease := a.lease()
	serve := func(f http.HandlerFunc) string {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		return s.URL
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hang := make(chan struct{})
	silent := serve(func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	for _, tt := range []struct {
		name   string
		owners []roster.Owner
		code   fault.Code
		text   string
	}{
		{"nothing listens", []roster.Owner{live("a", closed.URL)}, fault.ReplicaUnavailable, "lbd-a (" + closed.URL + "), cannot be reached: dial"},
		{"it does not answer", []roster.Owner{live("a", silent)}, fault.ReplicaUnavailable, "deadline exceeded; the lease ends by itself at its expires_at"},
		{"no address", []roster.Owner{live("a", "")}, fault.ReplicaUnavailable, "has no address for other daemons"},
		{"another program", []roster.Owner{live("a", serve(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))}, fault.ReplicaUnavailable, "answers as no lbd does"},
		{"a redirect", []roster.Owner{live("a", serve(http.RedirectHandler("http://127.0.0.1:1", http.StatusFound).ServeHTTP))}, fault.ReplicaUnavailable, "answers as no lbd does"},
		{"too much", []roster.Owner{live("a", serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(make([]byte, 3<<20))
		}))}, fault.ReplicaUnavailable, "answers as no lbd does"},
		{"it has ended", []roster.Owner{{Replica: roster.Replica{ID: "a"}, Left: 32 * time.Second}}, fault.UnknownLease, "the lease ends by itself at its expires_at, in 32s at most"},
		{"not known", nil, fault.UnknownLease, "no daemon of the fleet has granted it, or that daemon has ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := inFleet(t, nil, "b", tt.owners...)
			b.refusedWith(tt.text, tt.code, "POST", lease+"/done", "")
		})
	}
	a.must(http.StatusOK, "POST", lease+"/done", "")
}

// TestManyLeasesOfReplicas: the results of leases of many daemons are in the order of the request.
func TestManyLeasesOfReplicas(t *testing.T) {
	a, url, requests := replicaAt(t, "a")
	b, f := inFleet(t, nil, "b", live("a", url))
	gone, _ := inFleet(t, nil, "gone")
	for _, d := range []*daemon{a, b, gone} {
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.1:80"))
	}
	f.owners = append(f.owners, roster.Owner{Replica: roster.Replica{ID: "gone"}})
	id := func(d *daemon) string { return strings.TrimPrefix(d.lease(), "/v1/leases/") }
	ids := []string{id(a), id(b), id(gone), "x", id(a)}
	body := fmt.Sprintf(`{"leases":[{"id":%q,"outcome":"error"},{"id":%q},{"id":%q},{"id":%q},{"id":%q,"outcome":"maybe"}]}`, ids[0], ids[1], ids[2], ids[3], ids[4])
	v := decode[api.Verdicts](t, b.must(http.StatusOK, "POST", "/v1/leases/done", body).Body.Bytes())
	for i, want := range []string{"error", "success", string(fault.UnknownLease), string(fault.UnknownLease), string(fault.InvalidArgument)} {
		got := ""
		switch r := v.Leases[i]; {
		case r.ID != ids[i]:
			t.Errorf("result %d is of %s", i, r.ID)
		case r.Lease != nil:
			got = string(r.Lease.Outcome)
		case r.Problem != nil:
			got = string(r.Problem.Code)
		}
		if got != want {
			t.Errorf("result %d: %q, want %q", i, got, want)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests for two leases of one daemon", n)
	}
}

// TestForwardedCredentials: the owner of a lease gets the token of the caller, and checks it. What it could not
// check, or would get without TLS although the caller has protected it, is not sent.
func TestForwardedCredentials(t *testing.T) {
	token, sum := access.NewToken()
	known, err := access.Parse([]byte("tokens: [{name: web, roles: [pick], clusters: [orders], sha256: " + sum + "}]"))
	servicetest.Must(t, err)
	callers := &listen.Callers{Identities: func() *access.Identities { return known }}
	a, url, requests := replicaAt(t, "a")
	a.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.1:80"))
	lease := a.lease()
	b, f := inFleet(t, callers, "b", live("a", url))
	ask := func(change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, lease+"/done", http.NoBody)
		l := &listen.Listener{Policy: listen.Policy{Roles: access.All, Identities: true}}
		r = r.WithContext(listen.BaseContext(l))
		change(r)
		return b.answer(r)
	}
	with := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	if w := ask(func(*http.Request) {}); w.Code != http.StatusUnauthorized || requests.Load() != 0 {
		t.Errorf("without a token: %d", w.Code)
	}
	f.owners[0].Address = "http://lbd.example:8080"
	if w := ask(func(r *http.Request) { with(r); r.TLS = &tls.ConnectionState{} }); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "without TLS") {
		t.Errorf("a token that came through TLS: %d %s", w.Code, w.Body)
	}
	f.owners[0].Address = url // on loopback
	if w := ask(with); w.Code != http.StatusOK || requests.Load() != 1 {
		t.Errorf("with a token: %d %s", w.Code, w.Body)
	}
}
