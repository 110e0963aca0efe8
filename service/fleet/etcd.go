package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	records map[string]stored // of read and watch, which are not called at the same time
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
	heads    = "limit/"
	replicas = "replica/"
	shares   = "share/"
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

// keys returns the keys of replicas and shares: the range has no others of the prefix.
func (s *etcd) keys() (from string, to clientv3.OpOption) {
	return s.prefix + replicas, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix + shares))
}

func (s *etcd) read(ctx context.Context) (view, error) {
	from, to := s.keys()
	r, err := s.client().Txn(ctx).Then(clientv3.OpGet(from, to), clientv3.OpGet(s.prefix+heads, clientv3.WithPrefix(), clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return view{}, fmt.Errorf("read shares and replicas: %w", err)
	}
	s.records = make(map[string]stored)
	v := view{r.Header.Revision, make(map[string]stored), make(map[string]member)}
	for _, kv := range r.Responses[0].GetResponseRange().GetKvs() {
		s.add(changes(v), kv, true)
	}
	for _, kv := range r.Responses[1].GetResponseRange().GetKvs() {
		name := strings.TrimPrefix(string(kv.Key), s.prefix+heads)
		record := v.records[name]
		record.revision, record.exists = kv.ModRevision, true
		v.records[name] = record
	}
	return v, nil
}

// add adds a key and its value, or its deletion.
func (s *etcd) add(c changes, kv *mvccpb.KeyValue, exists bool) {
	key := strings.TrimPrefix(string(kv.Key), s.prefix)
	if name, ok := strings.CutPrefix(key, shares); ok {
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			c.records[name[:i]] = s.assemble(name[:i], name[i+1:], kv, exists)
		}
	} else if name, ok := strings.CutPrefix(key, replicas); ok {
		c.members[name] = member{}
		if exists {
			r, _ := roster.DecodeReplica(kv.Value) // what cannot be read is not shown
			r.ID = name
			c.members[name] = member{kv.Lease, r}
		}
	}
}

// assemble returns the record of a limit after a change of an entry. While an entry cannot be read, the record cannot.
func (s *etcd) assemble(limit, replica string, kv *mvccpb.KeyValue, exists bool) stored {
	now := s.records[limit]
	now.record = now.record.Without(func(e share.Entry) bool { return e.Replica == replica })
	now.unreadable = maps.Clone(now.unreadable)
	delete(now.unreadable, replica)
	if exists {
		if e, err := share.Decode(replica, kv.Value); err != nil {
			if now.unreadable == nil {
				now.unreadable = make(map[string]error)
			}
			now.unreadable[replica] = err
		} else {
			now.record = now.record.With(e)
		}
	}
	now.err = nil
	for _, err := range now.unreadable {
		now.err = err
	}
	now.revision, now.exists = kv.ModRevision, len(now.record.Entries)+len(now.unreadable) > 0
	s.records[limit] = now
	return now
}

func (s *etcd) watch(ctx context.Context, after int64, f func(changes)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	from, to := s.keys()
	for r := range s.client().Watch(ctx, from, to, clientv3.WithRev(after+1), clientv3.WithProgressNotify()) {
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch shares and replicas: %w", err)
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

// replace also changes the head, which nothing watches: that is how an update that was decided on an older record fails.
// There may be a head without entries, which were deleted by hand.
func (s *etcd) replace(ctx context.Context, key string, u share.Update) (replaced bool, revision int64, err error) {
	head, entry := s.prefix+heads+key, s.prefix+shares+key+"/"
	unchanged := []clientv3.Cmp{exists(s.prefix + format), clientv3.Compare(clientv3.ModRevision(head), "<", u.Base+1)}
	if u.Exists {
		unchanged = append(unchanged, exists(head))
	}
	ops := []clientv3.Op{clientv3.OpPut(head, "")}
	if len(u.Record.Entries) == 0 {
		ops[0] = clientv3.OpDelete(head)
	}
	for _, replica := range u.Removed {
		ops = append(ops, clientv3.OpDelete(entry+replica))
	}
	if u.Own.Replica != "" {
		ops = append(ops, clientv3.OpPut(entry+u.Own.Replica, string(u.Own.Encode())))
	}
	r, err := s.client().Txn(ctx).If(unchanged...).Then(ops...).Commit()
	if err != nil {
		return false, 0, fmt.Errorf("change the shares of limit %q: %w", key, err)
	}
	return r.Succeeded, r.Header.Revision, nil
}
