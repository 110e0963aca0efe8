package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// turnTTL is how long a turn lasts whose writer is gone, in seconds.
const turnTTL = 5

// A claim is a key that only one daemon has, until its lease ends.
type claim struct {
	lease    clientv3.LeaseID
	revision int64
}

// claim puts a key with a lease of some seconds. It returns nil if another daemon has the key.
func (s *Store) claim(ctx context.Context, key string, ttl int64) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := s.client.Load()
	lease, err := client.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	res, err := s.txn(ctx, []clientv3.Cmp{absent(key)}, []clientv3.Op{clientv3.OpPut(key, s.id, clientv3.WithLease(lease.ID))})
	if err != nil || !res.Succeeded {
		_, _ = client.Revoke(ctx, lease.ID) // else it expires
		return nil, err
	}
	return &claim{lease.ID, res.Header.Revision}, nil
}

// A turn lets a writer commit before all others: one that reads much, such as the push of a
// snapshot, would otherwise conflict with each of many small commits. nil is no turn.
type turn claim

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
