package weightedroundrobin

import (
	"math"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// load is what one endpoint reports, across pickers.
type load struct {
	// wake is called with the first report. It is set before the first picker.
	wake func()
	// last is the last report, or nil.
	last atomic.Pointer[report]
	// share is the endpoint's part of the turns while it is READY. Owner only.
	share float64
}

// report has what a weight is computed from. It is immutable.
type report struct {
	qps, eps, utilization float64
	at                    time.Time
	// since is when the first of the reports without a gap came.
	since time.Time
}

// Finish takes the load that the upstream reported, unless it has no requests or no
// utilization.
func (l *load) Finish(_ policy.Outcome, info balancer.DoneInfo) {
	sent, ok := info.ServerLoad.(*orcav3.OrcaLoadReport)
	if !ok {
		return
	}
	next := &report{qps: sent.GetRpsFractional(), eps: sent.GetEps(), utilization: sent.GetApplicationUtilization()}
	if next.utilization == 0 {
		next.utilization = sent.GetCpuUtilization()
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

// weight is requests per second divided by utilization, which errors increase by their
// penalty. It is 0 during the blackout period after the first report, and when the
// last report has expired; then reports start again.
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
