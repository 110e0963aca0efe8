package store

import (
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Tx is the transaction of one Update. It reads its own writes and those of earlier Updates,
// durable or not. Only the function of the Update may use it.
type Tx struct {
	base  *Snapshot
	group Changes // what the Updates before it in the same commit wrote
	own   Changes
	now   time.Time
}

// run calls fn, and turns its panic into an error.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fn(tx)
}

// Changes returns what the transaction wrote.
func (tx *Tx) Changes() Changes { return tx.own }

// Get returns the entry of key, and whether there is one.
func (tx *Tx) Get(key resource.Key) (Entry, bool) {
	for _, o := range []Changes{tx.own, tx.group} {
		if e, written := o[key]; written {
			if e == nil {
				return Entry{}, false
			}
			return *e, true
		}
	}
	return tx.base.Get(key)
}

// All yields every entry, in the order of type and name, as of the call.
func (tx *Tx) All() iter.Seq[Entry] {
	written := maps.Clone(tx.group)
	maps.Copy(written, tx.own)
	view, _ := tx.base.Apply(written)
	return view.All()
}

// Put stores a copy of raw under key. An equal value changes nothing, also not the time of
// the entry. The error is [ErrInvalidKey] or [ErrTooLarge].
func (tx *Tx) Put(key resource.Key, raw []byte) error { return tx.PutValue(key, raw, nil) }

// PutValue is Put with a value for [Entry].Value.
func (tx *Tx) PutValue(key resource.Key, raw []byte, value any) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(raw) > MaxValueSize {
		return fmt.Errorf("%w: %v has %d bytes, more than %d", ErrTooLarge, key, len(raw), MaxValueSize)
	}
	tx.own[key] = &Entry{Key: key, Raw: append([]byte{}, raw...), Updated: time.Unix(0, tx.now.UnixNano()).UTC(), Value: value}
	return nil
}

// Delete removes key, and reports whether it was there.
func (tx *Tx) Delete(key resource.Key) bool {
	if _, found := tx.Get(key); !found {
		return false
	}
	tx.own[key] = nil
	return true
}
