package policy_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var (
	orders = resource.ServiceKey{Cluster: "orders"}
	zoneA  = resource.Locality{Region: "r", Zone: "a"}
	zoneB  = resource.Locality{Region: "r", Zone: "b"}
)

// text is a load in short: "dropped=2 x=1; a issued=1 ok=1 failed=0 now=0 m=2/0.5".
func text(l resource.Load) string {
	var parts []string
	var head strings.Builder
	head.WriteString(fmt.Sprintf("dropped=%d", l.Dropped))
	for _, category := range slices.Sorted(maps.Keys(l.Drops)) {
		head.WriteString(fmt.Sprintf(" %s=%d", category, l.Drops[category]))
	}
	for _, ll := range l.Localities {
		var s strings.Builder
		s.WriteString(fmt.Sprintf("%s issued=%d ok=%d failed=%d now=%d", ll.Locality.Zone, ll.Issued, ll.Succeeded, ll.Failed, ll.InProgress))
		for _, m := range slices.Sorted(maps.Keys(ll.Metrics)) {
			s.WriteString(fmt.Sprintf(" %s=%d/%g", m, ll.Metrics[m].Requests, ll.Metrics[m].Total))
		}
		parts = append(parts, s.String())
	}
	slices.Sort(parts)
	return strings.Join(append([]string{head.String()}, parts...), "; ")
}

// end ends a pick that is held, with the load that its upstream reported.
func end(c *policy.ClusterCounters, l *policy.LocalityLoad, o policy.Outcome, report *orcav3.OrcaLoadReport) {
	c.Hold(1 << 20)
	var call policy.Call
	call.HoldBreaker(c)
	call.HoldLoad(l)
	info := policy.NoInfo
	if report != nil {
		info = balancer.DoneInfo{ServerLoad: report}
	}
	call.Held().Finish(o, info)
}

