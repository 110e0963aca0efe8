package resource_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// parsed reads an assignment that must be valid.
func parsed(t *testing.T, body string) *resource.Assignment {
	t.Helper()
	d, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Name: "orders"})
	noError(t, err)
	return d.Assignment
}

func TestReuse(t *testing.T) {
	const (
		a = iota
		b
	)
	h, i, j, k := endpoint("h"), endpoint("i"), endpoint("j"), endpoint("k")
	before := localities(locality("a", 0, 1, h, i), locality("b", 0, 1, j))
	for _, c := range []struct {
		name       string
		after      string
		all        bool
		localities []int            // for each locality, which of before it is, or -1
		endpoints  []map[string]int // for each locality that is new, address → the locality of before that lends it, or -1
	}{
		{"the same", before, true, nil, nil},
		{"an endpoint more", localities(locality("a", 0, 1, h, i, k), locality("b", 0, 1, j)), false, []int{-1, b}, []map[string]int{{"h:80": a, "i:80": a, "k:80": -1}, nil}},
		{"an endpoint less", localities(locality("a", 0, 1, i), locality("b", 0, 1, j)), false, []int{-1, b}, []map[string]int{{"i:80": a}, nil}},
		{"another order of endpoints", localities(locality("a", 0, 1, i, h), locality("b", 0, 1, j)), false, []int{-1, b}, []map[string]int{{"h:80": a, "i:80": a}, nil}},
		{"another order of localities", localities(locality("b", 0, 1, j), locality("a", 0, 1, h, i)), false, []int{b, a}, []map[string]int{nil, nil}},
		{"another weight", localities(locality("a", 0, 2, h, i), locality("b", 0, 1, j)), false, []int{-1, b}, []map[string]int{{"h:80": a, "i:80": a}, nil}},
		{"another priority", localities(locality("a", 0, 1, h, i), locality("b", 1, 1, j)), false, []int{a, -1}, []map[string]int{nil, {"j:80": b}}},
		{
			"an endpoint in another locality bears its name, and is another", localities(locality("a", 0, 1, h, i, j), locality("b", 0, 1)),
			false,
			[]int{-1, -1},
			[]map[string]int{{"h:80": a, "i:80": a, "j:80": -1}, {}},
		},
		{
			"another health", localities(locality("a", 0, 1, endpoint("h", `"health_status":2`), i), locality("b", 0, 1, j)),
			false,
			[]int{-1, b},
			[]map[string]int{{"h:80": -1, "i:80": a}, nil},
		},
		{"nothing is left", localities(locality("c", 0, 1, k)), false, []int{-1}, []map[string]int{{"k:80": -1}}},
		{"empty", localities(), false, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			prev, fresh, want := parsed(t, before), parsed(t, c.after), parsed(t, c.after)
			untouched := parsed(t, before)
			got := fresh.Reuse(prev)
			if (got == prev) != c.all {
				t.Fatalf("prev itself: %v", got == prev)
			}
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(fresh, want) || !reflect.DeepEqual(prev, untouched) {
				t.Errorf("the content changed")
			}
			for n, from := range c.localities {
				l := got.Localities[n]
				if from >= 0 {
					if l != prev.Localities[from] {
						t.Errorf("locality %d is not the one before", n)
					}
					continue
				}
				for _, e := range l.Endpoints {
					from, ok := c.endpoints[n][e.Addresses[0]]
					if !ok {
						t.Fatalf("endpoint %s was not expected", e.Addresses[0])
					}
					if (from >= 0) != lends(prev, from, e) {
						t.Errorf("endpoint %s: the one before: %v", e.Addresses[0], from < 0)
					}
				}
			}
		})
	}
}

// lends reports whether locality n of prev, or any for n < 0, holds e itself.
func lends(prev *resource.Assignment, n int, e *resource.Endpoint) bool {
	for i, l := range prev.Localities {
		for _, old := range l.Endpoints {
			if old == e && (n < 0 || n == i) {
				return true
			}
		}
	}
	return false
}

