package service

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// event takes what a tree reports: it counts, and logs what an operator would
// ask about. The tree's owner calls it.
func (s *Service) event(t *target, e policy.Event) {
	log := s.options.Logger
	switch e := e.(type) {
	case policy.PrioritySwitched:
		if e.From >= 0 { // the first is no switch
			t.switches.add(e.Reason)
		}
		log.Info("priority switched", "cluster", e.Cluster, "from", e.From, "to", e.To,
			"reason", string(e.Reason), "detail", e.Detail)
	case policy.StateChanged:
		log.Info("cluster state changed", "cluster", e.Cluster, "from", e.From.String(), "to", e.To.String())
	case policy.ConnectionChanged:
		switch {
		case e.To == connectivity.Ready:
			t.connects.add("ok")
		case e.To == connectivity.TransientFailure:
			t.connects.add("error")
		case e.From == connectivity.Ready:
			t.losses.add("lost")
		}
		if log.Enabled(context.Background(), slog.LevelDebug) {
			log.Debug("connection changed", "cluster", e.Cluster, "address", e.Address,
				"from", e.From.String(), "to", e.To.String(), "error", e.Err)
		}
	}
}
