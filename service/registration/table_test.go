package registration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/resource"
)

// scene is a table, and its time.
type scene struct {
	*registration.Table
	t   *testing.T
	now time.Time
}

func newScene(t *testing.T, o registration.Options) *scene {
	t.Helper()
	return &scene{registration.New(o), t, time.Unix(1_000_000, 0)}
}

// set sets the assignment orders: addresses, joined by +, with !, if they are not usable, and ~TTL.
func (s *scene) set(endpoints ...string) {
	a := &resource.Assignment{Name: "orders"}
	l := &resource.LocalityEndpoints{Weight: 1}
	for _, text := range endpoints {
		e := &resource.Endpoint{Weight: 1}
		text, ttl, registered := strings.Cut(text, "~")
		if registered {
			e.TTL, _ = time.ParseDuration(ttl)
		}
		if address, ill := strings.CutSuffix(text, "!"); ill {
			text, e.Health = address, resource.HealthUnhealthy
		}
		e.Addresses = strings.Split(text, "+")
		l.Endpoints = append(l.Endpoints, e)
	}
	a.Localities = append(a.Localities, l)
	s.Set("orders", []byte(strings.Join(endpoints, " ")), a, s.now)
}

// after ticks until a time has passed, and returns what expired and was held in the last tick, and what is held then.
func (s *scene) after(d time.Duration) string {
	s.t.Helper()
	var due registration.Due
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(min(registration.Interval, end.Sub(s.now)))
		due = s.Tick(s.now)
	}
	return s.says(due)
}

func (s *scene) says(due registration.Due) string {
	var out []string
	for _, x := range due.Expired {
		out = append(out, x.Cluster+": "+strings.Join(x.Addresses, " "))
	}
	for _, h := range due.Held {
		why := ""
		if h.Silence > 0 {
			why = fmt.Sprintf(" after %v without renewals", h.Silence)
		}
		out = append(out, fmt.Sprintf("%s holds %d (last %v) within %v%s", h.Cluster, h.Count, h.Last, h.Window, why))
	}
	if due.Pause > 0 {
		out = append(out, fmt.Sprintf("paused %v: %d", due.Pause, due.Extended))
	}
	if len(due.News) > 0 {
		out = append(out, fmt.Sprintf("news of %d", due.News))
	}
	return strings.Join(out, "; ")
}

func (s *scene) expect(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// other registers an endpoint of another cluster, which renewOther renews.
func (s *scene) other() {
	e := &resource.Endpoint{Weight: 1, TTL: time.Hour, Addresses: []string{"z:80"}}
	s.Set("other", nil, &resource.Assignment{Name: "other", Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}}}, s.now)
}

func (s *scene) renewOther() { s.Renew("other", "z:80", s.now) }

// steady returns n addresses with a suffix.
func steady(n int, suffix string) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("10.0.0.%d:80%s", i, suffix))
	}
	return out
}

const quarter = registration.Interval

func TestEndpointsExpireUnlessTheyAreRenewed(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 1})
	s.set("a:80", "b:80~2s", "[::1]:80~2s")
	s.expect("before the ttl", s.after(2*time.Second-quarter), "")
	due, kept, ok := s.Renew("orders", "[0:0::1]:80", s.now)
	if !ok || !kept || due != s.now.Add(2*time.Second) {
		t.Errorf("renewed until %v, %v, %v", due, kept, ok)
	}
	s.expect("at the ttl", s.after(quarter), "orders: b:80")
	s.expect("until it is removed", s.after(quarter), "orders: b:80")
	s.set("a:80", "[::1]:80~2s")
	s.expect("the renewed one", s.after(2*time.Second-3*quarter), "")
	s.expect("the renewed one at its ttl", s.after(quarter), "orders: [::1]:80")
	for _, absent := range [][2]string{{"orders", "b:80"}, {"orders", "a:80"}, {"other", "b:80"}} {
		_, found := s.Get(absent[0], absent[1])
		if _, _, ok := s.Renew(absent[0], absent[1], s.now); ok || found {
			t.Errorf("%v is registered", absent)
		}
	}
	s.set("a:80")
	if n := s.Len(); n != 0 || len(s.Counts()) != 0 {
		t.Errorf("%d endpoints are registered", n)
	}
}

// An endpoint is found by each of its addresses.
func TestFurtherAddresses(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 1})
	s.set("a:80", "b:80+[::1]:80+c:80~2s")
	for _, address := range []string{"b:80", "[0:0::1]:80", "c:80"} {
		s.after(time.Second)
		if due, _, ok := s.Renew("orders", address, s.now); !ok || due != s.now.Add(2*time.Second) {
			t.Errorf("%s is renewed until %v, %v", address, due, ok)
		}
	}
	s.set("a:80", "b:80+d:80~2s")
	if _, ok := s.Get("orders", "c:80"); ok {
		t.Error("an address that the endpoint had is found")
	}
	s.expect("at the ttl", s.after(2*time.Second), "orders: b:80")
}

