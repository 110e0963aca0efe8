package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/lbd-dev/lbd/xds/backoff"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const (
	// pageSize is how many keys one request reads.
	pageSize = 200
	// maxResponse is the largest response that is accepted: a page of inline values.
	maxResponse = 256 << 20
)

// errStuck restarts a watch that delivers nothing although there are commits.
var errStuck = errors.New("the watch does not deliver commits that etcd has")

// errRestored ends a watch of an etcd that is another one, or in an older state, than before.
var errRestored = errors.New("etcd was restored from a backup")

// beginReplica starts with the local copy.
func (s *Store) beginReplica() {
	r := &s.replica
	r.keys, r.fetch, r.own = s.keys, s.fetch, s.owned.commit
	r.snapshot, r.blobs, r.problems = &store.Snapshot{}, references{}, map[string]error{}
	if s.options.Copy != nil {
		r.snapshot, r.format = contentsOf(s.options.Copy.Snapshot())
	}
}

// run follows etcd until ctx ends.
func (s *Store) run(ctx context.Context) {
	wait := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := s.connect(ctx)
		if err == nil {
			err = s.follow(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errStuck) && !errors.Is(err, errRestored) {
			s.setLost(s.diagnose(ctx, err))
		}
		s.publish()
		closeOnce(s.first)
		if time.Since(began) > maxBackoff { // it was connected
			wait = firstBackoff
		}
		backoff.Sleep(ctx, rand.N(wait))
		wait = min(2*wait, maxBackoff)
	}
}

// closeOnce closes a channel of the follower, unless it is closed.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Connect returns a client, which lives until ctx ends and connects by itself. With a user name, it
// waits for etcd some seconds, and fails if that does not respond.
func (c Config) Connect(ctx context.Context) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: c.Endpoints, TLS: c.TLS,
		Username: c.Username, Password: c.Password,
		DialTimeout: requestTimeout, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), MaxCallRecvMsgSize: maxResponse,
		BackoffWaitBetween: 100 * time.Millisecond, BackoffJitterFraction: 0.5,
		DialOptions: []grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second})},
	})
}

// dial makes the client, which reconnects by itself.
func (s *Store) dial(ctx context.Context) error {
	if s.client.Load() != nil {
		return nil
	}
	client, err := s.config.Connect(ctx)
	if err != nil {
		return s.explain(err)
	}
	s.client.Store(client)
	return nil
}

// connect checks the format.
func (s *Store) connect(ctx context.Context) error {
	f, header, err := s.readFormat(ctx)
	if err != nil {
		return err
	}
	if err := s.use(f, header); err != nil {
		return err
	}
	s.publish()
	closeOnce(s.reached)
	s.group.Go(func() { s.checkVersions(ctx) })
	return nil
}

// use checks that etcd has the fleet that is known, and not in an older state.
func (s *Store) use(f format, header *etcdserverpb.ResponseHeader) error {
	r := &s.replica
	was, index := r.format, f.Base+uint64(header.Revision)
	switch {
	case was.Fleet == "":
	case was.Fleet != f.Fleet:
		return &ForeignError{s.config.Prefix, fmt.Sprintf("it has fleet %s, and this daemon's copy is of fleet %s; move fleet in --data away to join the other one", f.Fleet, was.Fleet)}
	case index < r.snapshot.Index():
		return &OutdatedError{s.config.Prefix, fmt.Sprintf("etcd is at index %d, and this daemon has %d: "+
			"restore the backup with etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted; "+
			"or move fleet in --data away and restart lbd, to use what etcd has", index, r.snapshot.Index())}
	}
	if was.Base != f.Base || r.cluster != header.ClusterId || header.Revision < r.applied { // the fleet was moved or restored
		r.applied, r.pending, r.blobs = 0, nil, references{}
		s.arrived.set(0)
	}
	r.format, r.cluster = f, header.ClusterId
	return nil
}

