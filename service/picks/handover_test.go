package picks

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/service/picks/handover"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// succession has one daemon after the other, in the same directory.
type succession struct {
	*kit

	limit uint32
	path  string
}

func newSuccession(t testing.TB, limit uint32) *succession {
	dir, err := os.MkdirTemp("/dev/shm", "lbd") //nolint:usetesting // where writes need not wait for a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &succession{limit: limit, path: filepath.Join(dir, "leases")}
	s.start(t)
	return s
}

func (s *succession) start(t testing.TB) {
	s.kit = newKit(t, 0, nil, s.limit, locality("a", 0, 1, 1))
	s.HandOver(s.path, time.Second, slog.New(slog.DiscardHandler))
}

func (s *succession) restart(t testing.TB) {
	s.close()
	s.start(t)
}

// read returns what is on disk.
func (s *succession) read(t testing.TB) (is handover.Content[handedLease]) {
	text, err := os.ReadFile(s.path)
	if err = errors.Join(err, json.Unmarshal(text, &is)); err != nil {
		t.Fatal(err)
	}
	return is
}

// crash is a restart that leaves on disk what was there before the end.
func (s *succession) crash(t testing.TB) {
	left, err := os.ReadFile(s.path)
	noError(t, err)
	s.close()
	noError(t, os.WriteFile(s.path, left, 0o600))
	s.start(t)
}

// Leases of an AGGREGATE are those of its leaf after a restart, too.
func TestHandOverOfLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t, 2)
		s.aggregate("agg")
		if err := s.Pick(t.Context(), &Request{Cluster: "agg", N: 2, TTL: time.Minute, Owner: owned("", "web")}, new(Picks)); err != nil {
			t.Fatal(err)
		}
		s.restart(t)
		list, _ := s.Leases(LeaseFilter{Cluster: "orders", Limit: 3})
		if len(list) != 2 || list[0].Cluster != "agg" || list[0].Leaf != "orders" {
			t.Errorf("leases %+v", list)
		}
		if l := &s.expect(2).Totals.Leases; l.Picked() != 0 || len(l.LargestNow(time.Now())) != 1 {
			t.Errorf("%d leases of picks of the leaf, held by %v", l.Picked(), l.LargestNow(time.Now()))
		}
		s.EndLeases(LeaseFilter{Cluster: "orders"}, "")
		s.expect(0)
		s.close()
	})
}

// A story: whatever is granted, renewed and ended, and however the daemon is restarted, no more requests are
// in flight than the limit, and those that are in flight count. All are known after restarts.
func TestHandOver(t *testing.T) {
	type lease struct {
		id      LeaseID
		expires time.Time
		lost    bool // in a crash
	}
	const limit = 20
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // a bubble has no deadline
			s := newSuccession(t, limit)
			defer s.close()
			var held []*lease
			crashed := false
			known := func(rt *rapid.T) *lease {
				for _, l := range held {
					if !l.lost && time.Now().Before(l.expires) {
						return l
					}
				}
				rt.Skip("no lease is known")
				return nil
			}
			ttl := func(rt *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(1, 100).Draw(rt, "ttl")) * time.Second
			}
			rt.Repeat(map[string]func(*rapid.T){
				"grant": func(rt *rapid.T) {
					r := Request{N: rapid.IntRange(1, limit).Draw(rt, "n"), TTL: ttl(rt)}
					out, _ := s.pick(r)
					for _, p := range out.Picks {
						held = append(held, &lease{id: p.Lease.ID, expires: time.Now().Add(r.TTL)})
					}
				},
				"end": func(rt *rapid.T) {
					l := known(rt)
					if _, err := s.EndLease(l.id, Unreachable, nil); err != nil {
						rt.Error(err)
					}
					held = slices.DeleteFunc(held, func(o *lease) bool { return o == l })
				},
				"renew": func(rt *rapid.T) {
					l, d := known(rt), ttl(rt)
					if _, err := s.RenewLease(l.id, d); err != nil {
						rt.Error(err)
					}
					l.expires = time.Now().Add(d)
				},
				"wait": func(rt *rapid.T) {
					time.Sleep(time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(rt, "time")))
				},
				"restart": func(*rapid.T) { s.restart(t) },
				"crash": func(*rapid.T) {
					s.crash(t)
					crashed = true
					for _, l := range held {
						l.lost = true
					}
				},
				"": func(rt *rapid.T) {
					time.Sleep(2 * wheel.Tick)
					synctest.Wait()
					now, least := time.Now(), 0
					held = slices.DeleteFunc(held, func(l *lease) bool { return !now.Before(l.expires.Add(2 * wheel.Tick)) }) // they end a bit later
					for _, l := range held {
						if now.Before(l.expires) {
							least++
						}
					}
					c, err := s.ledger.Find("orders", "")
					noError(rt, err)
					n := int(c.Leaves[0].Counters.Breaker.InFlight())
					if n < least || n > limit+limit/4 || !crashed && (n > len(held) || n > limit) {
						rt.Fatalf("%d to %d in flight of at most %d, %d count", least, len(held), limit, n)
					}
				},
			})
			time.Sleep(MaxTTL + time.Minute)
			synctest.Wait()
			s.expect(0)
			if left := s.read(t); len(left.Leaves) > 0 {
				rt.Errorf("%+v is left", left)
			}
		})
	})
}

// However often a daemon crashes, and whatever else is leased meanwhile: a lost lease counts for its ttl after the first
// crash.
func TestLostLeaseInCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t, 20)
		_, err := s.pick(Request{N: 10, TTL: 100 * time.Second})
		noError(t, err)
		for range 8 {
			s.crash(t)
			s.expect(10)
			out, err := s.pick(Request{TTL: 2 * time.Minute})
			noError(t, err)
			_, err = s.EndLease(out.Picks[0].Lease.ID, Success, nil)
			noError(t, err)
			time.Sleep(14 * time.Second)
		}
		s.expect(0)
		s.close()
	})
}

// The next process knows all of a lease, and beyond a limit only the number of leases.
func TestHandedOverLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t, 2*MaxHandedOver)
		out, err := s.pick(Request{TTL: time.Minute, Owner: owned("web", "job-1")})
		noError(t, err)
		id := out.Picks[0].Lease.ID
		time.Sleep(10 * time.Second)
		before, _ := s.Lease(id)
		s.restart(t)
		if after, err := s.Lease(id); err != nil || after != before {
			t.Errorf("%+v, %v; was %+v", after, err, before)
		}
		if list, _ := s.Leases(LeaseFilter{OlderThan: 10 * time.Second, Limit: 9}); len(list) != 1 {
			t.Errorf("%d leases are 10 s old", len(list))
		}
		if b := s.LeasesByAddress("orders"); b["a-0"] != 1 {
			t.Errorf("%v", b)
		}
		for range MaxHandedOver / 1000 {
			if _, err := s.pick(Request{N: 1000, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		s.restart(t)
		s.expect(MaxHandedOver + 1)
		if list, _ := s.Leases(LeaseFilter{Owner: LostOwner, Limit: 9}); len(list) != 1 {
			t.Errorf("%d leases are unknown", len(list))
		}
	})
}
