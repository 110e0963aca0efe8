package overlay_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// assignment has the endpoints a and b in zone 1, c in zone 2, and d in zone 1 of priority 1, which has
// the hostname "host".
func assignment() *resource.Assignment {
	endpoint := func(address string, l resource.Locality) *resource.Endpoint {
		return &resource.Endpoint{Addresses: []string{address + ":80"}, Weight: 1, Locality: l}
	}
	zone1, zone2 := resource.Locality{Region: "eu", Zone: "1"}, resource.Locality{Region: "eu", Zone: "2"}
	d := endpoint("d", zone1)
	d.Hostname = "host"
	return &resource.Assignment{
		Name:  "orders",
		Drops: []resource.Drop{{Category: "lb", PerMillion: 10_000}, {Category: "throttle", PerMillion: 20_000}},
		Localities: []*resource.LocalityEndpoints{
			{ID: zone1, Weight: 1, Endpoints: []*resource.Endpoint{endpoint("a", zone1), endpoint("b", zone1)}},
			{ID: zone2, Weight: 3, Endpoints: []*resource.Endpoint{endpoint("c", zone2)}},
			{ID: zone1, Weight: 1, Priority: 1, Endpoints: []*resource.Endpoint{d}},
		},
	}
}

// describe returns "p0 eu/1 w1: a b; …" with the first letter of a health that is not UNKNOWN, and the
// weight of an endpoint that is not 1, behind its name.
func describe(c *resource.Cluster, a *resource.Assignment) string {
	var out []string
	for _, l := range a.Localities {
		var s strings.Builder
		s.WriteString(fmt.Sprintf("p%d %s/%s w%d:", l.Priority, l.ID.Region, l.ID.Zone, l.Weight))
		for _, e := range l.Endpoints {
			s.WriteString(" " + strings.TrimSuffix(e.Addresses[0], ":80"))
			if e.Health != resource.HealthUnknown {
				s.WriteString("-" + e.Health.String()[:1])
			}
			if e.Weight != 1 {
				s.WriteString(fmt.Sprint("*", e.Weight))
			}
		}
		out = append(out, s.String())
	}
	for _, d := range a.Drops {
		out = append(out, fmt.Sprintf("%s %d", d.Category, d.PerMillion))
	}
	if c.OutlierDetection == nil {
		out = append(out, "no ejections")
	}
	return strings.Join(append(out, fmt.Sprint("max ", c.MaxRequests)), "; ")
}

