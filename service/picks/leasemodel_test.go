package picks

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/wheel"
)

// modelLease is a lease in the model: a map has what the slots have.
type modelLease struct {
	cluster          string // orders, or an AGGREGATE of it
	owner            ledger.Owner
	granted, expires time.Time
	outcome          Outcome // empty while held
	ended            int     // number of leases that had ended before
}

// A model: whatever is granted, renewed, ended, listed and left to expire, each lease has the state of
// the model, and the cluster counts those that are held.
func TestLeaseModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, math.MaxUint32, locality("a", 0, 1, 1))
		k.aggregate("agg")
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			m := &leaseModel{k: k, leases: make(map[LeaseID]*modelLease)}
			defer m.clear()
			t.Repeat(map[string]func(*rapid.T){
				"grant": m.grant, "end": m.end, "renew": m.renew, "end many": m.endMany, "list": m.list,
				"wait": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "time")))
				},
				"": m.check,
			})
		})
	})
}

type leaseModel struct {
	k      *kit
	leases map[LeaseID]*modelLease
	ended  int
}

func (m *leaseModel) clear() {
	m.k.EndLeases(LeaseFilter{}, "")
	time.Sleep(wheel.Tick)
	synctest.Wait()
}

// draw returns the ID of a lease, held or ended.
func (m *leaseModel) draw(t *rapid.T) (LeaseID, *modelLease) {
	m.expire()
	if len(m.leases) == 0 {
		t.Skip("no lease yet")
	}
	ids := slices.SortedFunc(maps.Keys(m.leases), LeaseID.Compare)
	id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "lease")]
	return id, m.leases[id]
}

// expire ends the leases of the model whose time has come.
func (m *leaseModel) expire() {
	for _, l := range m.leases {
		if l.outcome == "" && !time.Now().Before(l.expires) {
			m.finish(l, Expired)
		}
	}
}

func (m *leaseModel) finish(l *modelLease, o Outcome) {
	l.outcome, l.ended = o, m.ended
	m.ended++
}

func (m *leaseModel) grant(t *rapid.T) {
	o := ledger.Owner{
		Identity: rapid.SampledFrom([]string{"", "web"}).Draw(t, "identity"), Name: fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "owner")),
	}
	if o.Name == "0" {
		o.Name = ""
	}
	ttl := time.Duration(rapid.Int64Range(1, int64(30*time.Second)).Draw(t, "ttl"))
	r := Request{Cluster: rapid.SampledFrom([]string{"orders", "agg"}).Draw(t, "cluster"), N: rapid.IntRange(1, 200).Draw(t, "n"), TTL: ttl, Owner: o}
	var out Picks
	noError(t, m.k.Pick(t.Context(), &r, &out))
	for _, p := range out.Picks {
		if m.leases[p.Lease.ID] != nil || !p.Lease.ExpiresAt.Equal(time.Now().Add(ttl)) {
			t.Fatalf("lease %v, %v", p.Lease.ID, p.Lease.ExpiresAt)
		}
		m.leases[p.Lease.ID] = &modelLease{cluster: r.Cluster, owner: o, granted: time.Now(), expires: p.Lease.ExpiresAt}
	}
}

func (m *leaseModel) end(t *rapid.T) {
	id, l := m.draw(t)
	o := rapid.SampledFrom([]Outcome{Success, Failure, Cancelled}).Draw(t, "outcome")
	s, err := m.k.EndLease(id, o, nil)
	if l.outcome == "" {
		m.finish(l, o)
	}
	m.same(t, id, l, s, err)
}

func (m *leaseModel) renew(t *rapid.T) {
	id, l := m.draw(t)
	ttl := time.Duration(rapid.Int64Range(1, int64(30*time.Second)).Draw(t, "ttl"))
	s, err := m.k.RenewLease(id, ttl)
	if l.outcome != "" {
		if code(err) != fault.UnknownLease {
			t.Fatalf("renew a lease that has ended: %v", err)
		}
		return
	}
	l.expires = time.Now().Add(ttl)
	m.same(t, id, l, s, err)
}

// settle waits until no lease was due so recently that it may still be held.
func (m *leaseModel) settle() {
	recent := func(l *modelLease) bool {
		late := time.Since(l.expires)
		return (l.outcome == "" || l.outcome == Expired) && late >= 0 && late <= 2*wheel.Tick
	}
	for slices.ContainsFunc(slices.Collect(maps.Values(m.leases)), recent) {
		time.Sleep(wheel.Tick)
	}
	synctest.Wait()
	m.expire()
}