// explain adds what to do to an error of etcd.
func (s *Store) explain(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return fmt.Errorf("etcd refuses the credentials (--store-user, --store-password, --store-cert; the role of the user needs all of the prefix): %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("etcd did not respond: %w", err)
	}
	return fmt.Errorf("etcd: %w", err)
}

// readFormat connects, and reads the format, and etcd's revision and id.
func (s *Store) readFormat(ctx context.Context) (format, *etcdserverpb.ResponseHeader, error) {
	if err := s.dial(ctx); err != nil {
		return format{}, nil, err
	}
	res, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.keys.format()), clientv3.OpGet(string(s.keys), clientv3.WithPrefix(), clientv3.WithCountOnly())})
	if err != nil {
		return format{}, nil, s.explain(err)
	}
	kvs := res.Responses[0].GetResponseRange().GetKvs()
	switch {
	case len(kvs) == 0 && res.Responses[1].GetResponseRange().GetCount() > 0:
		return format{}, nil, &ForeignError{s.config.Prefix, "it has keys of another program, or of a fleet below it, or lbd store migrate has not finished; choose another prefix, or migrate to it first"}
	case len(kvs) == 0 && s.replica.format.Fleet == "":
		return format{}, nil, &EmptyError{s.config.Prefix}
	case len(kvs) == 0:
		return format{}, nil, &OutdatedError{s.config.Prefix, "nothing is stored there, and this daemon has a copy of what was: " +
			"if etcd is lost, copy the directory fleet in --data to the new etcd with lbd store migrate; to begin empty, run lbd store init, move it away and restart lbd"}
	}
	f, err := decodeFormat(kvs[0].Value)
	f.revision = kvs[0].ModRevision
	if err != nil && !errors.Is(err, store.ErrNewer) {
		err = &ForeignError{s.config.Prefix, err.Error()}
	}
	return f, res.Header, err
}

// follow applies what etcd has, and then every change, until an error.
func (s *Store) follow(ctx context.Context) error {
	if s.replica.applied == 0 {
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	s.setLost(nil)
	closeOnce(s.first)
	err := s.watch(ctx)
	if errors.Is(err, rpctypes.ErrCompacted) {
		s.logger.Info("etcd was compacted: all is read again")
		backoff.Sleep(ctx, rand.N(2*time.Second)) // other daemons do the same
		err = s.load(ctx)
	}
	return err
}

// load reads everything at one revision.
func (s *Store) load(ctx context.Context) error {
	client := s.client.Load()
	var all []keyValue
	at, from, size := int64(0), s.keys.state(), int64(pageSize)
	for more := true; more; {
		page, cancel := context.WithTimeout(ctx, requestTimeout)
		res, err := client.Get(page, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.keys.state())), clientv3.WithLimit(size), clientv3.WithRev(at))
		cancel()
		if err != nil && errors.Is(page.Err(), context.DeadlineExceeded) && size > 1 && ctx.Err() == nil {
			size = max(size/4, 1) // a slow connection
			continue
		}
		if err != nil {
			return s.explain(err)
		}
		at = cmp.Or(at, res.Header.Revision)
		for _, kv := range res.Kvs {
			all = append(all, keyValue{event{s.keys.relative(string(kv.Key)), orEmpty(kv.Value)}, kv.ModRevision})
			from = string(kv.Key) + "\x00"
		}
		more = res.More
	}
	c, err := s.replica.load(ctx, at, all)
	if err != nil {
		return s.explain(err)
	}
	if len(c.Changed) == 0 && c.After.Index() == s.Snapshot().Index() {
		c = nil
	}
	s.report(c)
	closeOnce(s.loaded)
	return nil
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// report makes what was applied visible, and reports the commit that it was; nil if it was none.
func (s *Store) report(c *store.Commit) {
	s.publish()
	if c != nil {
		s.options.OnCommit(*c)
		s.copyWake.Wake()
	}
	s.arrived.set(s.replica.applied)
}

