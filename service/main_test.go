package service_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
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

func deleteEndpoints(tb testing.TB, s *service.Service, cluster string) {
	tb.Helper()
	_, err := s.Sources.Delete(tb.Context(), sources.Endpoints, cluster, sources.ChangeOptions{})
	servicetest.Must(tb, err)
}

func clusterState(tb testing.TB, s *service.Service, name, target string, endpoints bool) *observe.ClusterState {
	tb.Helper()
	c, err := s.State.Cluster(tb.Context(), name, target, endpoints)
	servicetest.Must(tb, err)
	return c
}
