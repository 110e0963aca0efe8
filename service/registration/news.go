package registration

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Type is the store's type of News, by the ID of a daemon and a Class. They are no xDS resources.
const Type resource.Type = "Renewals"

// Joined is the key that a daemon changes when it writes News for the first time.
var Joined = resource.Key{Type: Type, Name: "joined"}

// newsVersion is the first byte of News.
const newsVersion = 1

// retryFlush is the time after which News that were not written are due again.
const retryFlush = time.Second

// A Class has the registered endpoints with similar ttls: News of those with long ones need not be written as
// often as of those with short ones. Class n has those below 2^n seconds.
type Class int

const classes = 13 // up to 1h8m

func classOf(ttl time.Duration) Class {
	return min(Class(bits.Len64(uint64(ttl/time.Second))), classes-1)
}

// Bound returns a time that the ttls of a class do not reach.
func (c Class) Bound() time.Duration { return time.Second << c }

// class is what of a Class is to be written.
type class struct {
	flushed time.Time     // of the last News
	flush   time.Duration // after flushed, News is due; 0 if there are none
}

// renewed makes News due.
func (c *class) renewed(ttl time.Duration) {
	if after := ttl / 3; c.flush == 0 || after < c.flush {
		c.flush = after
	}
}

func (c *class) due(now time.Time) bool { return c.flush > 0 && now.Sub(c.flushed) >= c.flush }

// News returns what other daemons have to know: the endpoints of a class that this one has renewed within
// their ttl, and how long ago.
func (t *Table) News(of Class, now time.Time) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.classes[of] = class{flushed: now}
	t.written++
	b := binary.AppendUvarint([]byte{newsVersion}, t.written) // a store passes on only what differs
	for name, c := range t.clusters {
		for key, e := range c.endpoints {
			age := now.Sub(e.renewed)
			if e.renewed.IsZero() || age > e.is.TTL || classOf(e.is.TTL) != of {
				continue
			}
			b = store.AppendString(store.AppendString(b, name), key)
			b = binary.AppendUvarint(b, uint64(max(age, 0)/time.Millisecond))
		}
	}
	return b
}

// NotWritten makes News of a class due again.
func (t *Table) NotWritten(of Class, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.classes[of] = class{flushed: now, flush: retryFlush}
}

// Hear renews what a daemon has written that it has renewed: another one, or this one.
func (t *Table) Hear(news []byte, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return readNews(news, func(name, address string, age time.Duration) {
		if e := t.find(name, address); e != nil {
			e.kept = later(e.kept, now.Add(t.patience(e.is.TTL)-age))
			e.extend(e.kept)
			if at := now.Add(-age); at.After(t.heard) {
				t.heard = at
			}
		}
	})
}

var errNews = errors.New("the renewals of another daemon cannot be read")

// readNews calls visit with each renewal.
func readNews(b []byte, visit func(name, address string, age time.Duration)) error {
	if len(b) == 0 || b[0] != newsVersion {
		return errNews
	}
	_, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return errNews
	}
	for b = b[1+n:]; len(b) > 0; {
		name, rest, ok := store.CutString(b)
		if !ok {
			return errNews
		}
		address, rest, ok := store.CutString(rest)
		if !ok {
			return errNews
		}
		age, n := binary.Uvarint(rest)
		if n <= 0 || age > math.MaxInt64/uint64(time.Millisecond) {
			return errNews
		}
		visit(string(name), string(address), time.Duration(age)*time.Millisecond)
		b = rest[n:]
	}
	return nil
}
