package sources_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// TestRecordsOfANewerDaemon: records of an unknown kind stay, are counted and named. A change of one endpoint keeps the
// fields that this lbd does not know, and a push that loses them says so.
func TestRecordsOfANewerDaemon(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, withHistory)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	stop()
	orders := resource.Key{Type: resource.TypeAssignment, Name: "orders"}
	field := protowire.AppendString(protowire.AppendTag(nil, 5000, protowire.BytesType), "from a newer lbd")
	st, err := file.Open(dir, file.Options{})
	servicetest.Must(t, err)
	if _, err = st.Update(t.Context(), func(tx *store.Tx) error { // as a newer lbd
		for _, name := range []string{"a", "b"} {
			if err := tx.Put(resource.Key{Type: "Policy", Name: name}, []byte("?")); err != nil {
				return err
			}
		}
		e, _ := tx.Get(orders)
		return tx.Put(orders, append(e.Raw, field...))
	}); err != nil {
		t.Fatal(err)
	}
	servicetest.Must(t, st.Close())

	s, stop = servicetest.Start(t, dir, withHistory)
	text, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
	if err != nil || strings.Contains(string(text.Body.Bytes()), "Policy") || !strings.Contains(string(text.Body.Bytes()), "orders") {
		t.Fatalf("a snapshot: %s, %v", text, err)
	}
	lost := func(res *sources.PushResult) bool { return strings.Contains(fmt.Sprint(res.Warnings), "it is lost") }
	weight := uint32(7)
	res, err := s.Sources.SetEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "orders", Address: "a-0:80", Edit: sources.EndpointEdit{Weight: &weight}})
	servicetest.Must(t, err)
	raw, err := s.Sources.Pushed(t.Context(), "", sources.Endpoints, "orders", sources.Protobuf)
	servicetest.Must(t, err)
	if lost(res) || !strings.Contains(string(raw.Body.Bytes()), "from a newer lbd") {
		t.Errorf("after a change of one endpoint: %q, warnings %v", raw.Body.Bytes(), res.Warnings)
	}
	_, err = s.Sources.RemoveEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "orders", Address: "a-1:80"})
	servicetest.Must(t, err)
	stop()

	s, stop = servicetest.Start(t, dir, withHistory, func(to *sources.Connections) {
		to.DescribeStore = func(state *sources.StoreState) { state.Unreadable = 3 }
	})
	before, err := restore(t, s, sources.RestoreRequest{Index: res.Index, Options: sources.ChangeOptions{DryRun: true}})
	if err != nil || len(before.Changes) != 1 || lost(before) {
		t.Errorf("a restore of a version with the field: %+v, %v", before, err)
	}
	res, err = s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: text.Body.Bytes(), Replace: true, MaxRemoved: 0})
	servicetest.Must(t, err)
	if says := fmt.Sprint(res.Warnings); !lost(res) || !strings.Contains(says, "2 records of the kind Policy") || !strings.Contains(says, "3 records in etcd cannot be read here") {
		t.Errorf("a snapshot has the warnings %v", says)
	}
	now, err := s.Sources.Store()
	if err != nil || !maps.Equal(now.UnknownKinds, map[string]int{"Policy": 2}) {
		t.Errorf("the store: %+v, %v", now, err)
	}
	stop()
	st, err = file.Open(dir, file.Options{})
	servicetest.Must(t, err)
	if n := sources.UnknownKinds(st.Snapshot().All())["Policy"]; n != 2 {
		t.Errorf("%d records are left", n)
	}
	servicetest.Must(t, st.Close())
}
