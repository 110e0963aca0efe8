package picks

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// fieldsSet returns the names of the fields of a struct that are not zero.
func fieldsSet(s any) (set []string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			set = append(set, v.Type().Field(i).Name)
		}
	}
	return set
}

// TestUsedAgain: an answer and its picks keep nothing of those before, except for memory.
func TestUsedAgain(t *testing.T) {
	e := &resource.Endpoint{Addresses: []string{"a:1"}}
	p := Pick{
		Cluster: "c", Address: "a:1", Endpoint: e, Priority: 1,
		Lease: Lease{LeaseID{slot: 1}, time.Unix(1, 0)}, Explain: []Step{{}}, upstream: new(policy.Upstream),
		shared: new(policy.SharedLimit),
	}
	out := Picks{
		Cluster: "c", Target: "t", Generation: 1, Stale: true, Age: time.Second, Picks: []Pick{p},
		Dropped: map[string]int{"d": 1}, CircuitBroken: 1, call: new(call),
	}
	for _, s := range []any{p, out} {
		if n := reflect.TypeOf(s).NumField(); len(fieldsSet(s)) != n {
			t.Fatalf("%T: the test sets only %v of %d fields", s, fieldsSet(s), n)
		}
	}
	out.restart("next")
	if got := fieldsSet(out); !slices.Equal(got, []string{"Cluster", "Picks", "call"}) || out.Cluster != "next" || len(out.Picks) != 0 {
		t.Errorf("an answer to the next request has %v: %+v", got, out)
	}
	p.set(&policy.Call{Cluster: "next", Address: "b:1", Endpoint: e, Priority: 2})
	if got := fieldsSet(p); !slices.Equal(got, []string{"Cluster", "Address", "Endpoint", "Priority"}) ||
		p.Cluster != "next" || p.Address != "b:1" || p.Endpoint != e || p.Priority != 2 {
		t.Errorf("the next pick has %v: %+v", got, p)
	}
}
