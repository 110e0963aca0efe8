package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/backoff"
)

// rejoinWait is the time that replicas take, each on average, to have another session after all have lost theirs.
const rejoinWait = 2 * time.Millisecond

// readyWait is the longest time between two looks whether the store is ready.
const readyWait = 200 * time.Millisecond

// errRemoved is the cause of the end of a session whose replica was removed from the store.
var errRemoved = errors.New("the replica was removed")

// keepSession has a session, and another one after it has ended, until ctx ends.
func (f *Fleet) keepSession(ctx context.Context) {
	wait := retry{}
	for ctx.Err() == nil {
		if f.options.Ready != nil && !f.options.Ready() {
			backoff.Sleep(ctx, rand.N(readyWait))
			continue
		}
		session, ttl, v, err := f.open(ctx)
		if err != nil {
			if wait.attempts == 0 {
				f.log.Warn("the fleet cannot be joined: requests of its limits are refused until then", "error", err)
			}
			wait.sleep(ctx)
			continue
		}
		wait = retry{}
		f.log.Info("joined the fleet", "replica", f.id)
		err = f.keep(ctx, session, ttl, v.revision)
		f.do(f.lost)
		if ctx.Err() == nil {
			f.log.Warn("the session of the fleet has ended: requests of its limits are refused until there is another one", "error", err)
			backoff.Sleep(ctx, rand.N(min(time.Duration(len(v.members)+1)*rejoinWait, spread))) // others may have lost theirs, too
		}
	}
}

// open creates a session and gives it to the machines.
func (f *Fleet) open(ctx context.Context) (int64, time.Duration, view, error) {
	if err := f.store.connect(ctx); err != nil {
		return 0, 0, view{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := f.clock()
	session, ttl, err := f.store.grant(ctx)
	if err != nil {
		return 0, 0, view{}, err
	}
	if err := f.store.register(ctx, session, f.self()); err != nil {
		return 0, 0, view{}, err
	}
	v, err := f.store.read(ctx)
	if err != nil {
		return 0, 0, view{}, err
	}
	f.do(func() { f.joinedWith(session, sent+ttl-margin, v) })
	return session, ttl, v, nil
}

// keep keeps a session alive until it has ended, or ctx.
func (f *Fleet) keep(ctx context.Context, session int64, ttl time.Duration, revision int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { f.watch(ctx, revision, cancel) })
	running.Go(func() { f.publish(ctx, session) })
	defer func() { cancel(nil); running.Wait() }()
	for {
		pause := ttl/3 - rand.N(ttl/10)
		sent := f.clock()
		switch left, err := limited(ctx, ttl/3, func(ctx context.Context) (time.Duration, error) { return f.store.keepAlive(ctx, session) }); {
		case errors.Is(err, errNoSession):
			return err
		case err == nil:
			f.do(func() { f.keptAlive(session, sent+left-margin) })
		default:
			pause = rand.N(ttl / 10)
		}
		if !backoff.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// limited calls a function of the store with a limit of time.
func limited[T any](ctx context.Context, timeout time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}

// watch follows the store after a revision, until ctx ends.
func (f *Fleet) watch(ctx context.Context, revision int64, end context.CancelCauseFunc) {
	wait := retry{}
	for {
		err := f.store.watch(ctx, revision, func(c changes) {
			wait = retry{}
			if m, ok := c.members[f.id]; ok && m.session == 0 {
				end(errRemoved)
			}
			f.do(func() { f.changed(c) })
		})
		for ctx.Err() == nil && err != nil {
			f.log.Debug("limits and replicas of the fleet are read again", "error", err)
			wait.sleep(ctx)
			var v view
			if v, err = limited(ctx, callTimeout, f.store.read); err == nil {
				revision = v.revision
				f.do(func() { f.reload(v) })
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// joinedWith begins a session with what was read in it.
func (f *Fleet) joinedWith(session int64, deadline time.Duration, v view) {
	f.session, f.deadline, f.view = session, deadline, v
	f.listSessions()
	f.joinedUntil.Store(int64(deadline))
	for _, l := range f.limits {
		f.begin(l)
	}
}

func (f *Fleet) keptAlive(session int64, deadline time.Duration) {
	if session != f.session {
		return
	}
	f.deadline = max(f.deadline, deadline)
	f.joinedUntil.Store(int64(f.deadline))
	for _, l := range f.limits {
		l.machine.KeptAlive(session, deadline)
		l.due = true
	}
}

func (f *Fleet) lost() {
	f.session = 0
	f.joinedUntil.Store(0)
	for _, l := range f.limits {
		l.machine.Lost()
		l.due = true
	}
}

// changed takes what the watch has seen.
func (f *Fleet) changed(c changes) {
	if c.revision <= f.view.revision {
		return
	}
	f.view.revision = c.revision
	for key, s := range c.records {
		if s.exists {
			f.view.records[key] = s
		} else {
			delete(f.view.records, key)
		}
		if l := f.limits[key]; l != nil {
			f.see(l, s)
		}
	}
	for replica, m := range c.members {
		if m.session == 0 {
			delete(f.view.members, replica)
		} else {
			f.view.members[replica] = m
		}
	}
	if len(c.members) > 0 {
		f.listSessions()
	}
	f.live()
}

// reload takes everything, after changes may have been missed.
func (f *Fleet) reload(v view) {
	if v.revision < f.view.revision {
		return
	}
	f.view = v
	f.listSessions()
	for key, l := range f.limits {
		f.see(l, v.record(key))
	}
	f.live()
}

// listSessions makes a new list: machines keep the last one.
func (f *Fleet) listSessions() {
	f.list = make([]share.Session, 0, len(f.view.members))
	live := make([]roster.Replica, 0, len(f.view.members))
	for replica, m := range f.view.members {
		f.list = append(f.list, share.Session{Replica: replica, ID: m.session})
		live = append(live, m.replica)
	}
	slices.SortFunc(f.list, share.Session.Compare)
	f.present.Store(&live)
}

func (f *Fleet) live() {
	for _, l := range f.limits {
		l.machine.Live(f.list, f.view.revision)
	}
}

// retry waits longer each time, by a random part of it: many replicas lose their etcd at once.
type retry struct{ attempts int }

func (r *retry) sleep(ctx context.Context) {
	most := min(100*time.Millisecond<<min(r.attempts, 10), maxRetry)
	r.attempts++
	backoff.Sleep(ctx, rand.N(most))
}