func (m *leaseModel) endMany(t *rapid.T) {
	m.settle()
	f := LeaseFilter{Owner: fmt.Sprint(rapid.IntRange(1, 20).Draw(t, "owner")), Cluster: rapid.SampledFrom([]string{"", "orders", "agg"}).Draw(t, "cluster")}
	want := make(map[EndedLeases]int)
	for _, l := range m.leases {
		if l.outcome == "" && l.owner.Name == f.Owner && (f.Cluster != "agg" || l.cluster == "agg") {
			m.finish(l, Cancelled)
			want[EndedLeases{cmp.Or(f.Cluster, l.cluster), l.owner}]++
		}
	}
	if got := m.k.EndLeases(f, ""); !maps.Equal(got, want) {
		t.Fatalf("leases of %s: %v ended; want %v", f.Owner, got, want)
	}
}

func (m *leaseModel) list(t *rapid.T) {
	m.settle()
	var want []LeaseID
	for id, l := range m.leases {
		if l.outcome == "" {
			want = append(want, id)
		}
	}
	slices.SortFunc(want, LeaseID.Compare)
	var got []LeaseID
	f := LeaseFilter{Limit: rapid.IntRange(1, 300).Draw(t, "limit")}
	for more := true; more; {
		var list []LeaseState
		list, more = m.k.Leases(f)
		for _, s := range list {
			got = append(got, s.ID)
			m.same(t, s.ID, m.leases[s.ID], s, nil)
		}
		if more {
			f.After = got[len(got)-1].String()
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d leases are listed, or in another order; want %d", len(got), len(want))
	}
}

// same compares a state with the model.
func (m *leaseModel) same(t *rapid.T, id LeaseID, l *modelLease, s LeaseState, err error) {
	if err != nil && l.outcome != "" && m.ended-l.ended > endedInShard {
		return // so many have ended in all shards that it may be forgotten
	}
	want := LeaseState{
		ID: id, Cluster: l.cluster, Address: "a-0", Owner: l.owner, State: "held",
		GrantedAt: l.granted.UTC().Round(0), ExpiresAt: l.expires.UTC().Round(0),
	}
	if l.cluster == "agg" {
		want.Leaf = "orders"
	}
	if l.outcome != "" {
		want.State, want.Outcome, want.EndedAt = "ended", l.outcome, s.EndedAt
	}
	if err != nil || s != want || s.EndedAt.IsZero() != (l.outcome == "") {
		t.Fatalf("lease %#v, %v; want %#v", s, err, want)
	}
}

func (m *leaseModel) check(t *rapid.T) {
	synctest.Wait()
	m.expire()
	held := int64(0)
	for id, l := range m.leases {
		s, err := m.k.Lease(id)
		m.same(t, id, l, s, err)
		if l.outcome == "" {
			held++
		}
	}
	m.k.expect(held) // Lease has ended those that are due
}

// Leases are granted, used and listed from many goroutines at once; none is lost or ends twice.
func TestLeasesFromManyGoroutines(t *testing.T) {
	k := newKit(t, 0, nil, math.MaxUint32, locality("a", 0, 1, 3))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			var out Picks
			var ids []LeaseID
			for i := range 500 {
				r := Request{Cluster: "orders", TTL: time.Hour, N: 3, Owner: owned("", fmt.Sprint(worker%3, i%20))}
				if err := k.Pick(t.Context(), &r, &out); err != nil {
					t.Error(err)
					return
				}
				for _, p := range out.Picks {
					ids = append(ids, p.Lease.ID)
				}
				id := ids[(i*7)%len(ids)]
				for range 2 {
					if s, err := k.EndLease(id, Success, nil); err != nil || s.ID != id {
						t.Errorf("end: %+v, %v", s, err)
					}
				}
				if i%100 == 0 {
					k.Leases(LeaseFilter{Limit: 50})
					k.EndLeases(LeaseFilter{Owner: fmt.Sprint(worker%3, i%20)}, "")
				}
			}
		})
	}
	wg.Wait()
	c := k.expect(k.leases.count.Load())
	var held int64
	for _, h := range c.Totals.Leases.LargestNow(time.Now()) {
		held += h.Leases
	}
	if held == 0 {
		t.Error("no owner holds a lease")
	}
	k.EndLeases(LeaseFilter{}, "")
	k.expect(0)
	if ended := maps.Collect(c.Totals.Outcomes.All()); ended[Success]+ended[Cancelled] != 8*500*3 {
		t.Errorf("leases ended as %v", ended)
	}
	if h := c.Totals.Leases.LargestNow(time.Now()); h != nil {
		t.Errorf("owners without leases: %v", h)
	}
}