// What does not change the ttl does not move a deadline.
func TestPushesDoNotRenew(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 1})
	s.set("a:80", "b:80~2s", "c:80~2s")
	s.after(time.Second)
	s.set("a:80", "b:80~2s", "c:80~3s", "d:80~2s")
	s.expect("the one with the same ttl", s.after(time.Second), "orders: b:80")
	s.Set("orders", nil, nil, s.now)
	if s.Len() != 0 {
		t.Error("registered without an assignment")
	}
}

// Of one cluster, only a part is removed within a ttl; the others follow, unless they are renewed.
func TestExpiryIsGuarded(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 0.2})
	all := steady(10, "~4s")
	s.set(all...)
	s.other()
	s.after(3 * time.Second)
	s.renewOther()
	s.expect("at the ttl", s.after(time.Second), "orders: 10.0.0.0:80 10.0.0.1:80; orders holds 8 (last false) within 4s")
	s.set(all[2:]...)
	s.expect("with 8 of 10", s.after(quarter), "")
	s.renewOther()
	if c := s.Counts(); c[0] != (registration.Count{Cluster: "orders", Registered: 8, Held: 8}) {
		t.Errorf("counts %+v", c)
	}
	s.expect("within the ttl", s.after(4*time.Second-2*quarter), "")
	s.Renew("orders", "10.0.0.2:80", s.now)
	s.expect("after the next ttl", s.after(quarter), "orders: 10.0.0.3:80")
	s.set(slices.Delete(slices.Clone(all[2:]), 1, 2)...)
	for _, address := range steady(10, "") {
		s.Renew("orders", address, s.now)
	}
	s.expect("renewed", s.after(quarter), "")
	if c := s.Counts(); c[0] != (registration.Count{Cluster: "orders", Registered: 7}) {
		t.Errorf("counts %+v", c)
	}
}

// What other changes remove counts, too: other daemons remove endpoints at the same time.
func TestOtherRemovalsCount(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 0.2})
	all := steady(10, "~4s")
	s.set(all...)
	s.other()
	s.after(4*time.Second - quarter)
	s.renewOther()
	s.set(all[1:]...)
	s.expect("one is left to remove", s.after(quarter), "orders: 10.0.0.1:80; orders holds 8 (last false) within 4s")
}

// If no endpoint at all is renewed, it is more likely that renewals do not arrive than that all are gone.
func TestSilenceRemovesNothing(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 0.5})
	nine, ten := append(steady(9, "~4s"), "z:80", "y:80~5s"), append(steady(10, "~4s"), "z:80")
	s.set(nine...)
	s.expect("too few to know", s.after(4*time.Second), "orders: 10.0.0.0:80 10.0.0.1:80 10.0.0.2:80 10.0.0.3:80 10.0.0.4:80; orders holds 4 (last false) within 5s")
	s.set(ten...)
	for _, e := range steady(10, "") {
		s.Renew("orders", e, s.now)
	}
	s.expect("at the ttl", s.after(4*time.Second), "orders holds 10 (last false) within 4s after 4s without renewals")
	s.expect("for long", s.after(time.Hour), "")
	s.Renew("orders", "10.0.0.9:80", s.now)
	s.expect("after a renewal", s.after(quarter), "orders: 10.0.0.0:80 10.0.0.1:80 10.0.0.2:80 10.0.0.3:80 10.0.0.4:80")
	other := newScene(t, registration.Options{MaxExpired: 1})
	other.set(ten...)
	other.expect("without a limit", other.after(4*time.Second), "orders: "+strings.Join(steady(10, ""), " "))
}

func TestAtLeastOneExpires(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 0.2})
	s.set("a:80", "b:80~1s", "c:80~1s")
	s.expect("at the ttl", s.after(time.Second), "orders: b:80; orders holds 1 (last false) within 1s")
}

// The last usable endpoint stays.
func TestTheLastUsableEndpointStays(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 1})
	s.set("a:80!~1s", "b:80~1s", "c:80~1s")
	s.expect("at the ttl", s.after(time.Second), "orders: a:80 b:80; orders holds 1 (last true) within 1s")
	s.set("c:80~1s")
	s.expect("for long", s.after(time.Minute), "")
	s.Extend(s.now)
	if c := s.Counts(); c[0].Held != 0 {
		t.Errorf("%d are held with a full ttl", c[0].Held)
	}
	s.expect("after another ttl", s.after(time.Second), "orders holds 1 (last true) within 1s")
	s.set("c:80~1s", "d:80")
	s.expect("beside another", s.after(quarter), "orders: c:80")
}