func TestApply(t *testing.T) {
	t.Parallel()
	zone1 := &resource.LocalityPattern{Zone: "1"}
	for _, test := range []struct {
		name string
		list []resource.Overlay
		want string
	}{
		{"none", nil, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"drain an address", []resource.Overlay{{Kind: "drain", Endpoint: "a:80"}}, "p0 eu/1 w1: a-D b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"disable a hostname", []resource.Overlay{{Kind: "disable", Endpoint: "host"}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d-U; lb 10000; throttle 20000; max 7"},
		{"drain a locality of all priorities", []resource.Overlay{{Kind: "drain", Locality: zone1}}, "p0 eu/1 w1: a-D b-D; p0 eu/2 w3: c; p1 eu/1 w1: d-D; lb 10000; throttle 20000; max 7"},
		{"drain what is unknown", []resource.Overlay{{Kind: "drain", Endpoint: "x:80"}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"weight of an endpoint", []resource.Overlay{{Kind: "weight", Endpoint: "a:80", Factor: 0.5}}, "p0 eu/1 w1: a*500 b*1000; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"weight of a locality", []resource.Overlay{{Kind: "weight", Locality: zone1, Factor: 0.1}}, "p0 eu/1 w100: a b; p0 eu/2 w3000: c; p1 eu/1 w100: d; lb 10000; throttle 20000; max 7"},
		{"weight 0", []resource.Overlay{{Kind: "weight", Endpoint: "a:80"}}, "p0 eu/1 w1: a-D b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"force priority 1", []resource.Overlay{{Kind: "force_priority", Priority: 1}}, "p0 eu/1 w1: a-D b-D; p0 eu/2 w3: c-D; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"forbid priority 1", []resource.Overlay{{Kind: "forbid_priority", Priority: 1}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d-D; lb 10000; throttle 20000; max 7"},
		{"drop in a category", []resource.Overlay{{Kind: "drop", Category: "lb", PerMillion: 500_000}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; throttle 20000; lb 500000; max 7"},
		{"end one category", []resource.Overlay{{Kind: "drop", Category: "lb"}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; throttle 20000; max 7"},
		{"end all drops", []resource.Overlay{{Kind: "drop"}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; max 7"},
		{"all drops, then a category", []resource.Overlay{{Kind: "drop", PerMillion: 1}, {Kind: "drop", Category: "x", PerMillion: 2}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; overlay 1; x 2; max 7"},
		{"max_requests", []resource.Overlay{{Kind: "max_requests", MaxRequests: 3}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 3"},
		{"no ejections", []resource.Overlay{{Kind: "hold_ejections"}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; no ejections; max 7"},
		{"the newer of drain and disable", []resource.Overlay{{Kind: "disable", Endpoint: "a:80"}, {Kind: "drain", Endpoint: "a:80"}}, "p0 eu/1 w1: a-D b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"the newer of two weights", []resource.Overlay{{Kind: "weight", Endpoint: "a:80", Factor: 3}, {Kind: "weight", Endpoint: "a:80", Factor: 2}}, "p0 eu/1 w1: a*2000 b*1000; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"force what was forbidden", []resource.Overlay{{Kind: "forbid_priority", Priority: 1}, {Kind: "force_priority", Priority: 1}}, "p0 eu/1 w1: a-D b-D; p0 eu/2 w3: c-D; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7"},
		{"forbid what was forced", []resource.Overlay{{Kind: "force_priority", Priority: 1}, {Kind: "forbid_priority", Priority: 1}}, "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d-D; lb 10000; throttle 20000; max 7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			list := make([]*resource.Overlay, len(test.list))
			for i := range test.list {
				list[i] = &test.list[i]
			}
			of := &resource.Cluster{MaxRequests: 7, OutlierDetection: &resource.OutlierDetection{}}
			source := assignment()
			c, a := overlay.Apply(list, of, source)
			want := test.want
			if !strings.Contains(want, "no ejections") && c.OutlierDetection == nil {
				t.Error("ejections stopped")
			}
			if got := describe(c, a); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if was := describe(of, source); was != "p0 eu/1 w1: a b; p0 eu/2 w3: c; p1 eu/1 w1: d; lb 10000; throttle 20000; max 7" {
				t.Errorf("the source was changed: %s", was)
			}
		})
	}
}

// TestShares scales random weights: shares are what the factors say, and sums fit in 32 bits.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 20).Draw(t, "localities")
		source := &resource.Assignment{}
		var left uint64 = math.MaxUint32
		for i := range n {
			l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: fmt.Sprint(i)}}
			l.Weight = rapid.Uint32Range(1, uint32(left)-uint32(n-i)).Draw(t, "weight")
			left -= uint64(l.Weight)
			source.Localities = append(source.Localities, l)
		}
		factor := float64(rapid.IntRange(1, 1000).Draw(t, "factor")) / 100
		o := &resource.Overlay{Kind: resource.OverlayWeight, Locality: &resource.LocalityPattern{Zone: "0"}, Factor: factor}
		_, a := overlay.Apply([]*resource.Overlay{o}, nil, source)
		var sum uint64
		want := 0.0
		for i, l := range a.Localities {
			sum += uint64(l.Weight)
			if w := float64(source.Localities[i].Weight); i == 0 {
				want += w * factor
			} else {
				want += w
			}
		}
		if sum > math.MaxUint32 {
			t.Fatalf("weights add up to %d", sum)
		}
		share, wanted := float64(a.Localities[0].Weight)/float64(sum), float64(source.Localities[0].Weight)*factor/want
		if math.Abs(share-wanted) > 0.001 {
			t.Fatalf("share %v, want %v", share, wanted)
		}
	})
}

func TestExpired(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for at, want := range map[time.Time]bool{{}: false, now: true, now.Add(-1): true, now.Add(1): false} {
		if o := (&resource.Overlay{Expires: at}); o.Expired(now) != want {
			t.Errorf("expires %v: %v", at, !want)
		}
	}
}

// TestMasking: of contradicting overlays, the newer one takes an endpoint out of use. To ask for each of many endpoints
// costs little.
func TestMasking(t *testing.T) {
	list := []*resource.Overlay{
		{ID: "older", Kind: "drain", Endpoint: "a:80"}, {ID: "newer", Kind: "disable", Endpoint: "a:80"}, {ID: "last", Kind: "forbid_priority", Priority: 1},
	}
	by := overlay.Masking(list)
	a := assignment()
	for priority, want := range []string{"newer", "last"} {
		if got := by(uint32(priority), a.Localities[0].Endpoints[0]); got == nil || got.ID != want {
			t.Errorf("priority %d: %v", priority, got)
		}
	}
	if got := by(0, a.Localities[0].Endpoints[1]); got != nil {
		t.Errorf("%v takes b out of use", got.ID)
	}
	if n := testing.AllocsPerRun(100, func() { by(0, a.Localities[0].Endpoints[0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