func TestReuseOfEveryFieldOfAnEndpoint(t *testing.T) {
	id := resource.Locality{Zone: "a"}
	base := resource.Endpoint{Addresses: []string{"h:80", "i:80"}, Hostname: "n", Health: 1, Weight: 1, HashKey: "k", Locality: id}
	with := func(e resource.Endpoint) *resource.Assignment {
		return &resource.Assignment{Localities: []*resource.LocalityEndpoints{{ID: id, Weight: 1, Endpoints: []*resource.Endpoint{&e}}}}
	}
	changes := map[string]func(*resource.Endpoint){
		"Addresses": func(e *resource.Endpoint) { e.Addresses = []string{"h:80"} },
		"Hostname":  func(e *resource.Endpoint) { e.Hostname = "m" },
		"Health":    func(e *resource.Endpoint) { e.Health = 2 },
		"Weight":    func(e *resource.Endpoint) { e.Weight = 2 },
		"HashKey":   func(e *resource.Endpoint) { e.HashKey = "l" },
		"Locality":  func(e *resource.Endpoint) { e.Locality.Region = "r" },
		"TTL":       func(e *resource.Endpoint) { e.TTL = 1 },
	}
	if n := reflect.TypeFor[resource.Endpoint]().NumField(); n != len(changes) {
		t.Fatalf("an endpoint has %d fields, %d are tried", n, len(changes))
	}
	prev := with(base)
	for name, change := range changes {
		changed := base
		change(&changed)
		a := with(changed)
		if got := a.Reuse(prev); got.Localities[0] != a.Localities[0] {
			t.Errorf("a changed %s goes unseen", name)
		}
	}
	if with(base).Reuse(prev) != prev {
		t.Error("the same is not prev")
	}
}

func TestReuseOfNameAndDrops(t *testing.T) {
	dropping := func(perMillion uint64) *resource.Assignment {
		return &resource.Assignment{Name: "orders", Drops: []resource.Drop{{Category: "a", PerMillion: perMillion}}}
	}
	prev := dropping(10_000)
	if got := dropping(20_000).Reuse(prev); got == prev || got.Drops[0].PerMillion != 20_000 {
		t.Errorf("%+v", got)
	}
	renamed := &resource.Assignment{Name: "other", Drops: prev.Drops}
	if got := renamed.Reuse(prev); got == prev || got.Name != "other" {
		t.Errorf("%+v", got)
	}
	if got := prev.Reuse(nil); got != prev {
		t.Errorf("without a previous one: %+v", got)
	}
}

// TestReuseFindsAllEndpoints makes random changes of many endpoints, and compares what Reuse
// finds with what there is.
func TestReuseFindsAllEndpoints(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	assignment := func(ports ...[]int) *resource.Assignment {
		a := &resource.Assignment{Name: "orders"}
		for i, list := range ports {
			l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: strconv.Itoa(i)}, Weight: 1}
			for _, port := range list {
				l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{strconv.Itoa(port)}, Weight: uint32(1 + port%7), Locality: l.ID})
			}
			a.Localities = append(a.Localities, l)
		}
		return a
	}
	for range 300 {
		before := [2][]int{random.Perm(100)[:60], nil}
		for p := range 40 {
			before[1] = append(before[1], 1000+p)
		}
		after := [2][]int{slices.Clone(before[0]), slices.Clone(before[1])}
		for n := range random.IntN(15) {
			l := &after[random.IntN(2)]
			i := random.IntN(len(*l))
			switch random.IntN(4) {
			case 0:
				*l = slices.Delete(*l, i, i+1)
			case 1:
				*l = slices.Insert(*l, i, 2000+n)
			case 2:
				(*l)[i] = 2000 + n
			default:
				k := random.IntN(len(*l))
				(*l)[i], (*l)[k] = (*l)[k], (*l)[i]
			}
		}
		prev, next := assignment(before[:]...), assignment(after[:]...)
		if changed := next.Localities[0].Endpoints[0]; random.IntN(2) == 0 {
			changed.Health = resource.HealthDraining
		}
		if random.IntN(2) == 0 { // as the decoder does
			next = next.Reuse(prev)
		}
		want := map[string]*resource.Endpoint{}
		for _, l := range prev.Localities {
			for _, e := range l.Endpoints {
				want[e.Addresses[0]] = e
			}
		}
		got := next.Reuse(prev)
		if !reflect.DeepEqual(got, next) {
			t.Fatalf("%v → %v: %v", before, after, got)
		}
		for _, l := range got.Localities {
			for _, e := range l.Endpoints {
				if was := want[e.Addresses[0]]; was != nil && was != e && reflect.DeepEqual(was, e) {
					t.Fatalf("%v → %v: %s is not shared", before, after, e.Addresses[0])
				}
			}
		}
	}
}