// watch applies the changes after the last revision that is applied.
func (s *Store) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.watching.Store(&cancel)
	defer s.watching.Store(nil)
	responses := s.client.Load().Watch(clientv3.WithRequireLeader(ctx), s.keys.state(), clientv3.WithPrefix(),
		clientv3.WithRev(s.replica.applied+1), clientv3.WithProgressNotify(), clientv3.WithFragment())
	for res := range responses {
		if err := res.Err(); err != nil {
			return s.explain(err)
		}
		if res.Header.ClusterId != s.replica.cluster {
			return errRestored
		}
		if res.IsProgressNotify() {
			s.replica.applied = max(s.replica.applied, res.Header.Revision)
			s.report(nil)
		}
		for _, rev := range s.revisions(res.Events) {
			c, err := s.replica.apply(ctx, rev)
			if err != nil {
				return s.explain(err)
			}
			s.report(c)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.New("etcd: the watch ended")
}

// revisions groups events, which are in order.
func (s *Store) revisions(events []*clientv3.Event) (all []revision) {
	for _, e := range events {
		if n := len(all); n == 0 || all[n-1].number != e.Kv.ModRevision {
			all = append(all, revision{number: e.Kv.ModRevision})
		}
		own := event{key: s.keys.relative(string(e.Kv.Key))}
		if e.Type == clientv3.EventTypePut {
			own.value = orEmpty(e.Kv.Value)
		}
		last := &all[len(all)-1]
		last.events = append(last.events, own)
	}
	return all
}

// fetch reads the parts of a blob.
func (s *Store) fetch(ctx context.Context, r reference, revision int64) ([]byte, error) {
	content := make([]byte, 0, r.size)
	for n := 0; len(content) < r.size; n++ {
		res, err := s.do(ctx, clientv3.OpGet(s.keys.part(r.id, n), clientv3.WithRev(revision)))
		if err != nil {
			return nil, err
		}
		if len(res.Get().Kvs) == 0 {
			return nil, fmt.Errorf("%w: part %d of blob %s is missing", errDamaged, n, r.id)
		}
		content = append(content, res.Get().Kvs[0].Value...)
	}
	if len(content) != r.size || store.Checksum(0, content) != r.sum {
		return nil, fmt.Errorf("%w: blob %s: checksum mismatch", errDamaged, r.id)
	}
	return content, nil
}

// fleetKey is the entry of the local copy that says whose copy it is.
var fleetKey = resource.Key{Type: "Fleet"}

// contentsOf returns what a local copy is of; an empty snapshot if it is no copy.
func contentsOf(of *store.Snapshot) (*store.Snapshot, format) {
	e, ok := of.Get(fleetKey)
	f, err := decodeFormat(e.Raw)
	if !ok || err != nil {
		return &store.Snapshot{}, format{}
	}
	contents, _ := of.Apply(store.Changes{fleetKey: nil}, of.Index())
	return contents, f
}

// writeCopy writes what is visible now.
func (s *Store) writeCopy(ctx context.Context) error {
	now, f := s.Snapshot(), s.state.Load().format
	if now.Index() == 0 {
		return nil
	}
	of, _ := now.Apply(store.Changes{fleetKey: {Key: fleetKey, Raw: []byte(f.encode()), Index: now.Index()}}, now.Index())
	return s.options.Copy.Copy(ctx, of)
}

// writeCopies writes the local copy after commits, and when ctx ends.
func (s *Store) writeCopies(ctx context.Context) {
	defer func() { s.copied(s.writeCopy(context.WithoutCancel(ctx))) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.copyWake:
		}
		err := s.writeCopy(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.copied(err); err != nil {
			backoff.Sleep(ctx, maxBackoff)
			s.copyWake.Wake()
		}
	}
}

// copied records whether the copy could be written.
func (s *Store) copied(err error) {
	if err == nil {
		if s.copyErr.Swap(nil) != nil {
			s.logger.Info("the local copy of the store is written again")
		}
		return
	}
	if s.copyErr.Swap(&err) == nil {
		s.logger.Error("the local copy of the store cannot be written: a restart without etcd would use an older one", "error", err)
	}
}
