package fleet

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fleet/share"
)

const (
	// sessionTTL is how long a session lives without its replica. etcd extends it after an election.
	sessionTTL = 10 * time.Second
	// margin is the difference that two clocks may have over the longest time that is measured.
	margin = time.Second

	fast = 100 * time.Millisecond
	slow = 2 * time.Second
	// callTimeout ends a call to etcd.
	callTimeout = 3 * time.Second
	// maxRetry limits the time between two attempts.
	maxRetry = 5 * time.Second

	minBound = time.Second
	// firstBound is for leases that do not ask for a time.
	firstBound = 30 * time.Second
)

// Options are the parts that a Fleet is made of.
type Options struct {
	// Client is of the etcd that the replicas share. The Fleet does not close it.
	Client *clientv3.Client
	// Prefix is that of its keys, with a slash at the end.
	Prefix string
	// MaxTTL is the longest time of a lease.
	MaxTTL time.Duration
	Log    *slog.Logger
}

// Fleet shares limits with the other replicas. It belongs to one goroutine, Run.
type Fleet struct {
	// Fixed after build.
	id     string
	store  store
	log    *slog.Logger
	maxTTL time.Duration
	clock  func() time.Duration // [policy.Clock]

	events chan func() // that Run executes
	wake   chan struct{}
	joined atomic.Bool

	mu     sync.Mutex // guards wanted
	wanted map[*policy.ClusterCounters]want

	// Owned by Run.
	limits   map[string]*limit
	session  int64
	deadline time.Duration
	view     view // what the watch has seen
	list     []share.Session
}

// want is the limit that the config of a cluster has.
type want struct {
	limit int64
	users int // leaves with it
}

// limit is one limit of the fleet.
type limit struct {
	key      string
	counters *policy.ClusterCounters
	machine  *share.Machine
	rejected uint64
	longest  time.Duration // not yet given to the machine
	err      string        // why the record cannot be read; empty if it can
}

// New returns a Fleet that has joined no other replica yet. Its ID is random.
func New(o Options) *Fleet {
	return newFleet(&etcd{o.Client, o.Prefix, sessionTTL}, o.MaxTTL, o.Log)
}

func newFleet(s store, maxTTL time.Duration, log *slog.Logger) *Fleet {
	return &Fleet{
		id: rand.Text(), store: s, log: log, maxTTL: maxTTL, clock: policy.Clock,
		events: make(chan func()), wake: make(chan struct{}, 1),
		wanted: make(map[*policy.ClusterCounters]want), limits: make(map[string]*limit),
	}
}

// ID identifies this process among the replicas.
func (f *Fleet) ID() string { return f.id }

// Joined reports whether the process has a session.
func (f *Fleet) Joined() bool { return f.joined.Load() }

// Share makes the limit of counters one of the fleet, until as many calls of Unshare. The last limit
// applies.
func (f *Fleet) Share(c *policy.ClusterCounters, limit uint32) {
	f.mu.Lock()
	w := f.wanted[c]
	f.wanted[c] = want{int64(limit), w.users + 1}
	f.mu.Unlock()
	f.notify()
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
	f.notify()
}

func (f *Fleet) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// keyOf returns the key of a limit.
func keyOf(k policy.ServiceKey) string {
	if k.EDSServiceName == "" {
		return url.PathEscape(k.Cluster)
	}
	return url.PathEscape(k.Cluster) + "/" + url.PathEscape(k.EDSServiceName)
}

// Run shares limits until ctx ends. Then it publishes what this process still holds, as its leases go on
// without it. It must end before the leases are released.
func (f *Fleet) Run(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var calls sync.WaitGroup
	calls.Go(func() { f.keepSession(background) })
	defer func() {
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
		select {
		case <-tick.C:
		case <-f.wake:
		case do := <-f.events:
			do()
		case <-ctx.Done():
		}
		f.follow()
		for _, l := range f.limits {
			f.turn(background, l, &calls)
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
	if f.session != 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := f.store.revoke(ctx, f.session); err != nil {
			f.log.Warn("the session of the fleet ends by itself", "error", err)
		}
	}
	for _, l := range f.limits {
		l.counters.SharedLimit().Set(0, 0, 0)
	}
}

// follow makes the machines those of the limits that are wanted.
func (f *Fleet) follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, w := range f.wanted {
		key := keyOf(c.Key())
		l := f.limits[key]
		if l == nil {
			l = &limit{key: key, counters: c, rejected: c.Breaker.Rejected(), longest: firstBound}
			l.machine = share.New(share.Config{
				Replica: f.id, Fast: fast, Slow: slow, Margin: margin, MinBound: minBound, MaxBound: f.maxTTL,
			})
			f.limits[key] = l
			if f.session != 0 {
				f.begin(l)
			}
		}
		l.counters = c
		l.machine.SetLimit(w.limit)
	}
	for key, l := range f.limits {
		if _, ok := f.wanted[l.counters]; ok {
			continue
		}
		l.machine.Leave()
		if l.machine.Gone() {
			delete(f.limits, key)
		}
	}
}

// begin gives a machine the session.
func (f *Fleet) begin(l *limit) {
	s, ok := f.view.records[l.key]
	if !ok {
		s = stored{revision: f.view.revision}
	}
	l.machine.Begin(f.session, f.deadline, s.record, s.revision, s.exists)
	f.damaged(l, s.err)
	l.machine.Live(f.list, f.view.revision)
}

// damaged reports that a record cannot be read, once.
func (f *Fleet) damaged(l *limit, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.err {
		f.log.Error("the record of a limit of the fleet cannot be read", "limit", l.key, "error", err)
	}
	l.err = text
}

// turn lets the machine of a limit decide, and attempts its update.
func (f *Fleet) turn(ctx context.Context, l *limit, calls *sync.WaitGroup) {
	shared, b := l.counters.SharedLimit(), &l.counters.Breaker
	now, rejected := f.clock(), b.Rejected()
	use := share.Use{
		InFlight: b.InFlight(), Refused: int64(min(rejected-l.rejected, 1<<32)),
		Longest: max(l.longest, shared.TakeLongest()),
	}
	l.rejected, l.longest = rejected, 0
	out := l.machine.Advance(now, use)
	shared.Set(uint32(out.Share), out.Bound, out.Deadline) // the share is not above the limit, which is a uint32
	if l.err != "" {
		return // what cannot be read must not be replaced
	}
	l.longest = shared.TakeLongest()
	u := l.machine.Propose(b.InFlight(), l.longest)
	if u == nil {
		return
	}
	calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		replaced, now, err := f.store.replace(ctx, l.key, u.Base, u.Record)
		f.do(func() { f.replaced(l, *u, replaced, now, err) })
	})
}

// do executes a function in Run.
func (f *Fleet) do(do func()) { f.events <- do }

func (f *Fleet) replaced(l *limit, u share.Update, replaced bool, now stored, err error) {
	switch {
	case err != nil:
		f.log.Debug("a share of a limit may not be published", "limit", l.key, "error", err)
		l.machine.Unknown()
	case replaced:
		l.machine.Updated(u, now.revision)
	default:
		l.machine.Conflict()
		f.see(l, now)
	}
}

func (f *Fleet) see(l *limit, s stored) {
	f.damaged(l, s.err)
	if s.err == nil {
		l.machine.Seen(s.record, s.revision, s.exists)
	}
}
