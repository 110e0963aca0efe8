package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// do sends one request, which ends after requestTimeout.
func (s *Store) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.client.Load().Do(ctx, op)
}

// txn is do for a transaction.
func (s *Store) txn(ctx context.Context, conditions []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	res, err := s.do(ctx, clientv3.OpTxn(conditions, then, otherwise))
	return res.Txn(), err
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// unchangedAt is the condition that a key was put at a revision, and not since.
func unchangedAt(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

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
