package registration

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Removals are forgotten, so that a cluster whose endpoints come and go does not grow.
func TestRemovalsAreForgotten(t *testing.T) {
	table, now := New(Options{MaxExpired: 0.2}), time.Unix(1_000_000, 0)
	set := func(addresses ...string) {
		l := &resource.LocalityEndpoints{Weight: 1}
		for _, a := range addresses {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{a}, TTL: 5 * time.Second})
		}
		table.Set("orders", nil, &resource.Assignment{Localities: []*resource.LocalityEndpoints{l}}, now)
	}
	for range 10_000 {
		set("a:80", "b:80", "c:80")
		set("a:80", "b:80")
		now = now.Add(Interval / 5)
	}
	if n := len(table.clusters["orders"].removed); n < 15 || n > 21 {
		t.Errorf("%d removals of a ttl", n)
	}
	if n := table.clusters["orders"].removedSince(now.Add(-5 * time.Second)); n < 90 || n > 110 {
		t.Errorf("%d endpoints were removed in a ttl", n)
	}
}

// Every ttl has a class, of similar ones.
func TestClasses(t *testing.T) {
	for ttl, want := range map[time.Duration]Class{time.Second: 1, 1999 * time.Millisecond: 1, 2 * time.Second: 2, 30 * time.Second: 5, time.Hour: 12, 24 * time.Hour: 12} {
		if got := classOf(ttl); got != want || ttl < 2*time.Hour && got.Bound() <= ttl || got.Bound()/2 > ttl {
			t.Errorf("%v: class %d, below %v", ttl, got, got.Bound())
		}
	}
}
