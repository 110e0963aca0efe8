package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// turnTTL is how long a turn lasts whose writer is gone, in seconds.
const turnTTL = 5

// A turn lets a writer commit before all others: one that reads much, such as the push of a
// snapshot, would otherwise conflict with each of many small commits. nil is no turn.
type turn struct {
	lease    clientv3.LeaseID
	revision int64
}

// takeTurn returns a turn; nil if another writer has it.
func (s *Store) takeTurn(ctx context.Context) *turn {
	client := s.client.Load()
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := client.Grant(request, turnTTL)
	if err != nil {
		return nil
	}
	res, err := client.Txn(request).If(clientv3.Compare(clientv3.CreateRevision(s.keys.turn()), "=", 0)).
		Then(clientv3.OpPut(s.keys.turn(), s.id, clientv3.WithLease(lease.ID))).Commit()
	if err != nil || !res.Succeeded {
		_, _ = client.Revoke(request, lease.ID) // else it expires
		return nil
	}
	return &turn{lease.ID, res.Header.Revision}
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
		return clientv3.Compare(clientv3.CreateRevision(l.turn()), "=", 0)
	}
	return clientv3.Compare(clientv3.ModRevision(l.turn()), "=", t.revision)
}

// lost reports whether a turn has expired, by the key of the turn.
func (t *turn) lost(res *clientv3.TxnResponse, n int) bool {
	return t != nil && modRevision(res, n) != t.revision
}
