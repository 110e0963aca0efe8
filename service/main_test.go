package service_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/servicetest"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustPick(tb testing.TB, s *service.Service, r picks.Request) picks.Picks {
	tb.Helper()
	out, err := servicetest.Pick(s, r)
	servicetest.Must(tb, err)
	return out
}

func mustRefuse(tb testing.TB, s *service.Service, r picks.Request, want fault.Code) {
	tb.Helper()
	if _, err := servicetest.Pick(s, r); servicetest.Code(err) != want {
		tb.Fatalf("pick %+v: %v; want %s", r, err, want)
	}
}

func endLease(tb testing.TB, s *service.Service, id picks.LeaseID, o picks.Outcome, load *picks.Load) {
	tb.Helper()
	if _, err := s.Picks.EndLease(id, o, load); err != nil {
		tb.Error(err)
	}
}

func deleteResource(tb testing.TB, s *service.Service, kind sources.Kind, cluster string) {
	tb.Helper()
	_, err := s.Sources.Delete(tb.Context(), kind, cluster, sources.ChangeOptions{})
	servicetest.Must(tb, err)
}

func clusterState(tb testing.TB, s *service.Service, name, target string, endpoints bool) *observe.ClusterState {
	tb.Helper()
	c, err := s.State.Cluster(tb.Context(), name, target, endpoints)
	servicetest.Must(tb, err)
	return c
}

// inFiles returns resource files that provide Clusters and assignments, written as JSON.
func inFiles(tb testing.TB, bodies map[resource.Key][]byte) files.Set {
	tb.Helper()
	set := files.Set{Resources: map[resource.Key]files.Resource{}}
	for key, body := range bodies {
		i, _, err := decode.Item(resource.Item{Key: key, Raw: body}, decode.Options{Name: key.Name})
		servicetest.Must(tb, err)
		set.Resources[key] = files.Resource{Item: i, File: key.Name + ".yaml"}
	}
	return set
}

// seed stores resources in dir as an earlier lbd, which accepted them.
func seed(tb testing.TB, dir string, resources map[resource.Key][]byte, o decode.Options) {
	tb.Helper()
	st, err := file.Open(dir, file.Options{})
	servicetest.Must(tb, err)
	_, err = st.Update(tb.Context(), func(tx *store.Tx) error {
		for key, body := range resources {
			o.Name = key.Name
			d, err := decode.One(resource.TypeCluster, body, o)
			if err == nil {
				err = tx.Put(key, d.Raw)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	servicetest.Must(tb, errors.Join(err, st.Close()))
}
