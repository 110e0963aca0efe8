package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// newTestSources returns sources with a ledger of their own, and without a store.
func newTestSources(t *testing.T) *Sources {
	t.Helper()
	draining, drain := context.WithCancel(t.Context())
	log := slog.New(slog.DiscardHandler)
	events := observe.NewEvents(log)
	hosted := ledger.New(ledger.Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: rand.Uint64,
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report: events.Report, Draining: draining,
	})
	s, _ := New(Options{
		Logger: log, Ledger: hosted, Events: events, Draining: draining,
		Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		drain()
		s.Close()
		hosted.Close()
	})
	return s
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOutcomesOfPushes: outcomes differ by who must act, and each has a series from the
// start.
func TestOutcomesOfPushes(t *testing.T) {
	for code, want := range map[fault.Code]pushOutcome{
		fault.InvalidArgument: "rejected", fault.InvalidResource: "rejected", fault.UnsupportedMedia: "rejected", fault.TooLarge: "rejected",
		fault.PreconditionFailed: "precondition_failed", fault.PreconditionRequired: "precondition_failed",
		fault.UnknownCluster: "not_found", fault.UnknownTarget: "not_found", fault.Blocked: "blocked",
		fault.StorageFailed: "storage_failed", fault.StoreUnavailable: "store_unavailable", fault.Internal: "internal",
		fault.RateLimited: "rate_limited", fault.ShuttingDown: "shutting_down", fault.CallerGone: "cancelled",
	} {
		err := fault.Errorf(code, "no")
		if got := new(change).outcome(err); got != want || !slices.Contains(pushOutcomes, got) {
			t.Errorf("%s counts as %s, want %s", code, got, want)
		}
		if got := (&change{options: ChangeOptions{DryRun: true}}).outcome(err); got != "dry_run" {
			t.Errorf("%s of a dry run counts as %s", code, got)
		}
	}
	for err, want := range map[error]pushOutcome{
		store.ErrCannotWrite: "storage_failed", store.ErrUnavailable: "store_unavailable",
		&store.UnknownOutcomeError{Reason: errors.New("lost")}: "store_unavailable", store.ErrClosed: "shutting_down", store.ErrTooLarge: "rejected", errors.New("else"): "internal",
		// The deadline is the store's own, not the caller's.
		fmt.Errorf("%w: %w", store.ErrUnavailable, context.DeadlineExceeded): "store_unavailable",
		&store.UnknownOutcomeError{Reason: context.DeadlineExceeded}:         "store_unavailable",
		context.Canceled: "cancelled",
	} {
		if got := new(change).outcome(storeError(err)); got != want {
			t.Errorf("%v counts as %s, want %s", err, got, want)
		}
	}
}

// texts joins what identifies each condition.
func texts(conditions []observe.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s %s since %d: %s", c.Kind, c.Subject, c.Since.Unix(), c.Text))
	}
	return strings.Join(out, "\n")
}

