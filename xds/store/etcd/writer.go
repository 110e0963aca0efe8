package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/backoff"
	"github.com/lbd-dev/lbd/xds/store"
)

// The limits of one transaction, which are below the defaults of etcd (128 operations, 1.5 MiB).
const (
	maxOperations = 100
	maxBytes      = 1 << 20
	maxInline     = 256 << 10 // of a value: a larger one is a blob
	partSize      = 512 << 10 // of a blob
	maxReads      = 50        // keys: each takes up to two comparisons
)

const (
	// firstRetry and maxRetry are the bounds of the time after a conflict.
	firstRetry = 2 * time.Millisecond
	maxRetry   = 250 * time.Millisecond
	// conflictsBeforeTurn is the number of conflicts after which a writer asks the others to wait.
	conflictsBeforeTurn = 3
	// deliveryTimeout is the time in which the watch must deliver a commit.
	deliveryTimeout = 10 * time.Second
)

// uncertain is the revision of a key that may be there or not, and is to be put anew.
const uncertain = -1

// A writer is what the goroutine that commits knows. Only it uses it.
type writer struct {
	sequence uint64 // of the last attempt
	lease    clientv3.LeaseID
	revision int64 // of the writer's key; 0: it was never put
	expired  chan struct{}
	stop     context.CancelFunc
}

// owned are the commits of this daemon that may be delivered, by sequence.
type owned struct {
	mu      sync.Mutex
	writer  string // the key, relative to the prefix
	commits map[uint64]*ownCommit
}

// commit returns the own commit that a value of a writer's key reports; nil if it is of another
// writer, or none.
func (o *owned) commit(key string, value []byte) *ownCommit {
	o.mu.Lock()
	defer o.mu.Unlock()
	if key != o.writer {
		return nil
	}
	sequence, err := decodeWriter(key, value)
	if err != nil {
		return nil
	}
	c := o.commits[sequence]
	maps.DeleteFunc(o.commits, func(other uint64, _ *ownCommit) bool { return other <= sequence })
	return c
}

func (o *owned) add(sequence uint64, c *ownCommit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commits[sequence] = c
}

func (o *owned) remove(sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.commits, sequence)
}

// Update is that of [store.Store]. It fails at once while etcd is known not to respond.
func (s *Store) Update(ctx context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	return s.queue.Update(ctx, fn)
}

// write commits Updates until Close.
func (s *Store) write(ctx context.Context) {
	var waiting []*store.Request
	for {
		if len(waiting) == 0 {
			select {
			case <-s.queue.Closing:
				return
			case r := <-s.queue.Requests:
				waiting = append(waiting, r)
			}
		}
		waiting = s.commitSome(ctx, s.queue.Gather(waiting...))
	}
}

// unavailable returns an [store.ErrUnavailable].
func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

// commitSome commits the first requests that fit into one transaction, and returns the others.
func (s *Store) commitSome(ctx context.Context, group []*store.Request) []*store.Request {
	wait := firstRetry
	var t *turn
	defer func() { s.endTurn(ctx, t) }()
	for conflicts := 1; ; conflicts++ {
		group = answerCancelled(group)
		if len(group) == 0 {
			return nil
		}
		if err := s.usable(ctx); err != nil {
			fail(group, err)
			return nil
		}
		a := s.runFunctions(group)
		result := s.attempt(ctx, a, t)
		switch {
		case result.conflict:
			if result.turnLost {
				t = nil
			}
			if conflicts%conflictsBeforeTurn == 0 && t == nil {
				own, _ := s.claim(ctx, s.keys.turn(), turnTTL) // nil if another writer has it; after an error, a later conflict tries again
				t = (*turn)(own)
			}
			s.afterConflict(ctx, group, result.revision, rand.N(wait))
			wait = min(2*wait, maxRetry)
			continue
		case result.err != nil:
			fail(a.group, result.err)
		default:
			s.deliver(ctx, a, result.revision)
			if result.large != nil { // so that what follows need not wait for it
				_ = s.fold(ctx, result.large) // else the next writer does it
			}
		}
		return a.rest
	}
}

// usable returns an error if nothing can be committed now. It waits for a start.
func (s *Store) usable(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	select {
	case <-s.loaded:
		return nil
	case <-ctx.Done():
		return store.ErrClosed
	case <-timer.C:
		return unavailable(errors.New("the state was not read from etcd yet"))
	}
}

func fail(group []*store.Request, err error) {
	for _, r := range group {
		r.Answer(nil, err)
	}
}

// answerCancelled returns the requests whose contexts have not ended.
func answerCancelled(group []*store.Request) []*store.Request {
	return slices.DeleteFunc(group, func(r *store.Request) bool {
		err := r.Ctx.Err()
		if err != nil {
			r.Answer(nil, err)
		}
		return err != nil
	})
}

// afterConflict waits until the revision of a conflict is applied, and a moment.
func (s *Store) afterConflict(ctx context.Context, group []*store.Request, revision int64, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if len(group) == 1 { // of more, each may end at another time
		defer context.AfterFunc(group[0].Ctx, cancel)()
	}
	if s.arrived.wait(ctx, revision) == nil {
		backoff.Sleep(ctx, wait)
	}
}

