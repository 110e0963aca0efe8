package lastgood

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

const directory = "last-known-good"

// MaxResources is the maximum number of resources on disk. The cache drops more.
const MaxResources = 200_000

const (
	// batchDelay is the time from the first change of a batch to its write.
	batchDelay = 500 * time.Millisecond
	// retryDelay replaces it after a failed write.
	retryDelay = 10 * time.Second
)

// Cache stores the last known good resources. Its methods are safe for concurrent use.
type Cache struct {
	// fixed after Open
	logger  *slog.Logger
	store   *file.Store // nil: the cache is empty and stores nothing
	limit   int
	wake    chan struct{} // capacity 1
	closing chan struct{}
	done    chan struct{} // closed when the writer has ended

	// writer only
	failing     bool // the last write failed
	logLimit    sync.Once
	logRejected sync.Once

	// guarded by mu
	mu      sync.Mutex
	pending map[resource.Key]*resource.Update // not on disk yet; nil removes a resource

	close    sync.Once
	closeErr error
}

// Open opens the cache in a data directory, or creates it. If dir is empty, or cannot be
// used, which is logged, the cache is empty and stores nothing. A damaged file is logged,
// set aside and replaced. A nil logger logs nothing.
func Open(dir string, logger *slog.Logger) *Cache {
	c := &Cache{
		logger:  cmp.Or(logger, slog.New(slog.DiscardHandler)),
		limit:   MaxResources,
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		pending: map[resource.Key]*resource.Update{},
	}
	if dir != "" {
		var err error
		dir = filepath.Join(dir, directory)
		if c.store, err = file.Open(dir, file.Options{Logger: c.logger, BeginEmpty: true}); err != nil {
			c.logger.Error("the last known good configuration cannot be kept on disk: a restart without a management server would start empty", "directory", dir, "error", err)
		}
	}
	if c.store == nil {
		close(c.done)
	} else {
		go c.write()
	}
	return c
}

// All yields the resources on disk, by type and name.
func (c *Cache) All() iter.Seq[resource.Update] {
	return func(yield func(resource.Update) bool) {
		if c.store == nil {
			return
		}
		for kept := range c.store.Snapshot().All() {
			e, err := decodeEntry(kept.Key, kept.Raw)
			if err != nil {
				c.logger.Error("a resource of the last known good configuration is invalid", "resource", kept.Key, "error", err)
				continue
			}
			if !yield(e) {
				return
			}
		}
	}
}

// Put adds or replaces resources, and removes those without Raw. It does not wait for the
// disk, and keeps Raw. After Close it does nothing.
func (c *Cache) Put(updates []resource.Update) {
	select {
	case <-c.done: // no disk, or closed
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
	c.wakeWriter()
}

func (c *Cache) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
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
		c.closeErr = errors.Join(c.flush(), c.store.Close())
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
		if c.failing {
			wait = retryDelay
		}
		select {
		case <-c.closing:
			return
		case <-time.After(wait):
		}
		c.logWrite(c.flush())
	}
}

// flush writes the pending changes. They stay pending if that fails.
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
	c.restore(batch)
	c.wakeWriter()
	return err
}

// restore makes a batch pending again, without changes that newer ones replace and removals
// of resources that are not on disk: otherwise the names would accumulate.
func (c *Cache) restore(batch map[resource.Key]*resource.Update) {
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

// apply makes the changes of a batch, except those without effect and above the limit.
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
		} else if count >= c.limit {
			c.logLimit.Do(func() {
				c.logger.Error("the last known good configuration has reached its limit: more resources are not stored", "limit", c.limit)
			})
			continue
		}
		if err := tx.Put(key, encode(e)); err != nil {
			c.logRejected.Do(func() {
				c.logger.Error("a resource cannot be stored as last known good; further ones are not logged", "resource", key, "error", err)
			})
		} else if !there {
			count++
		}
	}
}

// logWrite logs the first failed write, and the first successful one after it.
func (c *Cache) logWrite(err error) {
	switch failing := err != nil; {
	case failing && !c.failing:
		c.logger.Error("the last known good configuration cannot be written: a restart without a management server would serve an older one", "retry_every", retryDelay, "error", err)
	case !failing && c.failing:
		c.logger.Info("the last known good configuration is on disk again")
	}
	c.failing = err != nil
}

// An encoded Update is: the format (1 byte), Updated in Unix nanoseconds (8 bytes, big
// endian), Version with its length (uvarint), Server with its length, Raw. An older format
// has no Server.
const (
	formatWithoutServer = 1
	entryFormat         = 2
)

var errUnknownFormat = errors.New("unknown format of the entry")

func encode(e *resource.Update) []byte {
	b := make([]byte, 0, 9+2*binary.MaxVarintLen64+len(e.Version)+len(e.Server)+len(e.Raw))
	b = append(b, entryFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Updated.UnixNano()))
	b = store.AppendString(b, e.Version)
	b = store.AppendString(b, e.Server)
	return append(b, e.Raw...)
}

// decodeEntry is the inverse of encode. Raw is the end of b.
func decodeEntry(key resource.Key, b []byte) (resource.Update, error) {
	if len(b) < 9 || b[0] != formatWithoutServer && b[0] != entryFormat {
		return resource.Update{}, errUnknownFormat
	}
	e := resource.Update{Item: resource.Item{Key: key}, Updated: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()}
	format, b := b[0], b[9:]
	version, b, ok := store.CutString(b)
	if !ok {
		return resource.Update{}, errUnknownFormat
	}
	var server []byte
	if format == entryFormat {
		if server, b, ok = store.CutString(b); !ok {
			return resource.Update{}, errUnknownFormat
		}
	}
	e.Version, e.Server, e.Raw = string(version), string(server), b
	return e, nil
}
