package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// An outcome is what an attempt led to. Without conflict and error, what it read is true of a
// revision, and what it wrote is committed by it.
type outcome struct {
	revision int64
	conflict bool // with the state of a revision; the functions are to run again
	turnLost bool
	large    *batch // that is committed, and to be folded
	err      error
}

// attempt commits what an attempt wrote, if what it read is unchanged.
func (s *Store) attempt(ctx context.Context, a *attempt, t *turn) outcome {
	pending := s.keys.relative(s.keys.pending())
	if reason, unreadable := a.base.problems[pending]; unreadable && a.base.pending == nil {
		return outcome{err: s.stuck(reason)}
	}
	if len(a.changes) == 0 {
		return s.confirm(ctx, a)
	}
	if a.base.pending != nil {
		if o := s.fold(ctx, a.base.pending); o.err != nil {
			return o
		}
		return outcome{conflict: true} // with the fold
	}
	if err := s.begin(ctx); err != nil {
		return outcome{err: s.failure(err)}
	}
	s.writer.sequence++
	w, err := s.prepare(ctx, a)
	if err != nil {
		s.deleteBlobs(ctx, w.blobs)
		return outcome{err: s.failure(err)}
	}
	s.owned.add(s.writer.sequence, w.own)
	o := s.put(ctx, a, w, t)
	if o.err == nil && !o.conflict {
		s.writer.revision = o.revision
		if w.large != nil {
			o.large = &batch{*w.large, o.revision}
		}
	} else if _, unknown := o.err.(*store.UnknownOutcomeError); !unknown { //nolint:errorlint // as put returns it
		s.owned.remove(s.writer.sequence)
		s.deleteBlobs(ctx, w.blobs)
	}
	return o
}

// confirm checks that what was read is the last state: the result depends on it.
func (s *Store) confirm(ctx context.Context, a *attempt) outcome {
	head := s.keys.head()
	res, err := s.txn(ctx, s.comparisons(a), []clientv3.Op{clientv3.OpGet(head, clientv3.WithCountOnly())}, clientv3.OpGet(head))
	switch {
	case err != nil:
		return outcome{err: unavailable(s.explain(err))}
	case !res.Succeeded: // up to the last commit
		return outcome{conflict: true, revision: modRevision(res, 0)}
	}
	return outcome{revision: a.base.applied}
}

// modRevision is that of the key that response n of a transaction read; 0 if it does not exist.
func modRevision(res *clientv3.TxnResponse, n int) int64 {
	revision := int64(0)
	for _, kv := range res.Responses[n].GetResponseRange().GetKvs() {
		revision = max(revision, kv.ModRevision)
	}
	return revision
}

// begin grants the lease of the writer's key, unless it has one. The first commit puts the key.
func (s *Store) begin(ctx context.Context) error {
	w, client := &s.writer, s.client.Load()
	if w.stop != nil && w.revision != uncertain {
		select {
		case <-w.expired:
			w.revision = uncertain
		default:
			return nil
		}
	}
	w.end(client)
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := client.Grant(request, writerTTL)
	if err != nil {
		return err
	}
	w.lease = lease.ID
	if w.revision == uncertain {
		w.sequence++ // no commit has it
		if err := s.putWriter(request, w.sequence); err != nil {
			return err
		}
	}
	alive, stop := context.WithCancel(ctx)
	responses, err := client.KeepAlive(alive, lease.ID)
	if err != nil {
		stop()
		return err
	}
	expired := make(chan struct{})
	s.group.Go(func() {
		defer close(expired)
		for range responses { // until the lease expires, or stop
		}
	})
	w.expired, w.stop = expired, stop
	return nil
}

// putWriter puts the writer's key with a sequence that no commit has.
func (s *Store) putWriter(ctx context.Context, sequence uint64) error {
	s.writer.revision = uncertain
	res, err := s.do(ctx, s.opWriter(sequence))
	if err == nil {
		s.writer.revision = res.Put().Header.Revision
	}
	return err
}

// opWriter puts a sequence in the writer's key.
func (s *Store) opWriter(sequence uint64) clientv3.Op {
	at := s.keys.writer(s.id)
	return clientv3.OpPut(at, string(encodeWriter(s.keys.relative(at), sequence)), clientv3.WithLease(s.writer.lease))
}

// end removes the writer's key.
func (w *writer) end(client *clientv3.Client) {
	if w.stop == nil {
		return
	}
	w.stop()
	w.stop = nil
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/5)
	defer cancel()
	_, _ = client.Revoke(ctx, w.lease) // else it expires
}

// Writes are what an attempt puts.
type writes struct {
	own     *ownCommit
	changes []change
	blobs   []string // ids
	large   *reference
}

// prepare encodes the changes of an attempt, and writes what does not fit into one transaction.
func (s *Store) prepare(ctx context.Context, a *attempt) (*writes, error) {
	w := &writes{own: &ownCommit{changes: a.changes, blobs: references{}}}
	size := 0
	for _, key := range slices.SortedFunc(maps.Keys(a.changes), store.CompareKeys) {
		c, blob, err := s.encode(ctx, w, key, a.changes[key])
		if err != nil {
			return w, err
		}
		size += len(c.key) + len(c.record)
		w.changes = append(w.changes, c)
		w.own.blobs[c.key] = blob
	}
	if len(w.changes) <= maxOperations && size <= maxBytes {
		return w, nil
	}
	r, err := s.putCommitBlob(ctx, w, encodeBatch(w.changes))
	w.large = &r
	return w, err
}

