package service_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// seedAssignments stores assignments of clusters by number.
func seedAssignments(t *testing.T, dir string, n int) {
	t.Helper()
	var a endpointv3.ClusterLoadAssignment
	servicetest.Must(t, protojson.Unmarshal(servicetest.Usable("a", 2), &a))
	st, err := file.Open(dir, file.Options{})
	servicetest.Must(t, err)
	_, err = st.Update(t.Context(), func(tx *store.Tx) error {
		for i := range n {
			a.ClusterName = fmt.Sprintf("c%04d", i)
			raw, err := proto.Marshal(&a)
			if err != nil {
				return err
			}
			if err := tx.Put(resource.Key{Type: resource.TypeAssignment, Name: a.GetClusterName()}, raw); err != nil {
				return err
			}
		}
		return nil
	})
	servicetest.Must(t, err)
	servicetest.Must(t, st.Close())
}

// seriesOf are those of one cluster.
func seriesOf(s *service.Service, cluster string) prometheus.GathererFunc {
	return func() ([]*dto.MetricFamily, error) {
		families, err := s.Metrics.Gather()
		for _, f := range families {
			f.Metric = slices.DeleteFunc(f.GetMetric(), func(m *dto.Metric) bool {
				return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == cluster })
			})
		}
		return families, err
	}
}

// TestStartWithManyClusters: what is shown of clusters that are warming, and of the others.
func TestStartWithManyClusters(t *testing.T) {
	const n = 3000
	dir := t.TempDir()
	seedAssignments(t, dir, n)
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, dir, nil)
		defer stop()
		states := func() map[string]int {
			count := map[string]int{}
			for _, c := range s.State.Clusters() {
				if count[c.State]++; c.Endpoints.Total != 2 || (c.State == "READY") != (c.Endpoints.Ready == 2) {
					t.Errorf("%s is %s: %+v", c.Name, c.State, c.Endpoints)
				}
			}
			return count
		}
		synctest.Wait()
		begin := states()
		if begin["WARMING"] < n*9/10 || begin["WARMING"]+begin["READY"] != n {
			t.Fatalf("at the start: %v", begin)
		}
		const last, before = "c2999", "c2998"
		service.CompareSeries(t, seriesOf(s, last), `
lbd_cluster_priority{cluster="c2999",target=""} -1
lbd_cluster_state{cluster="c2999",state="connecting",target=""} 0
lbd_cluster_state{cluster="c2999",state="idle",target=""} 0
lbd_cluster_state{cluster="c2999",state="ready",target=""} 0
lbd_cluster_state{cluster="c2999",state="transient_failure",target=""} 0`)
		servicetest.Expect(t, "warming clusters", metric(t, s, "lbd_clusters_warming", ""), float64(begin["WARMING"]))

		mustPick(t, s, picks.Request{Cluster: last})
		servicetest.Expect(t, "state of what is read", clusterState(t, s, before, "", true).State, "READY")
		servicetest.Push(t, s, sources.Endpoints, "c2997", servicetest.Usable("b", 2))
		deleteEndpoints(t, s, "c2996")
		var loop picks.Picks
		if err := s.Picks.Pick(t.Context(), &picks.Request{Cluster: "c2995", NoWait: true}, &loop); err != picks.ErrWouldWait { //nolint:errorlint // it is returned bare
			t.Errorf("a pick that must not wait: %v", err)
		}
		servicetest.Expect(t, "clusters that are still warming", states()["WARMING"], begin["WARMING"]-4)

		time.Sleep(10 * time.Second)
		servicetest.Expect(t, "clusters in the end", fmt.Sprint(states()), fmt.Sprintf("map[READY:%d]", n-1))
		servicetest.Expect(t, "warming clusters in the end", metric(t, s, "lbd_clusters_warming", ""), 0)
		for _, name := range []string{last, "c2997", "c0000"} {
			mustPick(t, s, picks.Request{Cluster: name})
		}
		for _, e := range s.Events.Last(observe.EventFilter{Limit: 5}) {
			if e.Type == observe.EventStateChanged && e.From != "CONNECTING" {
				t.Errorf("event %+v", e)
			}
		}
	})
}