func TestUnreachableServers(t *testing.T) {
	refused := errors.New("connection refused")
	at := time.Unix(7, 0)
	up := func(uri, authority string) client.ServerStatus {
		return client.ServerStatus{URI: uri, Authority: authority, Connected: true, Targets: 1, Since: at}
	}
	down := func(uri, authority string) client.ServerStatus {
		return client.ServerStatus{URI: uri, Authority: authority, LastError: refused, LastErrorAt: at}
	}
	for name, c := range map[string]struct {
		servers []client.ServerStatus
		want    string
	}{
		"no server":                    {nil, ""},
		"connected":                    {[]client.ServerStatus{up("a", "")}, ""},
		"not tried yet":                {[]client.ServerStatus{{URI: "a"}}, ""},
		"connected after an error":     {[]client.ServerStatus{{URI: "a", Connected: true, LastError: refused}}, ""},
		"a fallback that is not used":  {[]client.ServerStatus{up("a", ""), down("b", "")}, ""},
		"the only server":              {[]client.ServerStatus{down("a", "")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"the fallback is used":         {[]client.ServerStatus{down("a", ""), up("b", "")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); fallback server b is in use (targets: 1)"},
		"a fallback without targets":   {[]client.ServerStatus{down("a", ""), {URI: "b", Connected: true}}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"another authority has its up": {[]client.ServerStatus{up("b", ""), down("a", "x")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"one server, two authorities":  {[]client.ServerStatus{down("a", ""), down("a", "x")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
	} {
		if got := texts(unreachableServers(c.servers)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func TestRemedyNamesTheProxy(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	refused := errors.New("dial tcp 10.0.0.9:3128: connect: connection refused")
	if got := remedy("xds.example.com:443", refused); got != "start the server, or correct server_uri in the bootstrap" {
		t.Error(got)
	}
	t.Setenv("HTTPS_PROXY", "http://user:secret@10.0.0.9:3128")
	t.Setenv("NO_PROXY", "direct.example.com")
	for uri, want := range map[string]string{
		"xds.example.com:443":        "correct HTTPS_PROXY, which leads to this server through the proxy 10.0.0.9:3128, or name the server in NO_PROXY",
		"dns:///xds.example.com:443": "correct HTTPS_PROXY, which leads to this server through the proxy 10.0.0.9:3128, or name the server in NO_PROXY",
		"direct.example.com:443":     "start the server, or correct server_uri in the bootstrap",
		"unix:///run/xds.sock":       "start the server, or correct server_uri in the bootstrap",
	} {
		if got := remedy(uri, refused); got != want {
			t.Errorf("%s: %s", uri, got)
		}
	}
	if got := remedy("xds.example.com:443", errors.New("x509: certificate signed by unknown authority")); !strings.Contains(got, "ca_certificate_file") {
		t.Errorf("a certificate behind a proxy: %s", got)
	}
}

func TestRejectedResources(t *testing.T) {
	rejection := &client.Rejection{Version: "2", Err: errors.New("name: is required"), At: time.Unix(7, 0)}
	key := func(name string) resource.Key { return resource.Key{Type: resource.TypeCluster, Name: name} }
	got := texts(rejectedResources([]client.ResourceStatus{
		{Key: key("good"), State: client.Acked},
		{Key: key("cached"), State: client.NackedButCached, Rejection: rejection},
		{Key: key("new"), State: client.Nacked, Rejection: rejection},
	}))
	const want = "resource_rejected Cluster/cached since 7: Cluster/cached of the management server is rejected (name: is required); the last good version stays in use\n" +
		"resource_rejected Cluster/new since 7: Cluster/new of the management server is rejected (name: is required); there is no earlier version"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// While the xDS client is busy, a health probe has its last answer, and soon.
func TestRecentStatusDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recentStatus
		var asked atomic.Int32
		answer := func(uri string, after time.Duration) func() client.Status {
			return func() client.Status {
				asked.Add(1)
				time.Sleep(after)
				return client.Status{Servers: []client.ServerStatus{{URI: uri}}}
			}
		}
		check := func(ask func() client.Status, want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			var got strings.Builder
			for _, s := range r.get(ask, probePatience).Servers {
				got.WriteString(s.URI)
			}
			if got.String() != want || time.Since(began) != within {
				t.Errorf("got %q after %v, want %q after %v", got.String(), time.Since(began), want, within)
			}
		}
		check(answer("busy", time.Minute), "", probePatience)
		check(answer("second question", 0), "", probePatience)
		time.Sleep(time.Minute)
		synctest.Wait()
		check(answer("a", 0), "a", 0)
		check(answer("b", probePatience/2), "b", probePatience/2)
		check(answer("c", time.Hour), "b", probePatience)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := asked.Load(); n != 4 {
			t.Errorf("the client was asked %d times, want 4", n)
		}
	})
}

// TestStatesOfResourcesFromDisk: a resource that the client does not have, but a
// target uses from before the daemon's start, is shown as cached.
func TestStatesOfResourcesFromDisk(t *testing.T) {
	key := resource.Key{Type: resource.TypeCluster, Name: "cart"}
	const shop = "xds:///shop"
	s := newTestSources(t)
	for _, name := range []string{shop, "xds:///other"} {
		s.pushes.Ledger.Apply([]resolver.TargetConfig{{Target: name, Config: &resource.Config{Target: name, Pending: true}}})
	}
	h := s.pushes.Ledger.Hosted()
	h.Named(shop).SetAmbient(resolver.AmbientErrors{All: []resolver.AmbientError{{Key: key, Err: errors.New("deleted")}}})
	for _, test := range []struct {
		target, name string
		state, want  client.State
	}{
		{shop, "cart", client.DoesNotExist, client.DoesNotExistButCached},
		{shop, "cart", client.ReceivedError, client.ReceivedErrorButCached},
		{shop, "cart", client.Nacked, client.NackedButCached},
		{shop, "cart", client.Requested, client.Requested},
		{shop, "other", client.DoesNotExist, client.DoesNotExist},
		{"xds:///other", "cart", client.DoesNotExist, client.DoesNotExist},
		{"xds:///gone", "cart", client.DoesNotExist, client.DoesNotExist},
	} {
		r := client.ResourceStatus{Target: test.target, Key: resource.Key{Type: key.Type, Name: test.name}, State: test.state}
		if got := withCached(h, client.Status{Resources: []client.ResourceStatus{r}}).Resources[0].State; got != test.want {
			t.Errorf("%s of %s: %s is shown as %s, want %s", test.name, test.target, test.state, got, test.want)
		}
	}
}

// TestPushesPause: decoding a push calls the pause of its turn.
func TestPushesPause(t *testing.T) {
	s := newTestSources(t)
	turn, err := overload.NewTurns(1).Begin(t.Context(), overload.PushWork, "")
	noError(t, err)
	defer turn.End()
	if s.pushes.pushDecoding(decode.FormatJSON, false, false, turn).Pause == nil {
		t.Error("it has no pause")
	}
}

// TestPushesTakeTurns: large bodies wait for their turn, at most 64 of them, and small ones do not.
func TestPushesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSources(t)
		s.pushes.Turns = overload.NewTurns(1)
		codeOf := func(err error) fault.Code {
			e, _ := errors.AsType[*fault.Error](err)
			return e.Code
		}
		large := []byte("{" + strings.Repeat(" ", overload.SmallWork))
		push := func(ctx context.Context, i int, body []byte) error {
			if i%2 == 0 {
				_, err := s.Push(ctx, &PushRequest{Kind: Endpoints, Cluster: "orders", Body: body})
				return err
			}
			_, err := s.PushSnapshot(ctx, &SnapshotRequest{Body: body})
			return err
		}
		other, err := s.pushes.Turns.Begin(t.Context(), overload.ResponseWork, "")
		noError(t, err)
		gone, cancel := context.WithCancel(t.Context())
		codes := make(chan fault.Code, MaxWaitingPushes)
		for i := range MaxWaitingPushes {
			ctx := t.Context()
			if i < 4 {
				ctx = gone
			}
			go func() { codes <- codeOf(push(ctx, i, large)) }()
		}
		synctest.Wait()
		for i := range 2 {
			if err := push(t.Context(), i, large); codeOf(err) != fault.RateLimited {
				t.Errorf("one more: %v", err)
			}
			if err := push(t.Context(), i, []byte("{")); codeOf(err) != fault.InvalidArgument {
				t.Errorf("a small one: %v", err)
			}
		}
		cancel()
		for range 4 {
			if got := <-codes; got != fault.CallerGone {
				t.Errorf("a canceled push: %s", got)
			}
		}
		synctest.Wait()
		if len(codes) != 0 {
			t.Fatalf("%d pushes did not wait for their turn", len(codes))
		}
		other.End()
		for range MaxWaitingPushes - 4 {
			if got := <-codes; got != fault.InvalidArgument { // read, and wrong
				t.Errorf("after its turn: %s", got)
			}
		}
		if left := s.pushes.Turns.Stats(overload.PushWork); left.Running != 0 || left.Waiting != 0 || s.waiting.Load() != 0 {
			t.Errorf("%+v, %d waiting are left", left, s.waiting.Load())
		}
	})
}

// TestForecastsTakeTurns: forecasts of large changes wait for their turn, and then reserve the memory that they take. A
// small one does not.
func TestForecastsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestSources(t).pushes
		p.Turns = overload.NewTurns(1)
		other, err := p.Turns.Begin(t.Context(), overload.ResponseWork, "")
		noError(t, err)
		of := func(n int) *change {
			e := &resource.Endpoint{Addresses: []string{"a:80"}, Weight: 1}
			l := &resource.LocalityEndpoints{Weight: 1, Endpoints: slices.Repeat([]*resource.Endpoint{e}, n)}
			c := &resource.Config{Roots: []string{"orders"}}
			c.Clusters.Set("orders", &resource.ClusterConfig{
				Cluster: resource.DefaultCluster("orders"), Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{l}},
			})
			return &change{evaluated: &proposal.Outcome{Targets: []resolver.Preview{{Target: resolver.Target("orders"), Before: c, Clusters: []string{"orders"}}}}}
		}
		forecastOf := func(ctx context.Context, n int) fault.Code {
			_, err := p.effect(ctx, of(n))
			e, _ := errors.AsType[*fault.Error](err)
			if e == nil {
				return ""
			}
			return e.Code
		}
		ctx, cancel := context.WithCancel(t.Context())
		codes := make(chan fault.Code, 1)
		go func() { codes <- forecastOf(ctx, forecast.MaxEndpoints/2) }()
		synctest.Wait()
		if len(codes) != 0 {
			t.Fatalf("%d forecasts did not wait for their turn: %s", len(codes), <-codes)
		}
		if got := forecastOf(ctx, 1); got != "" {
			t.Errorf("a small one: %q", got)
		}
		cancel()
		if got := <-codes; got != fault.CallerGone {
			t.Errorf("a canceled forecast: %q", got)
		}
		other.End()
		var reserved int64
		full := overload.WithReserve(t.Context(), func(bytes int64) error {
			reserved += bytes
			return fault.Errorf("overloaded", "full")
		})
		if got := forecastOf(full, 100); got != "overloaded" || reserved == 0 {
			t.Errorf("%q, %d bytes reserved", got, reserved)
		}
	})
}

// TestGuardedChange: a change with a limit of its effect that does something else than it was predicted to do, because
// others have changed what it reads, is not made.
func TestGuardedChange(t *testing.T) {
	s := newTestSources(t)
	st, err := file.Open("", file.Options{OnCommit: s.committed})
	noError(t, err)
	noError(t, s.pushes.start(t.Context(), st))
	defer func() {
		s.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := overlay.Key("orders", "one")
	for same, want := range map[bool]fault.Code{true: "", false: fault.PreconditionFailed} {
		n := 0
		c := s.overlayChanges.change(key, observe.EventOverlaySet, ChangeOptions{MaxShift: new(1.0)})
		c.run = func(tx *store.Tx) error {
			if n++; same {
				n = 0
			}
			raw := fmt.Appendf(nil, `{"kind":"hold_ejections","reason":"%v %d"}`, same, n)
			return s.pushes.put(tx, c, resource.Item{Key: key, Raw: raw})
		}
		_, err := s.pushes.apply(t.Context(), c)
		e, _ := errors.AsType[*fault.Error](err)
		if e == nil && want != "" || e != nil && e.Code != want {
			t.Errorf("the same: %v: %v", same, err)
		}
	}
}

// An endpoint is not added to a cluster that the same commit makes one of another assignment.
func TestOtherSourceInACommit(t *testing.T) {
	s := newTestSources(t)
	defer s.Close()
	is := resource.DefaultCluster("orders")
	is.EDSServiceName = "other"
	key := resource.Key{Type: Config, Name: "orders"}
	batch := new(store.Snapshot).NewBatch(time.Now(), 0)
	first := batch.Begin()
	noError(t, first.PutValue(key, []byte("x"), resource.Item{Key: key, Raw: []byte("x"), Value: resource.Value{Cluster: is}}))
	batch.Add(first)
	err := s.endpointChanges.otherSource(batch.Begin(), "orders")
	if e, _ := errors.AsType[*fault.Error](err); e == nil || e.Code != fault.Blocked {
		t.Error(err)
	}
}

// What the largest record takes is reserved, also if it grows in small steps.
func TestLargestReservesSmallSteps(t *testing.T) {
	var reserved int64
	reserve := largest(overload.WithReserve(t.Context(), func(n int64) error {
		reserved += n
		return nil
	}))
	const most = 1 << 20
	for size := 0; size <= most; size += 1 << 10 {
		if err := reserve(size); err != nil {
			t.Fatal(err)
		}
	}
	if err := reserve(1000); err != nil || reserved < 2*most-overload.SmallWork || reserved > 2*most {
		t.Errorf("%d bytes are reserved for %d, %v", reserved, most, err)
	}
}
