package lastgood

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// batchDelay is the time from the first change of a batch to its write.
	batchDelay = 500 * time.Millisecond
	// retryDelay replaces it after a failed write.
	retryDelay = 10 * time.Second
)

// errFull is why an entry is not stored that would exceed the limit.
var errFull = errors.New("the limit is reached")

// Options are Open's.
type Options struct {
	// Of is what is stored, for the log.
	Of string
	// Directory is the directory of the cache in the data directory.
	Directory string
	// Limit is the maximum of the sum of Cost over all entries.
	Limit int
	// Cost is what an entry counts.
	Cost func(raw []byte) int
	// Same reports whether an entry says the same as the one on disk, which then stays. Nil
	// compares the bytes.
	Same func(stored, raw []byte) bool
	// Logger is nil for no log.
	Logger *slog.Logger
}

// Cache stores entries. Its methods are safe for concurrent use.
type Cache struct {
	// fixed after Open
	Options
	store   *file.Store // nil: the cache is empty and stores nothing
	wake    wake.One
	closing chan struct{}
	done    chan struct{} // closed when the writer has ended

	// guarded by writing, which is held during a write
	writing sync.Mutex
	used    int // the sum of Cost
	failing bool
	full    bool // the logger knows that something is not stored

	// guarded by mu
	mu      sync.Mutex
	pending map[resource.Key][]byte // not on disk yet; nil removes an entry

	close    sync.Once
	closeErr error
}

// Open opens the cache in a data directory, or creates it. If data is empty, or cannot be
// used, which is logged, the cache is empty and stores nothing. A damaged file is logged, set
// aside and replaced.
func Open(data string, o Options) *Cache {
	c := &Cache{
		Options: o,
		wake:    wake.NewOne(),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		pending: map[resource.Key][]byte{},
	}
	c.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("of", o.Of)
	if c.Same == nil {
		c.Same = bytes.Equal
	}
	if data != "" {
		var err error
		directory := filepath.Join(data, o.Directory)
		if c.store, err = file.Open(directory, file.Options{Logger: c.Logger, BeginEmpty: true}); err != nil {
			c.Logger.Error("the last good versions cannot be kept on disk: after a restart there are none", "directory", directory, "error", err)
		}
	}
	for e := range c.All() {
		c.used += c.Cost(e.Raw)
	}
	if c.store == nil {
		close(c.done)
	} else {
		go c.write()
	}
	return c
}

// All yields the entries on disk, by type and name.
func (c *Cache) All() iter.Seq[store.Entry] {
	if c.store == nil {
		return func(func(store.Entry) bool) {}
	}
	return c.store.Snapshot().All()
}

// Put adds or replaces entries, and removes those that are nil. It does not wait for the disk,
// and keeps the bytes. After Close it does nothing.
func (c *Cache) Put(changes map[resource.Key][]byte) {
	select {
	case <-c.done: // no disk, or closed
		return
	default:
	}
	c.mu.Lock()
	maps.Copy(c.pending, changes)
	c.mu.Unlock()
	c.wake.Wake()
}

// Close writes the pending changes, without a retry, and closes the file. Further calls
// return the same error.
func (c *Cache) Close() error {
	c.close.Do(func() {
		if c.store == nil {
			return
		}
		close(c.closing)
		<-c.done
		c.closeErr = errors.Join(c.Flush(), c.store.Close())
	})
	return c.closeErr
}

func (c *Cache) write() {
	defer close(c.done)
	for {
		select {
		case <-c.closing:
			return
		case <-c.wake:
		}
		wait := batchDelay
		c.writing.Lock()
		if c.failing {
			wait = retryDelay
		}
		c.writing.Unlock()
		select {
		case <-c.closing:
			return
		case <-time.After(wait):
		}
		_ = c.Flush() // logged
	}
}

// Flush writes the changes that were put. After an error they stay pending: it is logged, and
// the write is repeated in the background.
func (c *Cache) Flush() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	batch := c.pending
	c.pending = map[resource.Key][]byte{}
	c.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	var used int
	_, err := c.store.Update(context.Background(), func(tx *store.Tx) error {
		used = c.apply(tx, batch)
		return nil
	})
	switch {
	case err != nil && !c.failing:
		c.Logger.Error("the last good versions cannot be written: a restart would begin with older ones", "retry_every", retryDelay, "error", err)
	case err == nil && c.failing:
		c.Logger.Info("the last good versions are on disk again")
	}
	if c.failing = err != nil; c.failing {
		c.restore(batch)
		c.wake.Wake()
		return err
	}
	c.used = used
	return nil
}

// restore makes a batch pending again, without changes that newer ones replace and removals
// of entries that are not on disk: otherwise the names would accumulate.
func (c *Cache) restore(batch map[resource.Key][]byte) {
	onDisk := c.store.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, raw := range batch {
		_, newer := c.pending[key]
		_, kept := onDisk.Get(key)
		if !newer && (raw != nil || kept) {
			c.pending[key] = raw
		}
	}
}

// apply makes the changes of a batch, and returns what is used then. Changes without effect
// leave the batch. An entry that cannot be stored does not leave an older one behind.
func (c *Cache) apply(tx *store.Tx, batch map[resource.Key][]byte) (used int) {
	used = c.used
	var replaced, added []resource.Key
	for key, raw := range batch {
		old, there := tx.Get(key)
		if there && raw != nil && c.Same(old.Raw, raw) {
			delete(batch, key)
			continue
		}
		if tx.Delete(key) {
			used -= c.Cost(old.Raw)
		}
		switch {
		case raw == nil:
		case there:
			replaced = append(replaced, key)
		default:
			added = append(added, key)
		}
	}
	// New entries have what those in use leave.
	for _, key := range append(replaced, added...) {
		raw := batch[key]
		cost, err := c.Cost(raw), errFull
		if used+cost <= c.Limit {
			err = tx.PutValue(key, raw, nil)
		}
		if err == nil {
			used += cost
		} else if !c.full {
			c.full = true
			c.Logger.Error("a last good version is not kept on disk; further ones are not logged", "key", key, "limit", c.Limit, "error", err)
		}
	}
	return used
}