// After a pause, every endpoint has a full ttl again.
func TestAPauseExtendsDeadlines(t *testing.T) {
	s := newScene(t, registration.Options{MaxExpired: 1})
	s.set("a:80", "b:80~2s")
	s.after(time.Second)
	for _, pause := range []time.Duration{2*quarter + 1, time.Minute} {
		s.now = s.now.Add(pause)
		s.expect("after a pause", s.says(s.Tick(s.now)), fmt.Sprintf("paused %v: 1", pause))
		s.expect("before the ttl", s.after(2*time.Second-quarter), "")
	}
	s.expect("at the ttl", s.after(quarter), "orders: b:80")
	s.now = s.now.Add(2 * quarter)
	s.expect("a tick that is late", s.says(s.Tick(s.now)), "orders: b:80")
	s.Extend(s.now)
	s.expect("extended", s.after(2*time.Second-quarter), "")
	x := registration.Expired{Cluster: "orders", Addresses: []string{"b:80"}}
	if s.StillDue(x, s.now) || !s.StillDue(x, s.now.Add(quarter)) {
		t.Error("due before its time, or not at it")
	}
	// A table that was empty for long was not paused.
	s.set("a:80")
	s.now = s.now.Add(time.Hour)
	s.set("a:80", "b:80~2s")
	s.expect("registered again", s.after(quarter), "")
}

// Daemons that share a store tell each other what they have renewed, and wait for two ttls.
func TestRenewalsOfOtherDaemons(t *testing.T) {
	one, two := newScene(t, registration.Options{MaxExpired: 1, Shared: true}), newScene(t, registration.Options{MaxExpired: 1, Shared: true})
	for _, s := range []*scene{one, two} {
		s.set("a:80", "b:80~3s", "c:80~3s")
	}
	both := func(d time.Duration) (string, string) { return one.after(d), two.after(d) }
	both(5 * time.Second)
	one.Renew("orders", "b:80", one.now)
	first, second := both(quarter)
	one.expect("the first renewal", first, "news of [2]")
	two.expect("without news", second, "")
	first = string(one.News(2, one.now))
	for _, s := range []*scene{one, two} {
		if err := s.Hear([]byte(first), s.now); err != nil {
			t.Fatal(err)
		}
	}
	first, second = both(time.Second - quarter)
	one.expect("one", first, "orders: c:80")
	two.expect("two", second, "orders: c:80")
	for _, s := range []*scene{one, two} {
		s.set("a:80", "b:80~3s")
	}
	one.Renew("orders", "b:80", one.now)
	first, _ = both(quarter)
	one.expect("the next renewal, after a third of the ttl", first, "news of [2]")
	news := one.News(2, one.now)
	one.NotWritten(2, one.now)
	if _, kept, _ := one.Renew("orders", "b:80", one.now); !kept {
		t.Error("the other daemon may have removed what was registered within two ttls")
	}
	if string(news) == string(one.News(2, one.now)) {
		t.Error("the next news are the same")
	}
	one.NotWritten(2, one.now)
	first, _ = both(time.Second)
	one.expect("not written", first, "news of [2]")
	_, second = both(4*time.Second - 2*quarter)
	two.expect("before two ttls", second, "")
	_, second = both(quarter)
	two.expect("after two ttls", second, "orders: b:80")
	if _, kept, ok := one.Renew("orders", "b:80", one.now); kept || !ok {
		t.Errorf("what the other daemon removes is kept: %v, %v", kept, ok)
	}
	if err := one.Hear(one.News(2, one.now), one.now); err != nil {
		t.Fatal(err)
	}
	if _, kept, _ := one.Renew("orders", "b:80", one.now.Add(6*time.Second-1)); !kept {
		t.Error("what was written does not count")
	}
	for _, bad := range []string{"", "\x02", "\x01", "\x01\x00\x05a", "\x01\x00\x01a", "\x01\x00\x01a\x01b", "\x01\x00\x01a\x01b\xff\xff\xff\xff\xff\xff\xff\xff\x7f"} {
		if err := two.Hear([]byte(bad), two.now); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// What a daemon hears never makes a deadline shorter, or longer than two ttls.
func FuzzHear(f *testing.F) {
	f.Add([]byte("\x01\x00\x06orders\x04b:80\x05"))
	f.Add([]byte("\x01\x00\x06orders\x04b:80\x05\x01a\x01b\x00"))
	f.Fuzz(func(t *testing.T, news []byte) {
		s := newScene(t, registration.Options{MaxExpired: 1, Shared: true})
		s.set("a:80", "b:80~3s")
		s.now = s.now.Add(time.Second)
		_ = s.Hear(news, s.now)
		x := registration.Expired{Cluster: "orders", Addresses: []string{"b:80"}}
		if s.StillDue(x, s.now.Add(5*time.Second-1)) || !s.StillDue(x, s.now.Add(6*time.Second)) {
			t.Fatal("another deadline")
		}
	})
}
