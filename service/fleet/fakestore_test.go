package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
)

// fakeStore behaves as etcd: one history of all keys, sessions that expire, watches from a revision.
type fakeStore struct {
	mu       sync.Mutex
	now      view
	heads    map[string]int64 // the last updates of records; of those that were deleted by hand, too
	log      []changes
	expires  map[int64]time.Time
	sessions int64
	restored int    // how often
	onEnd    func() // called when a session ends; may be nil
	attempts atomic.Int64
	// published are the summaries.
	published map[string][]byte
	changed   chan struct{} // closed at each revision
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		now: view{1, make(map[string]stored), make(map[string]member)}, expires: make(map[int64]time.Time), changed: make(chan struct{}),
		heads: make(map[string]int64), published: make(map[string][]byte),
	}
}

// commit adds a revision. The caller holds mu.
func (s *fakeStore) commit(change func(c changes)) int64 {
	s.now.revision++
	c := changes{s.now.revision, make(map[string]stored), make(map[string]member)}
	change(c)
	for key, r := range c.records {
		s.now.records[key] = r
		if !r.exists {
			delete(s.now.records, key)
		}
	}
	for replica, m := range c.members {
		s.now.members[replica] = m
		if m.session == 0 {
			delete(s.now.members, replica)
			delete(s.published, replica)
		}
	}
	s.log = append(s.log, c)
	close(s.changed)
	s.changed = make(chan struct{})
	return c.revision
}

// records returns those of now.
func (s *fakeStore) records() map[string]stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.now.records)
}

// expire ends the sessions whose time is over. The caller holds mu.
func (s *fakeStore) expire() {
	for session, at := range s.expires {
		if !time.Now().Before(at) {
			s.end(session)
		}
	}
}

func (s *fakeStore) end(session int64) {
	delete(s.expires, session)
	if s.onEnd != nil {
		s.onEnd()
	}
	for replica, m := range s.now.members {
		if m.session == session {
			s.commit(func(c changes) { c.members[replica] = member{} })
		}
	}
}

var errCut = errors.New("connection lost")

// link is a connection to the store, with delays.
type link struct {
	*fakeStore

	mu  sync.Mutex
	cut bool
}

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// pass is the way of a message. A message on a connection that is cut gets no answer.
func (l *link) pass(ctx context.Context) error {
	time.Sleep(time.Duration(500+rand.IntN(3000)) * time.Microsecond)
	if l.isCut() {
		<-ctx.Done()
		return errCut
	}
	return nil
}

// call executes f at the store, between the request and the answer.
func (l *link) call(ctx context.Context, f func()) error {
	if err := l.pass(ctx); err != nil {
		return err
	}
	l.fakeStore.mu.Lock()
	l.expire()
	f()
	l.fakeStore.mu.Unlock()
	return l.pass(ctx)
}

const fakeTTL = 3 * time.Second

func (l *link) connect(context.Context) error { return nil }

func (l *link) close() {}

func (l *link) grant(ctx context.Context) (session int64, ttl time.Duration, err error) {
	err = l.call(ctx, func() {
		l.sessions++
		session = l.sessions
		l.expires[session] = time.Now().Add(fakeTTL)
		time.AfterFunc(fakeTTL, l.tick)
	})
	return session, fakeTTL, err
}

func (l *link) tick() {
	l.fakeStore.mu.Lock()
	defer l.fakeStore.mu.Unlock()
	l.expire()
}

func (l *link) keepAlive(ctx context.Context, session int64) (time.Duration, error) {
	lost := false
	err := l.call(ctx, func() {
		if _, ok := l.expires[session]; !ok {
			lost = true
			return
		}
		l.expires[session] = time.Now().Add(fakeTTL)
		time.AfterFunc(fakeTTL, l.tick)
	})
	if lost && err == nil {
		err = errNoSession
	}
	return fakeTTL, err
}

func (l *link) register(ctx context.Context, session int64, r roster.Replica) error {
	return l.call(ctx, func() { l.commit(func(c changes) { c.members[r.ID] = member{session, r} }) })
}

func (l *link) publish(ctx context.Context, _ int64, replica string, summary []byte) error {
	return l.call(ctx, func() { l.published[replica] = summary })
}

func (l *link) summaries(ctx context.Context) (all map[string][]byte, err error) {
	err = l.call(ctx, func() { all = maps.Clone(l.published) })
	return all, err
}

func (l *link) revoke(ctx context.Context, session int64) error {
	return l.call(ctx, func() { l.end(session) })
}

func (l *link) read(ctx context.Context) (v view, err error) {
	err = l.call(ctx, func() { v = view{l.now.revision, maps.Clone(l.now.records), maps.Clone(l.now.members)} })
	return v, err
}

func (l *link) watch(ctx context.Context, after int64, f func(changes)) error {
	restored := -1
	for {
		l.fakeStore.mu.Lock()
		if restored < 0 {
			restored = l.restored
		}
		if l.restored != restored {
			l.fakeStore.mu.Unlock()
			return errCut
		}
		i, _ := slices.BinarySearchFunc(l.log, after+1, func(c changes, revision int64) int { return cmp.Compare(c.revision, revision) })
		next := l.log[i:]
		changed := l.changed
		l.fakeStore.mu.Unlock()
		for _, c := range next {
			if l.isCut() {
				return errCut
			}
			time.Sleep(time.Millisecond)
			f(c)
			after = c.revision
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *link) replace(ctx context.Context, key string, u share.Update) (replaced bool, revision int64, err error) {
	l.attempts.Add(1)
	err = l.call(ctx, func() {
		if head := l.heads[key]; head <= u.Base && (head > 0 || !u.Exists) {
			replaced = true
			made := l.now.records[key].record.Without(func(e share.Entry) bool { return slices.Contains(u.Removed, e.Replica) })
			if u.Own.Replica != "" {
				made = made.With(u.Own)
			}
			_, live := l.expires[u.Own.Session] // after a restore, no session is, and the record may be one that the store has lost
			if live && !slices.Equal(made.Entries, u.Record.Entries) {
				panic(fmt.Sprintf("an update has the record %v, and makes %v", u.Record, made))
			}
			revision = l.commit(func(c changes) {
				c.records[key] = stored{record: u.Record, revision: l.now.revision, exists: len(u.Record.Entries) > 0}
			})
			if l.heads[key] = revision; len(u.Record.Entries) == 0 {
				delete(l.heads, key)
			}
		}
	})
	return replaced, revision, err
}
