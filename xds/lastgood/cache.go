package lastgood

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// directory is where the cache lies in the data directory.
const directory = "last-known-good"

// MaxResources is how many resources are kept; what comes when there are as many is
// not. A cluster is two of them, its Cluster and its ClusterLoadAssignment.
const MaxResources = 200_000

const (
	// gather is how long what was put waits for more of it.
	gather = 500 * time.Millisecond
	// retry is how long a disk that refused is left alone.
	retry = 10 * time.Second
)

// Options are Open's.
type Options struct {
	// Logger is told what is wrong with the disk. By default nobody is.
	Logger *slog.Logger
}

// Cache holds the last known good resources. Its methods may be called at the same
// time.
type Cache struct {
	// fixed after Open
	logger  *slog.Logger
	store   *store.Store // nil: nothing is kept
	most    int
	wake    chan struct{} // has room for one
	closing chan struct{}
	quiet   chan struct{} // closed when the writer has ended

	// the writer's only
	failing bool
	full    bool // the logger knows that there are too many
	refused bool // the logger knows of a resource that cannot be kept

	// guarded by mu
	mu      sync.Mutex
	pending map[resource.Key]*resource.Update // what is not on disk yet; nil is to be removed

	close    sync.Once
	closeErr error
}

// Open opens the cache in a data directory, or makes it. With an empty dir, and
// where there is a disk that cannot be used, the cache holds nothing and keeps
// nothing; the logger is told of the latter. A damaged file is set aside, told of,
// and begun anew.
func Open(dir string, o Options) *Cache {
	c := &Cache{
		logger:  o.Logger,
		most:    MaxResources,
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		quiet:   make(chan struct{}),
		pending: map[resource.Key]*resource.Update{},
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if dir != "" {
		c.store = openStore(filepath.Join(dir, directory), c.logger)
	}
	if c.store == nil {
		close(c.quiet)
	} else {
		go c.write()
	}
	return c
}

// openStore returns nil, and says why, where there is nothing that can be opened.
func openStore(dir string, logger *slog.Logger) *store.Store {
	options := store.Options{Logger: logger, BeginEmpty: true}
	s, err := store.Open(dir, options)
	if damaged, ok := errors.AsType[*store.DamagedError](err); ok && damaged.SetAside != "" {
		logger.Error("the last known good configuration is damaged: it is set aside, and begun anew",
			"file", damaged.Path, "kept_as", damaged.SetAside, "reason", damaged.Reason)
		s, err = store.Open(dir, options)
	}
	if err != nil {
		logger.Error("the last known good configuration cannot be kept on disk: a restart without a management server would begin empty", "directory", dir, "error", err)
		return nil
	}
	return s
}

// All yields what is on disk, in the order of type and name.
func (c *Cache) All() iter.Seq[resource.Update] {
	return func(yield func(resource.Update) bool) {
		if c.store == nil {
			return
		}
		for kept := range c.store.Snapshot().All() {
			e, err := decodeEntry(kept.Key, kept.Raw)
			if err != nil {
				c.logger.Error("a resource of the last known good configuration is left out", "resource", kept.Key, "error", err)
				continue
			}
			if !yield(e) {
				return
			}
		}
	}
}

// Put keeps the versions of resources in place of earlier ones, and removes those without
// Raw. It does not wait for the disk. Raw is shared from then on. After Close it does
// nothing.
func (c *Cache) Put(updates []resource.Update) {
	select {
	case <-c.quiet: // no disk, or closed
		return
	default:
	}
	c.mu.Lock()
	for _, u := range updates {
		if c.pending[u.Key] = &u; u.Raw == nil {
			c.pending[u.Key] = nil
		}
	}
	c.mu.Unlock()
	c.awaken()
}

func (c *Cache) awaken() {
	select {
	case c.wake <- struct{}{}:
	default: // the writer knows already
	}
}

// Close writes what is not on disk yet, once, and closes the file. The error says
// what could not be written. A second Close returns what the first did.
func (c *Cache) Close() error {
	c.close.Do(func() {
		if c.store == nil {
			return
		}
		close(c.closing)
		<-c.quiet
		c.closeErr = errors.Join(c.flush(), c.store.Close())
	})
	return c.closeErr
}

// write is the writer: the goroutine that waits for the disk.
func (c *Cache) write() {
	defer close(c.quiet)
	for {
		select {
		case <-c.closing:
			return
		case <-c.wake:
		}
		wait := gather
		if c.failing {
			wait = retry
		}
		select {
		case <-c.closing:
			return
		case <-time.After(wait):
		}
		c.tell(c.flush())
	}
}

// flush writes what is pending. What the disk refuses stays pending, unless newer
// has come.
func (c *Cache) flush() error {
	c.mu.Lock()
	batch := c.pending
	c.pending = map[resource.Key]*resource.Update{}
	c.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	_, err := c.store.Update(context.Background(), func(tx *store.Tx) error {
		c.apply(tx, batch)
		return nil
	})
	if err == nil {
		return nil
	}
	c.putBack(batch)
	c.awaken()
	return err
}

// putBack makes a batch pending again that the disk refused. What came and went
// since is forgotten, so that names without end cannot pile up meanwhile.
func (c *Cache) putBack(batch map[resource.Key]*resource.Update) {
	onDisk := c.store.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range batch {
		_, newer := c.pending[key]
		_, kept := onDisk.Get(key)
		if !newer && (e != nil || kept) {
			c.pending[key] = e
		}
	}
}

// apply makes the batch's changes, but for those that change nothing and those that
// cannot be kept.
func (c *Cache) apply(tx *store.Tx, batch map[resource.Key]*resource.Update) {
	count := c.store.Snapshot().Len()
	for key, e := range batch {
		if e == nil && tx.Delete(key) {
			count--
		}
	}
	for key, e := range batch {
		if e == nil {
			continue
		}
		kept, there := tx.Get(key)
		if there {
			if old, err := decodeEntry(key, kept.Raw); err == nil && old.Server == e.Server && bytes.Equal(old.Raw, e.Raw) {
				continue
			}
		} else if count >= c.most {
			c.tellFull()
			continue
		}
		if err := tx.Put(key, encode(e)); err != nil {
			c.tellRefused(key, err)
		} else if !there {
			count++
		}
	}
}

// tell says once that the disk refuses, and once that it takes again.
func (c *Cache) tell(err error) {
	switch failing := err != nil; {
	case failing && !c.failing:
		c.logger.Error("the last known good configuration cannot be written: a restart without a management server would serve an older one", "retry_every", retry, "error", err)
	case !failing && c.failing:
		c.logger.Info("the last known good configuration is on disk again")
	}
	c.failing = err != nil
}

func (c *Cache) tellFull() {
	if !c.full {
		c.full = true
		c.logger.Error("the last known good configuration holds as many resources as it may: more are not kept", "resources", c.most)
	}
}

func (c *Cache) tellRefused(key resource.Key, err error) {
	if !c.refused {
		c.refused = true
		c.logger.Error("a resource cannot be kept as last known good; others like it are not told of", "resource", key, "error", err)
	}
}
