package fleet

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// sessionTTL is how long a session lives without its replica. etcd extends it after an election.
	sessionTTL = 10 * time.Second
	// margin is the difference that two clocks may have over the longest time that is measured.
	margin = time.Second
	// spread is the time over which replicas spread what they would do at the same moment.
	spread = 2 * time.Second

	fast = 100 * time.Millisecond
	slow = 2 * time.Second
	// callTimeout ends a call to etcd.
	callTimeout = 3 * time.Second
	// maxRetry limits the time between two attempts.
	maxRetry = 5 * time.Second

	minBound = time.Second
	// idSize is the length of an ID, of 5 random bits each: each change of a share sends one to every replica.
	idSize = 16
)

// Options are the parts that a Fleet is made of.
type Options struct {
	// Connect returns a client of the etcd that the replicas share. It is called until it returns no
	// error. Run closes the client.
	Connect func(ctx context.Context) (*clientv3.Client, error)
	// Prefix is that of its keys, with a slash at the end.
	Prefix string
	// Replica returns what this process is. It is called after Ready. The ID is ignored.
	Replica func() roster.Replica
	// MaxTTL is the longest time of a lease.
	MaxTTL time.Duration
	// Ready reports whether the prefix may be used: the store has verified that it is the fleet's.
	Ready func() bool
	// Summary returns what other replicas should know of this one. It may wait until ctx ends.
	Summary func(ctx context.Context) roster.Summary
	Log     *slog.Logger
}

// Fleet shares limits with the other replicas. It belongs to one goroutine, Run.
type Fleet struct {
	// Fixed after build.
	options Options
	id      string
	store   store
	log     *slog.Logger
	clock   func() time.Duration // [policy.Clock]

	events chan func() // that Run executes
	wake   wake.One
	ended  chan struct{} // closed when Run executes no more
	// joinedUntil is the deadline of the session, of clock; 0 without one.
	joinedUntil atomic.Int64
	// present are the replicas that have a session, this one included. It is replaced, never changed.
	present atomic.Pointer[[]roster.Replica]

	mu     sync.Mutex // guards wanted
	wanted map[*policy.ClusterCounters]want

	// Owned by Run.
	limits   map[string]*limit
	session  int64
	deadline time.Duration
	view     view // what the watch has seen
	list     []share.Session

	summaries summaries
}

// New returns a Fleet that has joined no other replica yet. Its ID is random.
func New(o Options) *Fleet {
	return newFleet(&etcd{dial: o.Connect, prefix: o.Prefix, ttl: sessionTTL}, o)
}

func newFleet(s store, o Options) *Fleet {
	return &Fleet{
		options: o, id: rand.Text()[:idSize], store: s, log: o.Log, clock: policy.Clock,
		events: make(chan func()), wake: wake.NewOne(), ended: make(chan struct{}),
		wanted: make(map[*policy.ClusterCounters]want), limits: make(map[string]*limit),
	}
}

// ID identifies this process among the replicas.
func (f *Fleet) ID() string { return f.id }

// Joined reports whether the process has a session that etcd cannot have ended. Without one, it admits no
// requests of limits of the fleet.
func (f *Fleet) Joined() bool { return f.clock() < time.Duration(f.joinedUntil.Load()) }

// Shares reports whether there are limits of the fleet in this process.
func (f *Fleet) Shares() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.wanted) > 0
}

// Share makes the limit of counters one of the fleet, until as many calls of Unshare. The last limit
// applies.
func (f *Fleet) Share(c *policy.ClusterCounters, limit uint32) {
	f.mu.Lock()
	w := f.wanted[c]
	f.wanted[c] = want{int64(limit), w.users + 1}
	f.mu.Unlock()
	f.wake.Wake()
}

// Unshare reverts a call of Share. The process gives its share away as its requests end.
func (f *Fleet) Unshare(c *policy.ClusterCounters) {
	f.mu.Lock()
	w := f.wanted[c]
	if w.users--; w.users > 0 {
		f.wanted[c] = w
	} else {
		delete(f.wanted, c)
	}
	f.mu.Unlock()
	f.wake.Wake()
}

// Run shares limits until ctx ends. Then it publishes what this process still holds, as its leases go on
// without it. It must end before the leases are released. It is called once.
func (f *Fleet) Run(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var calls sync.WaitGroup
	calls.Go(func() { f.keepSession(background) })
	defer f.store.close()
	defer func() {
		close(f.ended) // calls that wait for Run do not end otherwise
		cancel()
		ended := make(chan struct{})
		go func() { calls.Wait(); close(ended) }()
		for {
			select {
			case <-f.events: // calls that report to nothing
			case <-ended:
				return
			}
		}
	}()
	tick := time.NewTicker(fast)
	defer tick.Stop()
	for ctx.Err() == nil {
		all := false
		select {
		case <-tick.C:
			all = true
			f.follow()
		case <-f.wake:
			f.follow()
		case do := <-f.events:
			do()
		case <-ctx.Done():
		}
		for _, l := range f.limits {
			if all || l.due {
				f.turn(background, l, &calls)
			}
		}
	}
	f.leave(background, tick.C, &calls)
	return nil
}

// leave gives away what is not in use.
func (f *Fleet) leave(ctx context.Context, tick <-chan time.Time, calls *sync.WaitGroup) {
	for _, l := range f.limits {
		l.machine.Leave()
	}
	for end := f.clock() + slow; f.clock() < end && f.session != 0; {
		settled := true
		for _, l := range f.limits {
			f.turn(ctx, l, calls)
			settled = settled && l.machine.Settled()
		}
		if settled {
			break
		}
		select {
		case <-tick:
		case do := <-f.events:
			do()
		}
	}
	for _, l := range f.limits { // before the session ends: from then on others count the ttl of leases down
		l.close()
	}
	if f.session != 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := f.store.revoke(ctx, f.session); err != nil {
			f.log.Warn("the session of the fleet ends by itself", "error", err)
		}
	}
	f.joinedUntil.Store(0)
}

// do executes a function in Run.
func (f *Fleet) do(do func()) { f.events <- do }

// ask executes a function in Run, and waits for it, unless ctx has ended, or Run executes no more.
func (f *Fleet) ask(ctx context.Context, do func()) {
	done := make(chan struct{})
	select {
	case f.events <- func() { do(); close(done) }:
	case <-ctx.Done():
		return
	case <-f.ended:
		return
	}
	select {
	case <-done:
	case <-f.ended: // it was one of the last, which are not executed
	}
}
