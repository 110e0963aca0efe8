package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
)

// etcd is the store of a prefix.
type etcd struct {
	// Fixed after build.
	dial   func(ctx context.Context) (*clientv3.Client, error)
	prefix string // with a slash at the end
	ttl    time.Duration

	connected atomic.Pointer[clientv3.Client]
}

// errNotConnected is the error of what is read before there was a connection.
var errNotConnected = errors.New("there was no connection to etcd yet")

func (s *etcd) connect(ctx context.Context) error {
	if s.connected.Load() != nil {
		return nil
	}
	c, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	s.connected.Store(c)
	return nil
}

func (s *etcd) close() {
	if c := s.connected.Load(); c != nil {
		_ = c.Close() // its session has ended, or ends by itself
	}
}

// client returns the client, after connect.
func (s *etcd) client() *clientv3.Client { return s.connected.Load() }

const (
	limits   = "limit/"
	replicas = "replica/"
	statuses = "status/"
)

// maxStatuses limits the summaries that are read.
const maxStatuses = 10_000

func (s *etcd) grant(ctx context.Context) (int64, time.Duration, error) {
	r, err := s.client().Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return 0, 0, fmt.Errorf("create a session: %w", err)
	}
	return int64(r.ID), time.Duration(r.TTL) * time.Second, nil
}

func (s *etcd) keepAlive(ctx context.Context, session int64) (time.Duration, error) {
	r, err := s.client().KeepAliveOnce(ctx, clientv3.LeaseID(session))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, errNoSession
	case err != nil:
		return 0, fmt.Errorf("keep the session alive: %w", err)
	default:
		return time.Duration(r.TTL) * time.Second, nil
	}
}

// format is the key that the store of pushed resources has first.
const format = "format"

// errNoFleet is the error of an etcd that has no fleet, because it begins empty: a copy may be moved to it.
var errNoFleet = errors.New("etcd has no fleet under the prefix")

func (s *etcd) register(ctx context.Context, session int64, r roster.Replica) error {
	put := clientv3.OpPut(s.prefix+replicas+r.ID, string(r.Encode()), clientv3.WithLease(clientv3.LeaseID(session)))
	res, err := s.client().Txn(ctx).If(exists(s.prefix + format)).Then(put).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("register the replica: %w", err)
	case !res.Succeeded:
		return errNoFleet
	default:
		return nil
	}
}

func exists(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), ">", 0) }

func (s *etcd) publish(ctx context.Context, session int64, replica string, summary []byte) error {
	_, err := s.client().Put(ctx, s.prefix+statuses+replica, string(summary), clientv3.WithLease(clientv3.LeaseID(session)))
	if err != nil {
		return fmt.Errorf("publish the summary: %w", err)
	}
	return nil
}

func (s *etcd) summaries(ctx context.Context) (map[string][]byte, error) {
	if s.connected.Load() == nil {
		return nil, errNotConnected
	}
	r, err := s.client().Get(ctx, s.prefix+statuses, clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithLimit(maxStatuses))
	if err != nil {
		return nil, fmt.Errorf("read the summaries of replicas: %w", err)
	}
	all := make(map[string][]byte, len(r.Kvs))
	for _, kv := range r.Kvs {
		all[strings.TrimPrefix(string(kv.Key), s.prefix+statuses)] = kv.Value
	}
	return all, nil
}

func (s *etcd) revoke(ctx context.Context, session int64) error {
	_, err := s.client().Revoke(ctx, clientv3.LeaseID(session))
	return err
}

// keys returns the keys of limits and replicas: the range has no others of the prefix.
func (s *etcd) keys() (from string, to clientv3.OpOption) {
	return s.prefix + limits, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix + replicas))
}

func (s *etcd) read(ctx context.Context) (view, error) {
	from, to := s.keys()
	r, err := s.client().Get(ctx, from, to)
	if err != nil {
		return view{}, fmt.Errorf("read limits and replicas: %w", err)
	}
	v := view{r.Header.Revision, make(map[string]stored), make(map[string]member)}
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
		c.members[name] = member{}
		if exists {
			r, _ := roster.DecodeReplica(kv.Value) // what cannot be read is not shown
			r.ID = name
			c.members[name] = member{kv.Lease, r}
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
	for r := range s.client().Watch(ctx, from, to, clientv3.WithRev(after+1), clientv3.WithProgressNotify()) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch limits and replicas: %w", err)
		}
		c := changes{r.Header.Revision, make(map[string]stored), make(map[string]member)}
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
	r, err := s.client().Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(name), "=", base), exists(s.prefix+format)).Then(change).Else(clientv3.OpGet(name)).Commit()
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
