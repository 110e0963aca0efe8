package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/backoff"
	"github.com/lbd-dev/lbd/xds/store"
)

// fold puts the changes of a large commit into the keys of their entries, and then ends it.
// Several writers may do that at once: they put the same. A conflict is that another one has
// ended it.
func (s *Store) fold(ctx context.Context, b *batch) outcome {
	content, err := s.fetch(ctx, b.reference, 0) // its parts are there until the last step
	var changes []change
	if err == nil {
		changes, err = decodeBatch(content)
	}
	if err == nil {
		changes, err = dated(changes, b.revision)
	}
	if err != nil {
		return s.pendingNow(ctx, b, err)
	}
	for len(changes) > 0 {
		var ops []clientv3.Op
		size := 0
		for len(changes) > 0 && len(ops) < maxOperations && size < maxBytes-maxInline {
			ops = append(ops, changes[0].op(s.keys))
			size += len(changes[0].key) + len(changes[0].record)
			changes = changes[1:]
		}
		if len(changes) == 0 {
			ops = append(ops, clientv3.OpDelete(s.keys.pending()), clientv3.OpDelete(s.keys.blob(b.id), clientv3.WithPrefix()))
		}
		res, err := s.txn(ctx, []clientv3.Cmp{unchangedAt(s.keys.pending(), b.revision)}, ops)
		switch {
		case err != nil:
			return outcome{err: s.failure(err)}
		case !res.Succeeded:
			return outcome{conflict: true}
		}
	}
	return outcome{}
}

// pendingNow is the outcome of a large commit that could not be read: a conflict if it has been
// folded by now.
func (s *Store) pendingNow(ctx context.Context, b *batch, reason error) outcome {
	res, err := s.do(ctx, clientv3.OpGet(s.keys.pending()))
	if err == nil && (len(res.Get().Kvs) == 0 || res.Get().Kvs[0].ModRevision != b.revision) {
		return outcome{conflict: true}
	}
	if errors.Is(reason, errDamaged) || errors.Is(reason, store.ErrNewer) {
		return outcome{err: s.stuck(reason)}
	}
	return outcome{err: unavailable(s.explain(reason))}
}

// stuck is the error of all commits while a large one cannot be completed.
func (s *Store) stuck(reason error) error {
	return fmt.Errorf("%w: the large commit at key %s cannot be completed: %w; update lbd if a newer one wrote it, else delete the key to drop the commit",
		store.ErrCannotWrite, s.keys.pending(), reason)
}

// dated returns changes whose records have the revision of their commit: their keys are put
// later.
func dated(changes []change, revision int64) ([]change, error) {
	for i, c := range changes {
		if c.record == nil {
			continue
		}
		r, err := decodeRecord(c.key, c.record)
		if err != nil {
			return nil, err
		}
		r.revision = revision
		changes[i].record = r.encode(c.key)
	}
	return changes, nil
}

const (
	// collectInterval is the mean time between two collections of garbage by one daemon.
	collectInterval = 10 * time.Minute
	// collectTTL is how long no other daemon collects after one began, in seconds.
	collectTTL = 300
)

// collect deletes the blobs that nothing refers to: of writers that ended before their commit,
// and of entries that were replaced.
func (s *Store) collect(ctx context.Context) {
	for ctx.Err() == nil {
		backoff.Sleep(ctx, collectInterval/2+rand.N(collectInterval))
		if s.client.Load() != nil && ctx.Err() == nil && s.Err() == nil {
			s.checkVersions(ctx) // members may be updated one by one, while the watch lasts
			if err := s.collectOnce(ctx); err != nil && ctx.Err() == nil {
				s.logger.Warn("what is left over in etcd cannot be deleted; a later attempt follows", "error", err)
			}
		}
	}
}

// collectOnce collects garbage unless another daemon does.
func (s *Store) collectOnce(ctx context.Context) error {
	c, err := s.claim(ctx, s.keys.janitor(), collectTTL)
	if c == nil {
		return err
	}
	return s.deleteGarbage(ctx)
}

// deleteGarbage deletes the blobs that no entry and no large commit refers to, unless a writer
// may still commit a reference: the sequence of its next commit is higher than that of its last
// one. A writer whose key is gone cannot commit.
func (s *Store) deleteGarbage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	// Blobs first: at the later revision of the writers, a blob that was committed is referred to.
	blobs, err := s.do(ctx, clientv3.OpGet(s.keys.blobs(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil || len(blobs.Get().Kvs) == 0 {
		return err
	}
	state, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.keys.head()), clientv3.OpGet(s.keys.writers(), clientv3.WithPrefix())})
	if err != nil {
		return err
	}
	last := map[string]uint64{}
	for _, kv := range state.Responses[1].GetResponseRange().GetKvs() {
		key := s.keys.relative(string(kv.Key))
		sequence, err := decodeWriter(key, kv.Value)
		if err != nil {
			return fmt.Errorf("key %s: %w", kv.Key, err)
		}
		last[strings.TrimPrefix(string(kv.Key), s.keys.writers())] = sequence
	}
	if err := s.arrived.wait(ctx, modRevision(state, 0)); err != nil {
		return err
	}
	used, ok := s.usedBlobs()
	if !ok {
		return nil // a record that cannot be read may refer to any
	}
	garbage := map[string]bool{}
	for _, kv := range blobs.Get().Kvs {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.keys.blobs()), "/")
		writer, sequence, ok := parseBlobID(id)
		committed, alive := last[writer]
		if ok && !used[id] && (!alive || sequence <= committed) {
			garbage[id] = true
		}
	}
	for id := range garbage {
		if _, err := s.do(ctx, clientv3.OpDelete(s.keys.blob(id), clientv3.WithPrefix())); err != nil {
			return err
		}
	}
	return nil
}

func parseBlobID(id string) (writer string, sequence uint64, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return "", 0, false
	}
	sequence, err := strconv.ParseUint(parts[1], 10, 64)
	return parts[0], sequence, err == nil
}

// CollectGarbage deletes now what nothing refers to. The store does it regularly; tests call it.
func (s *Store) CollectGarbage(ctx context.Context) error {
	if s.client.Load() == nil {
		return s.Err()
	}
	return s.collectOnce(ctx)
}
