package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// turnTTL is how long a turn lasts whose writer is gone, in seconds.
const turnTTL = 5

// A turn lets a writer commit before all others: one that reads much, such as the push of a
// snapshot, would otherwise conflict with each of many small commits. nil is no turn.
type turn claim

// takeTurn returns a turn; nil if another writer has it.
func (s *Store) takeTurn(ctx context.Context) *turn {
	c, _ := s.claim(ctx, s.keys.turn(), turnTTL) // after an error, a later conflict tries again
	return (*turn)(c)
}

// endTurn deletes the key of a turn, unless the commit did that.
func (s *Store) endTurn(ctx context.Context, t *turn) {
	if t == nil {
		return
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _ = s.client.Load().Revoke(request, t.lease) // else it expires
}

// condition is that no other writer has a turn.
func (t *turn) condition(l layout) clientv3.Cmp {
	if t == nil {
		return absent(l.turn())
	}
	return unchangedAt(l.turn(), t.revision)
}

// lost reports whether a turn has expired, by the key of the turn.
func (t *turn) lost(res *clientv3.TxnResponse, n int) bool {
	return t != nil && modRevision(res, n) != t.revision
}
