package lb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

// race is one attempt to connect to an endpoint (gRFC A61, RFC 8305): it dials each
// address [policy.AttemptDelay] after the one before, or when that has failed. The
// first that connects wins, and the others are canceled. The attempt fails when all
// have failed.
//
// Each dial has a slot, so the number of dials is limited, not of endpoints. If slots
// are scarce, an endpoint waits for one address at a time: it takes no more turns, and
// none longer, than if it dialed its addresses one after the other.
type race struct {
	link      *tcpLink
	addresses []string // in the order in which they are dialed

	ctx context.Context // ends when one has won, or with the link

	begun  atomic.Int64 // how many are dialed, were, or wait for a slot
	failed atomic.Int64
	won    atomic.Bool
}

// start begins the race. There must be an address.
func (l *tcpLink) start(addresses []string) {
	r := &race{link: l, addresses: policy.Interleave(addresses, func(a string) string { return a })}
	r.ctx = l.begin()
	r.begin(0)
}

func (r *race) over() bool { return r.ctx.Err() != nil }

// end cancels the rest of the race once an address has connected.
func (r *race) end() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.link.cancel()
	r.link.cancel = nil
	r.link.unstall()
}

// begin queues the dial of address i, once. All addresses before it have begun.
func (r *race) begin(i int) {
	if i == len(r.addresses) || !r.begun.CompareAndSwap(int64(i), int64(i)+1) {
		return
	}
	r.queue(i, i > 0)
}

func (r *race) queue(i int, begun bool) {
	slots, d := r.link.dialer.slots, dial{run: func(limit time.Duration) bool { return r.dial(i, limit) }, over: r.over}
	slots.add(&slots.attempts, r.link.group, d, begun)
}

// dial dials address i. short reports that a shortage in lbd prevented that: the next
// address does not begin then.
func (r *race) dial(i int, limit time.Duration) (short bool) {
	if r.over() {
		return false
	}
	delay := time.AfterFunc(policy.AttemptDelay, func() { r.begin(i + 1) })
	defer delay.Stop()
	address := r.addresses[i]
	conn, err := r.link.attempt(r.ctx, address, limit, func() { delay.Stop() })
	lacking, isShortage := errors.AsType[*shortage](err)
	if !isShortage {
		r.stall(address, false)
	}
	switch {
	case err == nil && !r.won.Swap(true):
		r.end()
		r.link.connected(address, conn)
	case err == nil:
		_ = conn.Close()
		r.link.release()
	case r.over():
	case isShortage:
		if r.link.dialer.report(lacking) {
			return true
		}
		r.wait(i)
	case r.failed.Add(1) == int64(len(r.addresses)):
		r.link.report(Connection{Address: address, Err: err})
	default:
		r.begin(i + 1)
	}
	return false
}
