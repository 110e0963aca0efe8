package service_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// examine returns the results of one check of a cluster.
func examine(t *testing.T, s *service.Service, cluster, check string, dial bool) []doctor.Check {
	t.Helper()
	e := &service.Examination{Cluster: cluster, Dial: dial}
	tried, notTried := s.Doctor.Attempts(t.Context(), e)
	r := s.Doctor.Examine(t.Context(), e, tried, notTried)
	return slices.DeleteFunc(r.Checks, func(c doctor.Check) bool { return c.Check != check || c.Cluster != cluster })
}

// endsAfter is a context that ends after so many looks.
type endsAfter struct {
	context.Context

	looks int
}

func (c *endsAfter) Done() <-chan struct{} {
	if c.looks--; c.looks >= 0 {
		return nil
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (c *endsAfter) Err() error {
	if c.looks >= 0 {
		return nil
	}
	return context.Canceled
}

// A cluster whose picks fail in the tree of a target is examined there, or as its own tree has it, if the other one is
// not known in time.
func TestTroubleOfAnotherTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.PushAll(t, s, servicetest.Assigned("orders", "a-0"), servicetest.Listener("shop", servicetest.Route("/", "orders")))
		for range 300 {
			if _, err := servicetest.Pick(s, picks.Request{Target: "xds:///shop", Path: "/", Exclude: []string{"a-0:80"}}); err == nil {
				t.Fatal("picked")
			}
		}
		time.Sleep(2 * time.Second)
		for looks := range 3 {
			r := s.Doctor.Examine(&endsAfter{t.Context(), looks}, &service.Examination{Cluster: "orders"}, nil, "")
			if unknown := strings.Contains(fmt.Sprint(r.Checks), "canceled"); unknown != (looks == 0) {
				t.Errorf("%d looks: %+v", looks, r.Checks)
			}
		}
	})
}

// TestPicksWithoutHashKey: a cluster with ring_hash whose picks have no key is a warning, for some minutes.
func TestPicksWithoutHashKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.PushAll(t, s, servicetest.Assigned("orders", "a-0", "a-1"))
		servicetest.Push(t, s, sources.Config, "orders", []byte(`{"type": "EDS", "lb_policy": "RING_HASH"}`))
		warned := func(want bool) {
			t.Helper()
			for _, cluster := range []string{"orders", ""} {
				r := s.Doctor.Examine(t.Context(), &service.Examination{Cluster: cluster}, nil, "")
				if got := slices.ContainsFunc(r.Checks, func(c doctor.Check) bool { return c.Check == "hash keys" }); got != want {
					t.Errorf("cluster %q: warned: %v, want %v", cluster, got, want)
				}
			}
		}
		pick := func(hash string) {
			t.Helper()
			if _, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Hash: hash, Wait: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		pick("alice")
		warned(false)
		pick("")
		warned(true)
		time.Sleep(4 * time.Minute)
		pick("alice")
		warned(true)
		time.Sleep(2 * time.Minute)
		warned(false)
		pick("")
		time.Sleep(6 * time.Minute)
		warned(false)
	})
}

// TestPicksAreComparedWithShares: picks that follow the shares of localities are good, and those that do
// not are a warning.
func TestPicksAreComparedWithShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 3, servicetest.Endpoints("a", 2)), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 2))))
		pickMany := func(n int, exclude ...string) {
			for range n {
				mustPick(t, s, picks.Request{Cluster: "orders", Exclude: exclude})
			}
		}
		pickMany(1)
		is := func(want doctor.Status, words string) {
			t.Helper()
			got := examine(t, s, "orders", "picks", false)
			if len(got) != 1 || got[0].Status != want || !strings.Contains(got[0].Found, words) {
				t.Errorf("got %+v, want %s %q", got, want, words)
			}
		}
		is(doctor.Skipped, "changed less than 10 s ago")
		time.Sleep(15 * time.Second)
		is(doctor.Skipped, "0 picks")
		pickMany(4000)
		is(doctor.OK, "4000 picks in 5s follow the shares of 2 localities")
		pickMany(1000, "a-0:80", "a-1:80")
		is(doctor.Warning, "do not follow the shares")
		time.Sleep(10 * time.Minute) // the sample is renewed
		pickMany(2000)
		is(doctor.OK, "2000 picks in")
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 2)), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 2))))
		pickMany(1)
		is(doctor.Skipped, "changed less than 10 s ago")
	})
}

