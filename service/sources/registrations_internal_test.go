package sources

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

var noError = must.NoError

// A decision to remove endpoints does not outlive what it is based on: the assignment, what other daemons have
// written, and the deadlines.
func TestOutdatedExpiryRemovesNothing(t *testing.T) {
	s := newTestSources(t)
	st, err := file.Open("", file.Options{OnCommit: s.committed})
	noError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	noError(t, s.Start(t.Context(), Connections{Store: st}))
	set := func(address string, ttl time.Duration) {
		t.Helper()
		r := &EndpointRequest{Cluster: "orders", Address: address, Edit: EndpointEdit{TTL: &ttl}}
		if _, err := s.SetEndpoint(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	write := func(news string) {
		t.Helper()
		_, err := st.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Put(resource.Key{Type: registration.Type, Name: "other"}, []byte(news))
		})
		noError(t, err)
	}
	set("10.0.0.1:80", 0)
	set("10.0.0.2:80", time.Hour)
	write("\x01\x01")
	key := resource.Key{Type: Endpoints, Name: "orders"}
	due := func() (*store.Snapshot, registration.Expired) { // as if the ttl had passed
		now := st.Snapshot()
		e, _ := now.Get(key)
		return now, registration.Expired{Cluster: "orders", Raw: e.Raw, Addresses: []string{"10.0.0.2:80"}}
	}
	removed := func(seen *store.Snapshot, x registration.Expired) bool {
		before := s.registrations.expired.Load()
		s.registrations.remove(seen, x)
		return s.registrations.expired.Load() > before
	}

	seen, x := due()
	if removed(seen, x) {
		t.Error("removed before its time")
	}
	s.registrations.stillDue = func(registration.Expired, time.Time) bool { return true }
	set("10.0.0.3:80", 0)
	if removed(seen, x) {
		t.Error("removed from another assignment")
	}
	seen, x = due()
	write("\x01\x02")
	if removed(seen, x) {
		t.Error("removed although another daemon has written renewals")
	}
	seen, x = due()
	_, err = st.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(registration.Joined, []byte("third")) })
	noError(t, err)
	if removed(seen, x) {
		t.Error("removed although another daemon has written its first renewals")
	}
	if seen, x = due(); !removed(seen, x) || removed(seen, x) {
		t.Error("not removed once")
	}
	if e, _ := st.Snapshot().Get(key); e.Value.(resource.Item).Assignment.Usable() != 2 { //nolint:errcheck // it has nothing else
		t.Errorf("%+v", e.Value)
	}
}

// What daemons have written is deleted when they write no more, and nobody has to know it any more.
func TestNewsOfDaemonsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSources(t)
		defer s.Close()
		st, err := file.Open("", file.Options{OnCommit: s.committed})
		noError(t, err)
		defer func() { _ = st.Close() }()
		noError(t, s.Start(t.Context(), Connections{Store: st}))
		write := func(names ...string) {
			_, err := st.Update(t.Context(), func(tx *store.Tx) error {
				for _, name := range names {
					if err := tx.Put(resource.Key{Type: registration.Type, Name: name}, fmt.Appendf(nil, "\x01%c", 1+st.Snapshot().Index())); err != nil {
						return err
					}
				}
				return nil
			})
			noError(t, err)
		}
		list := func() string {
			s.registrations.writeNews(st, nil)
			var names []string
			for e := range st.Snapshot().Of(registration.Type) {
				names = append(names, e.Key.Name)
			}
			return strings.Join(names, " ")
		}
		write("gone/5", "gone/12", "other/5", "unknown")
		for minute := range 300 {
			want := "gone/12 other/5 unknown"
			switch {
			case minute < 4:
				want = "gone/12 gone/5 other/5 unknown"
			case minute > 245:
				want = "other/5"
			case minute > 235:
				want = ""
			}
			if got := list(); want != "" && got != want {
				t.Fatalf("minute %d: %q, want %q", minute, got, want)
			}
			write("other/5")
			time.Sleep(time.Minute)
		}
		if n := len(s.registrations.silent); n != 1 {
			t.Errorf("%d are remembered", n)
		}
	})
}
