package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/service/fleet/share"
)

// etcd is the store of a prefix.
type etcd struct {
	client *clientv3.Client
	prefix string // with a slash at the end
	ttl    time.Duration
}

const (
	limits   = "limit/"
	replicas = "replica/"
)

func (s *etcd) grant(ctx context.Context) (int64, time.Duration, error) {
	r, err := s.client.Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return 0, 0, fmt.Errorf("create a session: %w", err)
	}
	return int64(r.ID), time.Duration(r.TTL) * time.Second, nil
}

func (s *etcd) keepAlive(ctx context.Context, session int64) (time.Duration, error) {
	r, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(session))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, errNoSession
	case err != nil:
		return 0, fmt.Errorf("keep the session alive: %w", err)
	default:
		return time.Duration(r.TTL) * time.Second, nil
	}
}

func (s *etcd) register(ctx context.Context, session int64, replica string) error {
	_, err := s.client.Put(ctx, s.prefix+replicas+replica, "{}", clientv3.WithLease(clientv3.LeaseID(session)))
	if err != nil {
		return fmt.Errorf("register the replica: %w", err)
	}
	return nil
}

func (s *etcd) revoke(ctx context.Context, session int64) error {
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(session))
	return err
}

// keys returns the keys of limits and replicas: the range has no others of the prefix.
func (s *etcd) keys() (from string, to clientv3.OpOption) {
	return s.prefix + limits, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix + replicas))
}

func (s *etcd) read(ctx context.Context) (view, error) {
	from, to := s.keys()
	r, err := s.client.Get(ctx, from, to)
	if err != nil {
		return view{}, fmt.Errorf("read limits and replicas: %w", err)
	}
	v := view{r.Header.Revision, make(map[string]stored), make(map[string]int64)}
	for _, kv := range r.Kvs {
		s.add(changes(v), kv, true)
	}
	return v, nil
}

// add adds a key and its value, or its deletion.
func (s *etcd) add(c changes, kv *mvccpb.KeyValue, exists bool) {
	key := strings.TrimPrefix(string(kv.Key), s.prefix)
	if name, ok := strings.CutPrefix(key, limits); ok {
		c.records[name] = storedOf(kv, exists)
	} else if name, ok := strings.CutPrefix(key, replicas); ok {
		c.sessions[name] = 0
		if exists {
			c.sessions[name] = kv.Lease
		}
	}
}

func storedOf(kv *mvccpb.KeyValue, exists bool) stored {
	out := stored{revision: kv.ModRevision, exists: exists}
	if exists {
		out.record, out.err = share.Decode(kv.Value)
	}
	return out
}

func (s *etcd) watch(ctx context.Context, after int64, f func(changes)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	from, to := s.keys()
	for r := range s.client.Watch(ctx, from, to, clientv3.WithRev(after+1), clientv3.WithProgressNotify()) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch limits and replicas: %w", err)
		}
		c := changes{r.Header.Revision, make(map[string]stored), make(map[string]int64)}
		for _, e := range r.Events {
			s.add(c, e.Kv, e.Type == mvccpb.PUT)
		}
		if len(r.Events) > 0 && !r.IsProgressNotify() {
			c.revision = r.Events[len(r.Events)-1].Kv.ModRevision // the header may be ahead of the events
		}
		f(c)
	}
	return context.Cause(ctx)
}

func (s *etcd) replace(ctx context.Context, key string, base int64, record share.Record) (bool, stored, error) {
	name := s.prefix + limits + key
	change := clientv3.OpPut(name, string(record.Encode()))
	if len(record.Entries) == 0 {
		change = clientv3.OpDelete(name)
	}
	r, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(name), "=", base)).Then(change).Else(clientv3.OpGet(name)).Commit()
	if err != nil {
		return false, stored{}, fmt.Errorf("replace the record of limit %q: %w", key, err)
	}
	if r.Succeeded {
		return true, stored{record: record, revision: r.Header.Revision, exists: len(record.Entries) > 0}, nil
	}
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return false, storedOf(kvs[0], true), nil
	}
	return false, stored{revision: r.Header.Revision}, nil
}