// An attempt is a group of requests whose functions were run.
type attempt struct {
	group   []*store.Request
	rest    []*store.Request // that do not fit
	errs    []error          // of the functions
	base    *state
	reads   store.Reads
	changes store.Changes
}

// runFunctions runs the functions of requests, until their changes exceed what one transaction can
// have. The first one may do that alone.
func (s *Store) runFunctions(group []*store.Request) *attempt {
	a := &attempt{base: s.state.Load()}
	b := a.base.snapshot.NewBatch(s.options.Now(), maxReads)
	operations, bytes := 0, 0
	for i, r := range group {
		if operations >= maxOperations { // what follows would not fit, and may depend on all that is there
			a.rest = group[i:]
			break
		}
		tx := b.Begin()
		err := tx.Run(func(tx *store.Tx) error {
			if err := r.Fn(tx); err != nil {
				return err
			}
			return s.checkNewer(a.base, tx.Written())
		})
		n, size := 0, 0
		if err == nil {
			n, size = measure(tx.Written(), b.Written())
		}
		if i > 0 && (operations+n > maxOperations || bytes+size > maxBytes) {
			a.rest = group[i:]
			break
		}
		operations, bytes = operations+n, bytes+size
		b.Add(tx)
		a.group, a.errs = append(a.group, r), append(a.errs, err)
	}
	a.reads, a.changes = b.Reads(), store.Changes{}
	for key, e := range b.Written() {
		old, ok := a.base.snapshot.Get(key)
		if e != nil && ok && string(old.Raw) == string(e.Raw) { // it depends on what is there
			a.reads.AddKey(key, maxReads)
			continue
		}
		a.changes[key] = e
	}
	return a
}

// checkNewer returns a [store.ErrNewer] if a record of changes cannot be read because a newer lbd wrote it: what it was
// before is in use here, and a change of that would lose what the newer one has written.
func (s *Store) checkNewer(base *state, changes store.Changes) error {
	for key := range changes {
		if reason := base.problems[s.keys.relative(s.keys.entry(key))]; errors.Is(reason, store.ErrNewer) {
			return fmt.Errorf("%s cannot be changed here: %w; update lbd, or make the change at a newer one", key, reason)
		}
	}
	return nil
}

// measure returns how many operations changes add to those of a batch, and about how many bytes.
func measure(changes, batch store.Changes) (n, bytes int) {
	for key, e := range changes {
		if _, twice := batch[key]; !twice {
			n++
		}
		bytes += 2*len(key.Name) + 100
		if e != nil {
			bytes += min(len(e.Raw), maxInline)
		}
	}
	return n, bytes
}

// deliver waits until a commit is visible, and answers its requests.
func (s *Store) deliver(ctx context.Context, a *attempt, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	err := s.arrived.wait(ctx, revision)
	for i, r := range a.group {
		switch {
		case a.errs[i] != nil:
			r.Answer(nil, a.errs[i])
		case err != nil:
			r.Answer(nil, &store.UnknownOutcomeError{Reason: fmt.Errorf("etcd has the state, and its watch did not deliver it within %v", deliveryTimeout)})
		default:
			r.Answer(s.Snapshot(), nil)
		}
	}
}

// comparisons are the conditions under which what an attempt has read is unchanged.
func (s *Store) comparisons(a *attempt) []clientv3.Cmp {
	unchanged := func(key string) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(key), "<", a.base.applied+1)
	}
	if a.reads.All || a.base.pending != nil { // of a large commit, the keys do not have all yet
		return []clientv3.Cmp{unchanged(s.keys.head())}
	}
	all := []clientv3.Cmp{absent(s.keys.pending())}
	for key := range maps.Keys(a.reads.Keys) {
		at := s.keys.entry(key)
		_, exists := a.base.snapshot.Get(key)
		_, unreadable := a.base.problems[s.keys.relative(at)]
		switch {
		case exists:
			all = append(all, unchanged(at), clientv3.Compare(clientv3.CreateRevision(at), ">", 0))
		case unreadable: // and there was no entry before: it is as good as absent
			all = append(all, unchanged(at))
		default:
			all = append(all, absent(at))
		}
	}
	for kind := range a.reads.Types {
		all = append(all, unchanged(s.keys.lastPut(kind)))
	}
	return all
}

// isDefinite reports whether an error of a transaction says that it had no effect.
func isDefinite(err error) bool {
	for _, e := range []error{
		rpctypes.ErrNoSpace, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed,
		rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty, rpctypes.ErrDuplicateKey, rpctypes.ErrTooManyRequests,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failure is the error of Update for an error of etcd that had no effect.
func (s *Store) failure(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: etcd has no space left: raise its quota (--quota-backend-bytes), or compact and defragment it, and then disarm the alarm with etcdctl alarm disarm: %w", store.ErrCannotWrite, err)
	case errors.Is(err, store.ErrTooLarge):
		return err
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: etcd's limits of a transaction are lower than its defaults: %w", store.ErrTooLarge, err)
	}
	return unavailable(s.explain(err))
}
