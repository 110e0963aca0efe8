package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// requestTimeout is the time that one request to etcd may take.
	requestTimeout = 5 * time.Second
	// startTimeout is the time that Open waits for etcd, and copyTimeout that for its first
	// response if there is a copy.
	startTimeout = 5 * time.Second
	copyTimeout  = time.Second
	// probeInterval is the time between two checks that etcd responds.
	probeInterval = 3 * time.Second
	// firstBackoff and maxBackoff are the bounds of the time between two attempts to connect.
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// stuckAfter is the age of a commit that etcd has and the watch did not deliver, after
	// which the watch begins again.
	stuckAfter = 10 * time.Second
	// writerTTL is the time after which the key of a writer that is gone expires, in seconds.
	writerTTL = 60
)

// Config is how to reach what is stored.
type Config struct {
	Endpoints []string // HOST:PORT
	Prefix    string   // of all keys, without slashes at both ends; not empty
	TLS       *tls.Config
	Username  string
	Password  string
}

// Options are Open's. Each has a default.
type Options struct {
	// Logger logs what is unusual. By default nothing is logged.
	Logger *slog.Logger
	// Copy is the local copy of what is stored, for starts without etcd. The store writes it,
	// and closes it. By default there is none.
	Copy *file.Store
	// Now is the clock that dates entries.
	Now func() time.Time
	// OnCommit and OnLost are those of [store.Store].
	OnCommit func(store.Commit)
	OnLost   func(error)
}

// Store is a [store.Store] in etcd. Its methods are safe for concurrent use.
type Store struct {
	// fixed after Open
	config   Config
	keys     layout
	options  Options
	logger   *slog.Logger
	id       string // of this writer
	queue    store.Queue
	stop     context.CancelFunc
	copyWake wake.One
	reached  chan struct{} // closed when etcd responded for the first time
	first    chan struct{} // closed when the first attempt to load has ended
	loaded   chan struct{} // closed when the state was loaded from etcd

	// atomic
	client   atomic.Pointer[clientv3.Client]
	lost     atomic.Pointer[error]                   // nil while etcd responds
	watching atomic.Pointer[context.CancelCauseFunc] // ends the watch; nil while there is none
	state    atomic.Pointer[state]
	seen     atomic.Pointer[seen]
	copyErr  atomic.Pointer[error]
	old      atomic.Pointer[[]string] // members of etcd

	replica replica  // the follower's
	writer  writer   // the writer's
	owned   owned    // both
	arrived progress // what was applied and reported

	losing   sync.Mutex
	group    sync.WaitGroup
	writers  sync.WaitGroup
	close    sync.Once
	closeErr error
}