// TestLoadReader: each reading is what came since the last that was acknowledged.
func TestLoadReader(t *testing.T) {
	all := policy.NewCounters()
	c := all.Acquire(orders)
	a, b := c.Locality(zoneA), c.Locality(zoneB)

	// What was counted before had no reader. What began before goes on.
	a.Start(true)
	a.Start(false)
	b.Start(false)
	c.Drop("x").Add(1)
	c.Breaker.Reject()
	r := all.ReadLoad(orders)
	expect := func(want string) {
		t.Helper()
		if got := text(r.Read()); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	expect("dropped=0; a issued=0 ok=0 failed=0 now=1")

	a.Start(true)
	a.Start(false)
	c.Drop("x").Add(2)
	c.Drop("").Add(1)
	c.Breaker.Reject()
	expect("dropped=4 x=2; a issued=2 ok=1 failed=0 now=2")
	end(c, a, policy.OutcomeError, nil)
	expect("dropped=4 x=2; a issued=2 ok=1 failed=1 now=1")
	r.Acknowledge()
	expect("dropped=0; a issued=0 ok=0 failed=0 now=1")
	b.Start(true)
	end(c, a, policy.OutcomeSuccess, nil)
	expect("dropped=0; a issued=0 ok=1 failed=0 now=0; b issued=1 ok=0 failed=0 now=1")
	end(c, b, policy.OutcomeExpired, nil) // after the reading that is acknowledged
	r.Acknowledge()
	expect("dropped=0")
	if !r.Read().Empty() {
		t.Error("a load of nothing is not empty")
	}

	// The counters stay while somebody reads them, and no longer.
	c.Release()
	if all.Get(orders) != c {
		t.Error("the counters went with the tree, before their last load was read")
	}
	r.Close()
	if all.Get(orders) != nil {
		t.Error("the counters stay")
	}
}

func TestOneLoadReaderAtATime(t *testing.T) {
	all := policy.NewCounters()
	all.ReadLoad(orders).Close()
	r := all.ReadLoad(orders)
	defer r.Close()
	defer func() {
		if recover() == nil {
			t.Error("two read the same load: each would take it for reported when the other has reported it")
		}
	}()
	all.ReadLoad(orders)
}

// TestLoadMetrics: which metrics of upstreams count (gRFC A85).
func TestLoadMetrics(t *testing.T) {
	report := &orcav3.OrcaLoadReport{
		CpuUtilization: 0.5, MemUtilization: 0.25, ApplicationUtilization: 2,
		NamedMetrics: map[string]float64{"x": 1.5, "y": 4},
		RequestCost:  map[string]float64{"x": 7}, Utilization: map[string]float64{"x": 1},
	}
	tests := []struct {
		name  string
		which *resource.LoadMetrics
		want  string
	}{
		{"none", nil, ""},
		{"cpu", &resource.LoadMetrics{CPUUtilization: true}, " cpu_utilization=2/0.5"},
		{"mem", &resource.LoadMetrics{MemUtilization: true}, " mem_utilization=2/0.25"},
		{"application", &resource.LoadMetrics{ApplicationUtilization: true}, " application_utilization=2/2"},
		{"some named", &resource.LoadMetrics{Named: []string{"w", "x"}}, " named_metrics.x=1/1.5"},
		{"all named", &resource.LoadMetrics{AllNamed: true}, " named_metrics.x=1/1.5 named_metrics.y=1/4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := policy.NewCounters()
			c := all.Acquire(orders)
			c.Metrics(tt.which)
			a := c.Locality(zoneA)
			a.Start(true)
			end(c, a, policy.OutcomeSuccess, report) // before anybody reads
			r := all.ReadLoad(orders)
			for range 3 {
				a.Start(true)
			}
			end(c, a, policy.OutcomeSuccess, report)
			end(c, a, policy.OutcomeError, &orcav3.OrcaLoadReport{}) // cpu and the like are 0 in it, and count
			end(c, a, policy.OutcomeSuccess, nil)
			want := "dropped=0; a issued=3 ok=2 failed=1 now=0" + tt.want
			for range 2 {
				if got := text(r.Read()); got != want {
					t.Fatalf("got  %s\nwant %s", got, want)
				}
			}
			a.Start(true)
			end(c, a, policy.OutcomeSuccess, report) // after the reading
			r.Acknowledge()
			want = strings.ReplaceAll("dropped=0; a issued=1 ok=1 failed=0 now=0"+tt.want, "=2/", "=1/")
			if got := text(r.Read()); got != want {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestNamedMetricsAreBounded: upstreams that make up names do not fill memory.
func TestNamedMetricsAreBounded(t *testing.T) {
	all := policy.NewCounters()
	c := all.Acquire(orders)
	c.Metrics(&resource.LoadMetrics{AllNamed: true})
	a := c.Locality(zoneA)
	r := all.ReadLoad(orders)
	ends := func(first int) {
		for i := range 300 {
			a.Start(true)
			end(c, a, policy.OutcomeSuccess, &orcav3.OrcaLoadReport{NamedMetrics: map[string]float64{fmt.Sprint(first + i): 1}})
		}
	}
	names := func() int { return len(r.Read().Localities[0].Metrics) }
	ends(0)
	if n := names(); n != 100 {
		t.Errorf("%d names, want 100", n)
	}
	ends(1000)
	if n := names(); n != 100 {
		t.Errorf("%d names of two times, want 100", n)
	}
	r.Acknowledge()
	ends(2000)
	if n := names(); n != 100 {
		t.Errorf("%d names after a report, want 100", n)
	}
}

// localities are those of these zones.
func localities(zones ...string) (out []*resource.LocalityEndpoints) {
	for _, z := range zones {
		out = append(out, &resource.LocalityEndpoints{ID: resource.Locality{Zone: z}})
	}
	return out
}

func drops(categories ...string) (out []resource.Drop) {
	for _, c := range categories {
		out = append(out, resource.Drop{Category: c})
	}
	return out
}

// TestNamesThatChangeAreBounded: categories and localities that change every
// minute for a week take the memory of a few; those named, held or unreported
// stay.
func TestNamesThatChangeAreBounded(t *testing.T) {
	const minutes = 7 * 24 * 60
	for _, reported := range []bool{false, true} {
		t.Run(fmt.Sprintf("reported=%t", reported), func(t *testing.T) {
			all := policy.NewCounters()
			c := all.Acquire(orders)
			var r *policy.LoadReader
			if reported {
				r = all.ReadLoad(orders)
			}
			c.Name(drops("always"), localities("always"))
			c.Name(drops("0"), localities("0"))
			c.Locality(resource.Locality{Zone: "0"}).Start(true) // held all the time
			var dropped, issued uint64
			for i := 1; i <= minutes; i++ {
				z := fmt.Sprint(i)
				c.Name(drops(z), localities(z))
				c.Drop(z).Add(1)
				c.Locality(resource.Locality{Zone: z}).Start(false)
				if reported {
					l := r.Read()
					dropped += l.Dropped
					for _, ll := range l.Localities {
						issued += ll.Issued
					}
					r.Acknowledge()
				}
				c.Unname(drops(fmt.Sprint(i-1)), localities(fmt.Sprint(i-1)))
				if d, l := len(c.Drops()), len(c.Loads()); d > 20 || l > 20 {
					t.Fatalf("minute %d: %d categories and %d localities are kept", i, d, l)
				}
			}
			loads := c.Loads()
			if _, ok := c.Drops()["always"]; !ok {
				t.Error("a category that a config names was given up")
			}
			if _, ok := loads[resource.Locality{Zone: "always"}]; !ok {
				t.Error("a locality that a config names was given up")
			}
			if loads[resource.Locality{Zone: "0"}].InProgress != 1 {
				t.Error("a locality was given up while a pick is held")
			}
			if reported && (dropped != minutes || issued != minutes+1) {
				t.Errorf("reported %d drops and %d picks of %d", dropped, issued, minutes)
			}
		})
	}
}

// TestUnreportedLoadIsKept while no reader takes the reports: the newest 1000 places.
func TestUnreportedLoadIsKept(t *testing.T) {
	all := policy.NewCounters()
	c := all.Acquire(orders)
	r := all.ReadLoad(orders)
	for i := range 1200 {
		z := fmt.Sprintf("%04d", i)
		c.Name(drops(z), localities(z))
		c.Drop(z).Add(1)
		c.Locality(resource.Locality{Zone: z}).Start(false)
		c.Unname(drops(z), localities(z))
	}
	l := r.Read()
	if len(l.Drops) != 1000 || l.Dropped != 1000 || len(l.Localities) != 1000 {
		t.Fatalf("%d categories, %d drops, %d localities; want 1000 each", len(l.Drops), l.Dropped, len(l.Localities))
	}
	for _, ll := range l.Localities {
		if ll.Locality.Zone < "0200" {
			t.Errorf("zone %s is kept, a newer one is not", ll.Locality.Zone)
		}
	}
	r.Acknowledge()
	c.Name(nil, localities("x"))
	c.Unname(nil, localities("x"))
	if n := len(c.Loads()); n != 16 {
		t.Errorf("%d localities are kept after the report, want 16", n)
	}
}

// TestLoadsAddUp: whatever is picked, ended, renamed and read in whatever order,
// and however many reports fail, the reports add up to it.
func TestLoadsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := policy.NewCounters()
		c := all.Acquire(orders)
		c.Metrics(&resource.LoadMetrics{AllNamed: true})
		r := all.ReadLoad(orders)
		var want, got resource.Load
		held := map[string]int{}
		sums := map[string]*resource.LocalityLoad{}
		wanted := map[string]*resource.LocalityLoad{}
		of := func(m map[string]*resource.LocalityLoad, zone string) *resource.LocalityLoad {
			if m[zone] == nil {
				m[zone] = &resource.LocalityLoad{Locality: resource.Locality{Zone: zone}, Metrics: map[string]resource.MetricLoad{}}
			}
			return m[zone]
		}
		zones := []string{"a", "b", "c"}
		named := zones[:1]
		c.Name(nil, localities(named...))
		read := func() { // a report that is taken
			l := r.Read()
			got.Dropped += l.Dropped
			for _, ll := range l.Localities {
				sum := of(sums, ll.Locality.Zone)
				sum.Issued += ll.Issued
				sum.Succeeded += ll.Succeeded
				sum.Failed += ll.Failed
				sum.InProgress = ll.InProgress
				for name, m := range ll.Metrics {
					s := sum.Metrics[name]
					sum.Metrics[name] = resource.MetricLoad{Requests: s.Requests + m.Requests, Total: s.Total + m.Total}
				}
			}
			r.Acknowledge()
		}
		zone := rapid.SampledFrom(zones)
		t.Repeat(map[string]func(*rapid.T){
			"pick": func(t *rapid.T) {
				z, hold := zone.Draw(t, "zone"), rapid.Bool().Draw(t, "hold")
				c.Locality(resource.Locality{Zone: z}).Start(hold)
				of(wanted, z).Issued++
				if hold {
					held[z]++
				} else {
					of(wanted, z).Succeeded++
				}
			},
			"end": func(t *rapid.T) {
				z := zone.Draw(t, "zone")
				if held[z] == 0 {
					t.Skip("nothing is held")
				}
				held[z]--
				o := rapid.SampledFrom([]policy.Outcome{policy.OutcomeSuccess, policy.OutcomeError, policy.OutcomeExpired}).Draw(t, "outcome")
				var report *orcav3.OrcaLoadReport
				if rapid.Bool().Draw(t, "load") {
					report = &orcav3.OrcaLoadReport{NamedMetrics: map[string]float64{"m": 0.5}}
					s := of(wanted, z).Metrics["named_metrics.m"]
					of(wanted, z).Metrics["named_metrics.m"] = resource.MetricLoad{Requests: s.Requests + 1, Total: s.Total + 0.5}
				}
				end(c, c.Locality(resource.Locality{Zone: z}), o, report)
				switch o {
				case policy.OutcomeSuccess:
					of(wanted, z).Succeeded++
				case policy.OutcomeError:
					of(wanted, z).Failed++
				default:
				}
			},
			"drop": func(*rapid.T) { c.Drop("x").Add(1); want.Dropped++ },
			"full": func(*rapid.T) { c.Breaker.Reject(); want.Dropped++ },
			"name": func(t *rapid.T) {
				before := named
				named = rapid.SliceOfNDistinct(zone, 0, 3, rapid.ID).Draw(t, "named")
				c.Name(nil, localities(named...))
				c.Unname(nil, localities(before...))
			},
			"report is lost": func(*rapid.T) { r.Read() },
			"report":         func(*rapid.T) { read() },
		})
		// A metric alone is no load: it waits for the next pick.
		for _, z := range zones {
			for ; held[z] > 0; held[z]-- {
				end(c, c.Locality(resource.Locality{Zone: z}), policy.OutcomeSuccess, nil)
				of(wanted, z).Succeeded++
			}
			c.Locality(resource.Locality{Zone: z}).Start(false)
			of(wanted, z).Issued++
			of(wanted, z).Succeeded++
		}
		read()
		if got.Dropped != want.Dropped || !reflect.DeepEqual(sums, wanted) {
			t.Fatalf("dropped %d, want %d", got.Dropped, want.Dropped)
		}
		r.Close()
	})
}