func (s *Store) encode(ctx context.Context, w *writes, key resource.Key, e *store.Entry) (c change, blob string, err error) {
	c.key = s.keys.relative(s.keys.entry(key))
	if e == nil {
		return c, "", nil
	}
	rec := record{updated: e.Updated, raw: e.Raw}
	if len(e.Raw) > maxInline {
		r, err := s.putCommitBlob(ctx, w, e.Raw)
		if err != nil {
			return c, "", err
		}
		rec.blob, blob = &r, r.id
	}
	c.record = rec.encode(c.key)
	return c, blob, nil
}

// putCommitBlob writes a blob of a commit. The writer's key is put first: without it, its blobs
// are garbage.
func (s *Store) putCommitBlob(ctx context.Context, w *writes, content []byte) (reference, error) {
	if s.writer.revision == 0 {
		if err := s.putWriter(ctx, 0); err != nil {
			return reference{}, err
		}
	}
	return s.putBlob(ctx, w, content)
}

// putBlob writes content in parts. Its id has the attempt's sequence.
func (s *Store) putBlob(ctx context.Context, w *writes, content []byte) (reference, error) {
	if len(content) > maxBlob {
		return reference{}, fmt.Errorf("%w: %d bytes, more than %d in one commit", store.ErrTooLarge, len(content), maxBlob)
	}
	r := reference{id: blobID(s.id, s.writer.sequence, len(w.blobs)), size: len(content), sum: store.Checksum(0, content)}
	w.blobs = append(w.blobs, r.id)
	n := 0
	for part := range slices.Chunk(content, partSize) {
		if _, err := s.do(ctx, clientv3.OpPut(s.keys.part(r.id, n), string(part))); err != nil {
			return r, err
		}
		n++
	}
	return r, nil
}

func blobID(writer string, sequence uint64, n int) string {
	return fmt.Sprintf("%s-%d-%d", writer, sequence, n)
}

// deleteBlobs deletes the blobs of an attempt that failed; else the collector does it.
func (s *Store) deleteBlobs(ctx context.Context, ids []string) {
	for _, id := range ids {
		if _, err := s.do(ctx, clientv3.OpDelete(s.keys.blob(id), clientv3.WithPrefix())); err != nil {
			return
		}
	}
}

// put is the transaction of an attempt.
func (s *Store) put(ctx context.Context, a *attempt, w *writes, t *turn) outcome {
	at := s.keys.writer(s.id)
	// The format, so that nothing is written after a newer lbd has begun another one, or after the prefix was deleted.
	conditions := append(s.comparisons(a), unchangedAt(at, s.writer.revision), t.condition(s.keys), unchangedAt(s.keys.format(), a.base.format.revision))
	if a.reads.All {
		conditions = append(conditions, absent(s.keys.pending()))
	}
	// The writer's key first, so that its event is the first of the revision.
	ops := []clientv3.Op{s.opWriter(s.writer.sequence), clientv3.OpPut(s.keys.head(), s.id)}
	if w.large != nil {
		key := s.keys.pending()
		ops = append(ops, clientv3.OpPut(key, string(encodePending(s.keys.relative(key), *w.large))))
	} else {
		for _, c := range w.changes {
			ops = append(ops, c.op(s.keys))
		}
	}
	types := map[resource.Type]bool{}
	for key, e := range a.changes {
		if e != nil && !types[key.Type] {
			types[key.Type] = true
			ops = append(ops, clientv3.OpPut(s.keys.lastPut(key.Type), s.id))
		}
	}
	if t != nil {
		ops = append(ops, clientv3.OpDelete(s.keys.turn()))
	}
	res, err := s.txn(ctx, conditions, ops, clientv3.OpGet(s.keys.head()), clientv3.OpGet(s.keys.turn()), clientv3.OpGet(at), clientv3.OpGet(s.keys.format()))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // the functions run again, with a new key
		s.writer.revision = uncertain
		return outcome{conflict: true}
	case err != nil && isDefinite(err):
		return outcome{err: s.failure(err)}
	case err != nil:
		return s.resolve(ctx, err)
	case res.Succeeded:
		return outcome{revision: res.Header.Revision}
	}
	if modRevision(res, 2) != s.writer.revision {
		s.writer.revision = uncertain // the lease has expired
	}
	if modRevision(res, 3) != a.base.format.revision {
		if watch := s.watching.Load(); watch != nil {
			(*watch)(errRestored) // the format is read again
		}
		return outcome{err: unavailable(errors.New("the format of the etcd prefix has changed: it is read again"))}
	}
	return outcome{conflict: true, revision: modRevision(res, 0), turnLost: t.lost(res, 1)}
}

func (c change) op(l layout) clientv3.Op {
	if c.record == nil {
		return clientv3.OpDelete(string(l) + c.key)
	}
	return clientv3.OpPut(string(l)+c.key, string(c.record))
}

// resolve finds out whether a transaction without response was committed. It changes the
// writer's key, which the transaction requires unchanged: a transaction that is still on its way
// cannot be committed afterwards.
func (s *Store) resolve(ctx context.Context, reason error) outcome {
	at := s.keys.writer(s.id)
	revision := s.writer.revision
	s.writer.revision = uncertain
	res, err := s.txn(ctx, []clientv3.Cmp{unchangedAt(at, revision)}, []clientv3.Op{s.opWriter(0)}, clientv3.OpGet(at))
	if err != nil {
		s.setLost(s.explain(reason))
		return outcome{err: &store.UnknownOutcomeError{Reason: s.explain(reason)}}
	}
	if res.Succeeded {
		return outcome{err: unavailable(s.explain(reason))}
	}
	kvs := res.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 1 {
		sequence, err := decodeWriter(s.keys.relative(at), kvs[0].Value)
		if err == nil && sequence == s.writer.sequence {
			s.writer.revision = kvs[0].ModRevision
			return outcome{revision: kvs[0].ModRevision}
		}
	}
	return outcome{err: &store.UnknownOutcomeError{Reason: s.explain(reason)}} // the lease has expired
}