// Open opens the store of a fleet that [Init] or [Create] has created. It waits for etcd for
// some seconds. If etcd does not respond until then, or has no fleet yet, the store has the contents of the copy,
// and [Store.Status] says why; Updates fail with [store.ErrUnavailable] until it does.
//
// Errors are about what is under the prefix: a [*ForeignError], or a newer format. The copy is
// closed after an error, too.
func Open(ctx context.Context, c Config, o Options) (*Store, error) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := prepare(c, o)
	s.stop = stop
	s.group.Go(func() { s.run(background) })
	s.group.Go(func() { s.probe(background) })
	s.group.Go(func() { s.collect(background) })
	if o.Copy != nil {
		s.group.Go(func() { s.writeCopies(background) })
	}
	s.writers.Go(func() { s.write(background) })
	if err := s.waitForStart(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare returns a store that does nothing yet.
func prepare(c Config, o Options) *Store {
	o.setDefaults()
	s := &Store{
		config: c, keys: layout(strings.Trim(c.Prefix, "/") + "/"), options: o,
		logger: o.Logger,
		id:     randomID(12), queue: store.NewQueue(), stop: func() {},
		copyWake: wake.NewOne(), reached: make(chan struct{}), first: make(chan struct{}), loaded: make(chan struct{}),
	}
	s.owned.writer, s.owned.commits = s.keys.relative(s.keys.writer(s.id)), map[uint64]*ownCommit{}
	s.beginReplica()
	s.publish()
	return s
}

func randomID(size int) string {
	id := make([]byte, size)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

func (o *Options) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnCommit == nil {
		o.OnCommit = func(store.Commit) {}
	}
	if o.OnLost == nil {
		o.OnLost = func(error) {}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

func (s *Store) waitForStart(ctx context.Context) error {
	wait := startTimeout
	if s.Snapshot().Index() > 0 {
		wait = copyTimeout
	}
	end, timer := time.NewTimer(startTimeout), time.NewTimer(wait)
	defer end.Stop()
	defer timer.Stop()
	select {
	case <-s.first:
	case <-s.reached: // and everything is being read
		select {
		case <-s.first:
		case <-end.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	case <-timer.C:
		s.setLost(fmt.Errorf("etcd at %s did not respond within %v", strings.Join(s.config.Endpoints, ","), wait))
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.Err(); isPermanent(err) {
		return err
	}
	return nil
}

// Snapshot returns the last commit that this daemon knows.
func (s *Store) Snapshot() *store.Snapshot { return s.state.Load().snapshot }

// Err returns why commits would fail now, an [store.ErrUnavailable], or nil. It never waits.
func (s *Store) Err() error {
	if lost := s.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// setLost records that etcd does not respond, or with nil that it does.
func (s *Store) setLost(err error) {
	s.losing.Lock() // so that OnLost is called in order
	defer s.losing.Unlock()
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		err = unavailable(err)
	}
	was := s.lost.Load()
	switch {
	case err != nil && was != nil && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*unreachableError)):
		// what is known says more
	case err != nil:
		s.lost.Store(&err)
		if was == nil || (*was).Error() != err.Error() {
			s.logger.Error("etcd cannot be used: pushes are refused, and picks use what is known", "error", err)
			s.options.OnLost(err)
		}
	case was != nil:
		s.lost.Store(nil)
		s.logger.Info("etcd responds again")
		s.options.OnLost(nil)
	}
}

// do sends one request, which ends after requestTimeout.
func (s *Store) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.client.Load().Do(ctx, op)
}

// txn is do for a transaction.
func (s *Store) txn(ctx context.Context, conditions []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	res, err := s.do(ctx, clientv3.OpTxn(conditions, then, otherwise))
	return res.Txn(), err
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// unchangedAt is the condition that a key was put at a revision, and not since.
func unchangedAt(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// Close waits for Updates that run, and closes the connection and the copy. The last snapshot
// stays readable. A second Close returns what the first did.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.queue.Closing)
		s.writers.Wait()
		s.stop()
		s.group.Wait()
		if c := s.client.Load(); c != nil {
			s.writer.end(c)
			if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
				s.closeErr = err
			}
		}
		if s.options.Copy != nil {
			s.closeErr = errors.Join(s.closeErr, s.options.Copy.Close())
		}
	})
	return s.closeErr
}

// ForeignError reports that something else is under the prefix, or another fleet.
type ForeignError struct {
	Prefix string
	Reason string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the etcd prefix %s is not this fleet's: %s", e.Prefix, e.Reason)
}

// OutdatedError reports that what is under the prefix is older than what this daemon has: etcd was
// restored from a backup, or begins empty. Nothing of it is used.
type OutdatedError struct {
	Prefix string
	Reason string
}

func (e *OutdatedError) Error() string {
	return fmt.Sprintf("the etcd prefix %s is in an older state: %s", e.Prefix, e.Reason)
}

// isPermanent reports whether an error is about what is under the prefix, so that another
// attempt cannot succeed.
func isPermanent(err error) bool {
	_, foreign := errors.AsType[*ForeignError](err)
	return foreign || errors.Is(err, store.ErrNewer)
}

// progress is what the follower has applied and reported. Others wait for it.
type progress struct {
	applied atomic.Int64 // revision
	changed wake.All
}

// set records that revisions up to applied are visible, and reported.
func (p *progress) set(applied int64) {
	p.applied.Store(applied)
	p.changed.Notify()
}

// wait waits until a revision is visible.
func (p *progress) wait(ctx context.Context, revision int64) error {
	for {
		changed := p.changed.Wait()
		if p.applied.Load() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