// recordedDials answers attempts to connect, and records how many are under way at a time.
type recordedDials struct {
	made, now, most atomic.Int64
	hangs           bool
}

func (d *recordedDials) Try(ctx context.Context, a lb.Attempt, timeout time.Duration) (*x509.Certificate, error) {
	d.made.Add(1)
	d.most.Store(max(d.most.Load(), d.now.Add(1)))
	defer d.now.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if d.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if strings.HasPrefix(a.Address, "a-1:") {
		return nil, errors.New("dial tcp: connect: connection refused")
	}
	return &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Minute)}, nil
}

func (*recordedDials) Reconnect(string) int { return 2 }

// TestAttemptsAreBounded: one report connects to at most 100 endpoints, some at a time, for at most 5 s.
func TestAttemptsAreBounded(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs=%v", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := &recordedDials{hangs: hangs}
				s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Dialer, o.Sources.ConnectMode = dials, resource.ConnectTCP })
				servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 150))
				begun := time.Now()
				tried, notTried := s.Doctor.Attempts(t.Context(), &service.Examination{Cluster: "orders", Dial: true})
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("took %v", took)
				}
				if most := dials.most.Load(); most > 8 || int(dials.made.Load()) != len(tried) {
					t.Errorf("%d at a time, %d in all, %d results", most, dials.made.Load(), len(tried))
				}
				if !hangs && len(tried) != service.MaxAttempts || hangs && len(tried) > 24 || !strings.Contains(notTried, "50 more") {
					t.Errorf("%d tried, %q", len(tried), notTried)
				}
				n, err := s.Reconnect("orders")
				servicetest.Must(t, err)
				servicetest.Expect(t, "reconnecting", n, 2)
				for _, e := range []service.Examination{{Cluster: "orders"}, {Dial: true}, {Cluster: "absent", Dial: true}} {
					if tried, _ := s.Doctor.Attempts(t.Context(), &e); tried != nil {
						t.Errorf("%+v: %d tried", e, len(tried))
					}
				}
			})
		})
	}
}

// TestAttemptsAreReported: connections that fail, and certificates that expire soon, are in the report.
func TestAttemptsAreReported(t *testing.T) {
	s, _ := servicetest.Start(t, "", func(o *service.Options) {
		o.Dialer, o.Sources.ConnectMode = new(recordedDials), resource.ConnectTCP
		o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectTCP: nil}
	})
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	mustPick(t, s, picks.Request{Cluster: "orders"})
	got := examine(t, s, "orders", "connections", true)
	if len(got) != 2 || got[0].Status != doctor.Warning || !strings.Contains(got[0].Found, "1 endpoint is READY, but did not accept a connection now: a-1:80: ") {
		t.Errorf("got %+v", got)
	}
	if got := examine(t, s, "orders", "TLS", true); len(got) != 1 || !strings.Contains(got[0].Found, "a-0:80: the certificate expires at ") {
		t.Errorf("got %+v", got)
	}
}

// TestNamesThatAreSpelledAlike: an unknown cluster gets similar names, in the scope of the caller only.
func TestNamesThatAreSpelledAlike(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	for _, name := range []string{"orders", "orders-eu", "users", "prod/pay"} {
		servicetest.Push(t, s, sources.Endpoints, name, servicetest.Usable("a", 1))
	}
	for name, want := range map[string]string{"oders": "did you mean orders?", "Orders-EU": "did you mean orders-eu?", "pay": "did you mean prod/pay?", "ay": "push its endpoints", "unlike": "push its endpoints"} {
		if got := examine(t, s, name, "cluster", false); len(got) != 1 || !strings.Contains(got[0].Remedy, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