// An ID is that of one lease: neither another secret, nor an earlier or later use of the slot, nor a slot
// that does not exist is found. The number of the use may begin again.
func TestLeaseIDsAreCompared(t *testing.T) {
	k := newKit(t, 0, nil, 10, locality("a", 0, 1, 1))
	for i := range k.leases.shards {
		k.leases.shards[i].generation = math.MaxUint32
	}
	out, err := k.pick(Request{N: 3, TTL: time.Hour})
	noError(t, err)
	good := out.Picks[0].Lease.ID
	if good.generation != 0 {
		t.Errorf("generation %d", good.generation)
	}
	for name, change := range map[string]func(*LeaseID){
		"shard":        func(id *LeaseID) { id.shard ^= 1 },
		"no shard":     func(id *LeaseID) { id.shard = 255 },
		"slot":         func(id *LeaseID) { id.slot += 2 },
		"no slot":      func(id *LeaseID) { id.slot = math.MaxUint32 },
		"generation":   func(id *LeaseID) { id.generation++ },
		"first secret": func(id *LeaseID) { id.secret[0] ^= 1 << 63 },
		"other secret": func(id *LeaseID) { id.secret[1] ^= 1 },
		"no secret":    func(id *LeaseID) { id.secret = [2]uint64{} },
	} {
		id := good
		change(&id)
		_, e1 := k.Lease(id)
		_, e2 := k.EndLease(id, Success, nil)
		_, e3 := k.RenewLease(id, time.Second)
		for _, err := range []error{e1, e2, e3} {
			if code(err) != fault.UnknownLease || err.Error() != UnknownLease(id.String()).Error() {
				t.Errorf("another %s: %v", name, err)
			}
		}
	}
	if s, err := k.EndLease(good, Success, nil); err != nil || s.Outcome != Success {
		t.Errorf("%+v, %v", s, err)
	}
	k.expect(2)
}

// Picks into one answer use one shard for a while, and all shards equally often.
func TestGrantsUseAllShards(t *testing.T) {
	k := newKit(t, 0, nil, math.MaxUint32, locality("a", 0, 1, 1))
	r := Request{Cluster: "orders", TTL: time.Hour}
	var out Picks
	changes, last := 0, uint8(leaseShards)
	for range leaseShards * grantsInRow {
		noError(t, k.Pick(t.Context(), &r, &out))
		if shard := out.Picks[0].Lease.ID.shard; shard != last {
			changes++
			last = shard
		}
	}
	if changes > leaseShards+1 {
		t.Errorf("the shard changed %d times", changes)
	}
	for i := range k.leases.shards {
		if n := k.leases.shards[i].slots.Len(); n != grantsInRow {
			t.Errorf("shard %d has %d leases; want %d", i, n, grantsInRow)
		}
	}
}

// The last MaxEndedLeases leases that ended are remembered, approximately, and no more: their slots
// are used again.
func TestEndedLeasesAreForgotten(t *testing.T) {
	k := newKit(t, 0, nil, 10, locality("a", 0, 1, 1))
	var ids []LeaseID
	for range 2 * MaxEndedLeases {
		out, err := k.pick(Request{TTL: time.Hour})
		noError(t, err)
		id := out.Picks[0].Lease.ID
		if _, err := k.EndLease(id, Failure, nil); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	known := 0
	for _, id := range ids {
		if _, err := k.Lease(id); err == nil {
			known++
		}
	}
	if known != MaxEndedLeases {
		t.Errorf("%d ended leases are known", known)
	}
	for _, id := range ids[len(ids)-MaxEndedLeases/2:] {
		if s, err := k.EndLease(id, Success, nil); err != nil || s.Outcome != Failure {
			t.Fatalf("a repeated done: %+v, %v", s, err)
		}
	}
	if s := &k.leases.shards[0].slots; s.Len() != endedInShard {
		t.Errorf("%d slots are used", s.Len())
	}
}
