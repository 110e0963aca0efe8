package lb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

// race is one attempt to connect to an endpoint (gRFC A61, RFC 8305): an address is
// dialed [policy.AttemptDelay] after the one before was, or once that has failed.
// The first that connects wins, and the others are given up. The attempt has failed
// when the last has.
//
// Each dial has a slot of its own: what is bounded is dials under way, however many
// endpoints they are of. Where slots are scarce an address waits for its turn, one of
// an endpoint at a time: it takes no more turns than it would by dialing its addresses
// one after the other, and holds each for no longer.
type race struct {
	link      *tcpLink
	addresses []string // in the order in which they are dialed

	ctx    context.Context // ends when one has won, or with the link
	cancel context.CancelFunc

	begun  atomic.Int64 // how many are dialed, were, or wait for a slot
	failed atomic.Int64
	won    atomic.Bool
}

// start begins the race, from one address at least.
func (l *tcpLink) start(addresses []string) {
	r := &race{link: l, addresses: policy.Interleave(addresses, func(a string) string { return a })}
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	r.begin(0)
}

func (r *race) over() bool { return r.ctx.Err() != nil }

// end gives up what is left of the race once an address has connected.
func (r *race) end() {
	r.cancel()
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.link.unstall()
}

// begin lets address i, before which all others have been begun, be dialed once it
// is its turn. A second call does nothing.
func (r *race) begin(i int) {
	if i == len(r.addresses) || !r.begun.CompareAndSwap(int64(i), int64(i)+1) {
		return
	}
	r.link.dialer.slots.attempt(r.link.turn, r.dialing(i), i > 0)
}

func (r *race) dialing(i int) dial {
	return dial{run: func(limit time.Duration) bool { return r.dial(i, limit) }, over: r.over}
}

// dial dials address i. short reports that it has to be dialed again, because lbd
// could not: the next address does not begin for that.
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
