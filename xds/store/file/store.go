package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/xds/store"
)

// Options are Open's. Each has a default.
type Options struct {
	// Logger logs what is unusual about the file: one that an earlier start set aside,
	// an unfinished write. By default nothing is logged.
	Logger *slog.Logger
	// BeginEmpty lets Open begin empty if the file is damaged, or an earlier Open set a
	// damaged one aside.
	BeginEmpty bool
	// Now is the clock that dates entries and files that are set aside.
	Now func() time.Time
	// OnCommit is called once for each commit that changed something, in the
	// order of the commits, when it is durable and in Snapshot, and before the
	// Updates in it return. It runs in the goroutine that writes: it must be quick
	// and must not call Update or Close.
	OnCommit func(store.Commit)
	// OnLost is called, by the goroutine that writes, when the open file loses its
	// name (a *[LostError]), and with nil when it has it again. It must be quick and
	// must not call Update or Close.
	OnLost func(error)
}

// Store is a [store.Store] in a file. Its methods are safe for concurrent use.
type Store struct {
	// fixed after Open
	now      func() time.Time
	onCommit func(store.Commit)
	onLost   func(error)
	logger   *slog.Logger
	queue    store.Queue
	copies   chan *copying
	quiet    chan struct{} // closed when the writer has ended

	// the writer's only
	file *file // nil: memory only

	current atomic.Pointer[store.Snapshot]
	lost    atomic.Pointer[error] // nil while the file has its name

	close    sync.Once
	closeErr error
}

// Open opens the store in dir, and makes the directory (mode 0750) and the file
// (0600) when they are absent. With an empty dir the store is in memory only.
//
// Errors: [ErrInUse], at once; [*DamagedError]; [*SchemaError]; any other means
// that the file could not be read or made, and was left as it is.
func Open(dir string, opts Options) (*Store, error) {
	s := &Store{
		now:      opts.Now,
		onCommit: opts.OnCommit,
		onLost:   opts.OnLost,
		logger:   cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		queue:    store.NewQueue(),
		copies:   make(chan *copying),
		quiet:    make(chan struct{}),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.onCommit == nil {
		s.onCommit = func(store.Commit) {}
	}
	if s.onLost == nil {
		s.onLost = func(error) {}
	}
	snapshot := &store.Snapshot{}
	if dir != "" {
		earlier := damagedFiles(dir)
		if len(earlier) > 0 {
			s.logger.Warn("damaged store files lie in the data directory, from earlier starts", "files", earlier)
		}
		if opts.BeginEmpty {
			earlier = nil
		}
		var err error
		s.file, snapshot, err = openFile(dir, earlier, s.logger, s.now)
		if damaged, ok := errors.AsType[*DamagedError](err); ok && opts.BeginEmpty && damaged.SetAside != "" {
			s.logger.Error("a damaged store file is set aside, and the store begins empty",
				"file", damaged.Path, "kept_as", damaged.SetAside, "reason", damaged.Reason)
			s.file, snapshot, err = openFile(dir, nil, s.logger, s.now)
		}
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	s.current.Store(snapshot)
	go s.write()
	return s, nil
}

// Snapshot returns the current contents. All of it is on disk, unless the store is in memory.
func (s *Store) Snapshot() *store.Snapshot { return s.current.Load() }

// Loaded reports true: Open has read the file.
func (*Store) Loaded() bool { return true }

// Update is [store.Store]'s. It runs fn once, after all earlier Updates. It returns when the writes of fn are durable
// and OnCommit has returned, with the snapshot of the commit, which may have other writes too.
//
// An error of fn rolls back its writes and is returned unwrapped; a panic is a [*store.PanicError].
// After [store.ErrCannotWrite], which may wrap a [*LostError], the writes of fn, or those that
// it read of Updates in the same commit, are not stored. After [store.ErrClosed], or the error
// of ctx, fn did not run. ctx has no effect once fn runs.
func (s *Store) Update(ctx context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	return s.queue.Update(ctx, fn)
}

// Close waits for Updates that run, and closes the file. The last snapshot stays
// readable. A second Close returns what the first did.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.queue.Closing)
		<-s.quiet
		if s.file != nil {
			s.closeErr = s.file.close()
		}
	})
	return s.closeErr
}

// write is the only goroutine that runs Updates, uses the file and replaces the snapshot.
func (s *Store) write() {
	defer close(s.quiet)
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		select {
		case <-s.queue.Closing:
			return
		case r := <-s.queue.Requests:
			for group := s.queue.Gather(r); len(group) > 0; {
				group = s.commit(group)
			}
		case c := <-s.copies:
			c.done <- s.copy(c.of)
		case <-check.C:
			if s.check(); s.file != nil {
				s.file.compactAgain(s.current.Load())
			}
		}
	}
}

// maxWritten is the number of written entries after which a commit runs no more functions: what a function does may
// cost as much as what others have written before it in the same commit.
const maxWritten = 100

// commit runs a group of requests, and commits their writes together.
func (s *Store) commit(group []*store.Request) (rest []*store.Request) {
	before := s.current.Load()
	batch := before.NewBatch(s.now(), 0)
	errs := make([]error, len(group))
	dependent := make([]bool, len(group)) // it wrote, or may have read, what is not durable yet
	for i, r := range group {
		if len(batch.Written()) >= maxWritten {
			group, rest = group[:i], group[i:]
			break
		}
		if errs[i] = r.Ctx.Err(); errs[i] != nil {
			continue
		}
		tx := batch.Begin()
		errs[i] = tx.Run(r.Fn)
		batch.Add(tx)
		dependent[i] = len(batch.Written()) > 0
	}
	snapshot, err := s.publish(before, batch.Written())
	for i, r := range group {
		if err != nil && dependent[i] {
			errs[i] = err
		}
		r.Answer(snapshot, errs[i])
	}
	if s.file != nil {
		s.file.compact(s.current.Load())
	}
	return rest
}

// publish makes written durable, then visible, and returns the current snapshot.
func (s *Store) publish(before *store.Snapshot, written store.Changes) (*store.Snapshot, error) {
	after, changed := before.Apply(written, before.Index()+1)
	if len(changed) == 0 {
		return s.unchanged(before, written)
	}
	if s.file != nil {
		if err := s.file.commit(before, after, changed); err != nil {
			s.check()
			return before, fmt.Errorf("%w: %w", store.ErrCannotWrite, err)
		}
	}
	s.current.Store(after)
	s.onCommit(store.Commit{After: after, Changed: changed})
	return after, nil
}
