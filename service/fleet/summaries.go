package fleet

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/backoff"
)

const (
	// minPublish is the shortest time between two summaries of one replica.
	minPublish = 2 * time.Second
	// publishShare is the time that each replica of a fleet adds to it, so that all of them publish 50
	// a second at most.
	publishShare = 20 * time.Millisecond
	// fresh is how long summaries that were read are used again.
	fresh = 2 * time.Second
)

// publish publishes the summary of this replica when it has changed, until ctx ends.
func (f *Fleet) publish(ctx context.Context, session int64) {
	if f.options.Summary == nil {
		return
	}
	var last roster.Summary
	published := false
	for n := 0; ctx.Err() == nil; {
		s := f.options.Summary(ctx)
		s.Bound()
		if !published || last.Differs(s) {
			published = f.publishOnce(ctx, session, s) == nil
			last = s
		}
		f.ask(ctx, func() { n = len(f.view.members) })
		d := minPublish + time.Duration(n)*publishShare
		backoff.Sleep(ctx, d/2+rand.N(d))
	}
}

func (f *Fleet) publishOnce(ctx context.Context, session int64, s roster.Summary) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f.store.publish(ctx, session, f.id, s.Encode())
}

// summaries are those of other replicas, as they were read last.
type summaries struct {
	mu    sync.Mutex    // held while they are read
	tried time.Duration // the last attempt to read them
	read  time.Duration
	all   map[string][]byte
	err   error
}

// summariesOf returns the summaries of all replicas, which may be as old as fresh.
func (f *Fleet) summariesOf(ctx context.Context) (all map[string][]byte, age time.Duration, err error) {
	s := &f.summaries
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := f.clock(); s.tried == 0 || now-s.tried >= fresh {
		read, err := limited(context.WithoutCancel(ctx), callTimeout, f.store.summaries) // others wait for it
		if s.err, s.tried = err, f.clock(); err == nil {
			s.all, s.read = read, now
		}
	}
	if s.all != nil {
		age = max(f.clock()-s.read, 1)
	}
	return s.all, age, s.err
}

// self returns what this process is.
func (f *Fleet) self() (r roster.Replica) {
	if f.options.Replica != nil {
		r = f.options.Replica()
	}
	r.ID = f.id
	return r
}

// Roster returns what this replica knows of all. It reads the summaries of the others, unless it did so just
// before; if it cannot, it has those that were read before, and why.
func (f *Fleet) Roster(ctx context.Context) *roster.Roster {
	r := &roster.Roster{Self: f.id}
	var members map[string]member
	f.ask(ctx, func() {
		members = maps.Clone(f.view.members)
		r.Limits = f.describe()
	})
	r.Joined = f.Joined()
	all, age, err := f.summariesOf(ctx)
	r.Age, r.Err = age, err
	if _, ok := members[f.id]; !ok {
		r.Members = append(r.Members, roster.Member{Replica: f.self()})
	}
	for _, m := range members {
		r.Members = append(r.Members, roster.Member{Replica: m.replica})
	}
	for i := range r.Members {
		m := &r.Members[i]
		if m.ID == f.id && f.options.Summary != nil {
			own := f.options.Summary(ctx)
			own.Bound()
			m.Summary = &own
		} else if b, ok := all[m.ID]; ok {
			if s, err := roster.DecodeSummary(b); err == nil {
				m.Summary = &s
			}
		}
	}
	r.Members = append(r.Members, goneOf(r.Limits, members)...)
	slices.SortFunc(r.Members, func(a, b roster.Member) int { return cmp.Compare(a.ID, b.ID) })
	return r
}

// Find returns a replica with an ID that matches; false if none is known.
func (f *Fleet) Find(ctx context.Context, match func(id string) bool) (o roster.Owner, ok bool) {
	if live := f.present.Load(); live != nil {
		for _, r := range *live {
			if match(r.ID) {
				return roster.Owner{Replica: r, Live: true}, true
			}
		}
	}
	f.ask(ctx, func() {
		for _, l := range f.describe() {
			for _, s := range l.Shares {
				if s.Gone && match(s.Replica) {
					o.ID, o.Left, ok = s.Replica, max(o.Left, s.Left), true
				}
			}
		}
	})
	return o, ok
}

// goneOf returns replicas that have only shares.
func goneOf(limits []roster.Limit, members map[string]member) (gone []roster.Member) {
	seen := make(map[string]bool)
	for _, l := range limits {
		for _, s := range l.Shares {
			if _, ok := members[s.Replica]; !ok && s.Gone && !seen[s.Replica] {
				seen[s.Replica] = true
				gone = append(gone, roster.Member{Replica: roster.Replica{ID: s.Replica}, Gone: true})
			}
		}
	}
	return gone
}

// describe returns the limits, also those that no config of this replica has.
func (f *Fleet) describe() []roster.Limit {
	var all []roster.Limit
	for key, s := range f.view.records {
		service, ok := serviceOf(key)
		if !ok {
			continue
		}
		record := s.record
		var m *share.Machine
		if l := f.limits[key]; l != nil {
			m = l.machine
			record = m.Record()
		}
		limit := roster.Limit{Cluster: service.Cluster, EDSServiceName: service.EDSServiceName}
		for _, e := range record.Entries {
			one := roster.Share{Entry: e, Gone: f.view.members[e.Replica].session != e.Session}
			if one.Gone {
				one.Left = e.Bound + margin + spread
				if m != nil {
					one.Left = m.Left(e)
				}
			}
			limit.Shares = append(limit.Shares, one)
		}
		all = append(all, limit)
	}
	slices.SortFunc(all, func(a, b roster.Limit) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.EDSServiceName, b.EDSServiceName))
	})
	return all
}
