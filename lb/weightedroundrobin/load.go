package weightedroundrobin

import (
	"math"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// load is what one endpoint reports of its load, through all the pickers that
// hold it.
type load struct {
	// wake is called with the first report. It is set before the first picker.
	wake func()
	// last is nil where there is no report that counts.
	last atomic.Pointer[report]
	// share is the part of all turns that the endpoint has now, while it is
	// READY. Owner only.
	share float64
}

// report is a report that a weight can be made of. It is never changed.
type report struct {
	qps, eps, utilization float64
	at                    time.Time
	// since is when the first of the reports came that this one follows without
	// a gap.
	since time.Time
}

// Finish takes the load that the upstream reported with its answer, where it
// did. One without requests or utilization says nothing.
func (l *load) Finish(_ policy.Outcome, info balancer.DoneInfo) {
	told, ok := info.ServerLoad.(*orcav3.OrcaLoadReport)
	if !ok {
		return
	}
	next := &report{qps: told.GetRpsFractional(), eps: told.GetEps(), utilization: told.GetApplicationUtilization()}
	if next.utilization == 0 {
		next.utilization = told.GetCpuUtilization()
	}
	if next.utilization == 0 || next.qps == 0 {
		return
	}
	next.at = time.Now()
	for {
		last := l.last.Load()
		next.since = next.at
		if last != nil {
			next.since = last.since
		}
		if l.last.CompareAndSwap(last, next) {
			if last == nil {
				l.wake()
			}
			return
		}
	}
}

// weight is what the reports come to now: requests a second for each unit of
// utilization, to which errors add their penalty. It is 0 before the reports
// have come for the blackout period, and after none has come for the expiration
// period, when what comes later begins anew.
func (l *load) weight(now time.Time, c Config) float64 {
	r := l.last.Load()
	switch {
	case r == nil:
		return 0
	case now.Sub(r.at) >= c.WeightExpirationPeriod:
		l.last.CompareAndSwap(r, nil) // unless one has come meanwhile
		return 0
	case now.Sub(r.since) < c.BlackoutPeriod:
		return 0
	}
	w := r.qps / (r.utilization + r.eps/r.qps*c.ErrorUtilizationPenalty)
	if w > 0 && !math.IsInf(w, 1) {
		return w
	}
	return 0 // of numbers that are none
}
