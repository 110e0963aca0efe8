package fleet

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/service/fleet/share"
)

// watched returns how many changes of a limit there were after a revision, and what a watch of etcd receives for them.
func (s *fakeStore) watched(key string, after int64) (changes, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const id = 1 << 62 // as large as those of etcd's cluster and members
	was := share.Record{}
	for _, c := range s.log {
		is, changed := c.records[key]
		if !changed {
			continue
		}
		var events []*mvccpb.Event
		add := func(how mvccpb.Event_EventType, e share.Entry, value []byte) {
			kv := &mvccpb.KeyValue{Key: []byte("lbd/" + shares + key + "/" + e.Replica), Value: value, CreateRevision: c.revision, ModRevision: c.revision, Version: 100}
			events = append(events, &mvccpb.Event{Type: how, Kv: kv})
		}
		for _, e := range is.record.Entries {
			if before, ok := was.Find(e.Replica); !ok || before != e {
				add(mvccpb.PUT, e, e.Encode())
			}
		}
		for _, e := range was.Entries {
			if _, ok := is.record.Find(e.Replica); !ok {
				add(mvccpb.DELETE, e, nil)
			}
		}
		if was = is.record; c.revision <= after {
			continue
		}
		changes++
		bytes += 5 + proto.Size(&etcdserverpb.WatchResponse{ // 5 of gRPC's frame
			Header: &etcdserverpb.ResponseHeader{ClusterId: id, MemberId: id, Revision: c.revision, RaftTerm: 2}, Events: events,
		})
	}
	return changes, bytes
}

// TestManyReplicas: what a limit costs 30 replicas, or 1,000 with LBD_TEST_LONG: a few changes for
// each of them, of at most 100 bytes for each replica, and nothing at rest.
func TestManyReplicas(t *testing.T) {
	n := 30
	if os.Getenv("LBD_TEST_LONG") != "" {
		n = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		limit := uint32(20 * n)
		s := newSite(t, n, limit)
		after := int64(0)
		says := func(what string, most int) {
			t.Helper()
			changes, bytes := s.store.watched(keyOf(service), after)
			s.store.mu.Lock()
			after = s.store.now.revision
			s.store.mu.Unlock()
			t.Logf("%d replicas, %s: %d changes, %d bytes to each replica, %d for a change", n, what, changes, bytes, bytes/max(changes, 1))
			if changes > most {
				t.Errorf("%s: %d changes, want at most %d", what, changes, most)
			}
			if bytes > 100*changes {
				t.Errorf("%s: %d bytes for a change and a replica", what, bytes/changes)
			}
		}
		settled := func(want int64) {
			t.Helper()
			for range 600 {
				time.Sleep(time.Second)
				sum := int64(0)
				for _, r := range s.replicas {
					sum += int64(r.counters.SharedLimit().Limit())
				}
				if sum > want {
					t.Fatalf("the shares are %d of %d", sum, want)
				}
				if sum == want {
					time.Sleep(10 * time.Second)
					return
				}
			}
			t.Fatal("the shares do not become the limit")
		}
		settled(int64(limit))
		says("a new limit", 4*n)
		time.Sleep(20 * time.Second)
		says("20 s at rest", 0)
		s.close()
	})
}
