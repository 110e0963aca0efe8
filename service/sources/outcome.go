package sources

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
)

// pushOutcome is the result of a push in metrics: one of these, or the code of its error.
type pushOutcome string

const (
	pushApplied            pushOutcome = "applied"
	pushUnchanged          pushOutcome = "unchanged"
	pushDryRun             pushOutcome = "dry_run" // with any result
	pushRejected           pushOutcome = "rejected"
	pushPreconditionFailed pushOutcome = "precondition_failed"
	pushNotFound           pushOutcome = "not_found"
)

var pushOutcomes = []pushOutcome{
	pushApplied, pushUnchanged, pushDryRun, pushRejected, pushPreconditionFailed, pushNotFound,
	pushOutcome(fault.Blocked), pushOutcome(fault.StorageFailed), pushOutcome(fault.Internal),
	pushOutcome(fault.RateLimited), pushOutcome(fault.ShuttingDown), pushOutcome(fault.CallerGone),
}

// newResults returns the counter of pushes by result.
func newResults(registry *prometheus.Registry) *prometheus.CounterVec {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lbd_pushes_total",
		Help: "Pushes by result: applied, unchanged, dry_run, rejected (the push is invalid), not_found (nothing to delete), or the code of the error.",
	}, []string{"result"})
	for _, r := range pushOutcomes {
		results.WithLabelValues(string(r))
	}
	registry.MustRegister(results)
	return results
}

// outcome classifies a change by its error.
func (c *change) outcome(err error) pushOutcome {
	e, refused := errors.AsType[*fault.Error](err)
	switch {
	case c.dryRun:
		return pushDryRun
	case err == nil && len(c.res.Changes) == 0:
		return pushUnchanged
	case err == nil:
		return pushApplied
	case !refused:
		return pushOutcome(fault.Internal)
	}
	switch e.Code {
	case fault.PreconditionFailed, fault.PreconditionRequired:
		return pushPreconditionFailed
	case fault.UnknownCluster, fault.UnknownTarget: // of a deletion
		return pushNotFound
	case fault.Blocked, fault.StorageFailed, fault.Internal, fault.RateLimited, fault.ShuttingDown, fault.CallerGone:
		return pushOutcome(e.Code)
	default: // the caller must push something else
		return pushRejected
	}
}

// report counts a change, logs it and adds an event. The error of a dry run and a deletion
// of nothing concern only the caller.
func (p *pushes) report(c *change, err error) {
	outcome := c.outcome(err)
	p.results.WithLabelValues(string(outcome)).Inc()
	switch outcome {
	case pushDryRun, pushUnchanged, pushNotFound:
	case pushApplied:
		listed := difference.WithoutWords(c.res.Changes)
		p.Events.Add(observe.Event{
			Type: observe.EventPushed, Cluster: c.cluster, Target: c.target, Says: difference.Summary(c.res.Changes), By: c.from, Changes: listed,
		})
		p.Logger.Info("resources pushed", "changes", len(c.res.Changes), "first", listed[0].Resource,
			"change", listed[0].Change, "from", c.from)
	default:
		e, ok := errors.AsType[*fault.Error](err)
		if !ok {
			e = fault.Errorf(fault.Internal, "%v", err)
		}
		p.Events.Add(observe.Event{
			Type: observe.EventPushRefused, Cluster: c.cluster, Target: c.target, Says: "a push was refused: " + string(e.Code),
			Reason: string(e.Code), Error: e.Detail, By: c.from,
		})
		p.Logger.Info("push rejected", "cluster", c.cluster, "code", string(e.Code), "error", e.Detail, "from", c.from)
	}
}
