package outlierdetection

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endInterval judges the endpoints by the interval that ends, gives those back
// whose time is over, and begins the next.
func (b *outlierDetection) endInterval() {
	b.began = time.Now()
	for _, e := range b.endpoints {
		e.last = outcomes(e.ended.Swap(0))
	}
	if c := b.config.SuccessRate; c != nil {
		b.bySuccessRate(c)
	}
	if c := b.config.FailurePercentage; c != nil {
		b.byFailurePercentage(c)
	}
	for _, e := range b.endpoints {
		switch {
		case e.ejection.Load() == nil:
			e.times = max(e.times-1, 0)
		case !b.began.Before(b.until(e)):
			b.giveBack(e)
		}
	}
	b.schedule(b.config.Interval)
}

// bySuccessRate ejects endpoints that are too far below the mean success rate.
func (b *outlierDetection) bySuccessRate(c *resource.SuccessRateEjection) {
	judged := b.busy(c.RequestVolume)
	if len(judged) < int(c.MinimumHosts) {
		return
	}
	mean, deviation := spread(judged)
	required := mean - deviation*float64(c.StdevFactor)/1000
	for _, e := range judged {
		if rate := e.last.successRate(); rate < required {
			b.outlier(e, c.EnforcementPercentage, fmt.Sprintf(
				"success rate %.1f%% of %d requests is below %.1f%% (mean %.1f%%, standard deviation %.1f%%, factor %g)",
				100*rate, e.last.requests(), 100*required, 100*mean, 100*deviation, float64(c.StdevFactor)/1000))
		}
	}
}

// byFailurePercentage ejects endpoints that fail too often, whatever others do.
func (b *outlierDetection) byFailurePercentage(c *resource.FailurePercentageEjection) {
	judged := b.busy(c.RequestVolume)
	if len(judged) < int(c.MinimumHosts) {
		return
	}
	for _, e := range judged {
		if e.last.requests()*uint64(c.Threshold) < 100*uint64(e.last.errors()) {
			b.outlier(e, c.EnforcementPercentage, fmt.Sprintf("failure percentage %.1f%% of %d requests is above %d%%",
				100*(1-e.last.successRate()), e.last.requests(), c.Threshold))
		}
	}
}

// busy returns the endpoints with at least volume requests, and one, in the
// interval that ended. It begins at a random one: where not all that should be
// can be ejected, it is not to be the same ones each time.
func (b *outlierDetection) busy(volume uint32) []*endpoint {
	var out []*endpoint
	start := b.draw(len(b.endpoints))
	for i := range b.endpoints {
		e := b.endpoints[(start+i)%len(b.endpoints)]
		if e.last.requests() >= max(uint64(volume), 1) {
			out = append(out, e)
		}
	}
	return out
}

// draw returns a random number below n.
func (b *outlierDetection) draw(n int) int {
	d, _ := bits.Mul64(b.Draw()(), uint64(n))
	return int(d)
}

// spread returns the mean of success rates and their standard deviation.
func spread(endpoints []*endpoint) (mean, deviation float64) {
	for _, e := range endpoints {
		mean += e.last.successRate()
	}
	mean /= float64(len(endpoints))
	var squares float64
	for _, e := range endpoints {
		squares += (e.last.successRate() - mean) * (e.last.successRate() - mean)
	}
	return mean, math.Sqrt(squares / float64(len(endpoints)))
}

// outlier ejects e, unless as many are ejected as may be, or the dice say no. One
// that is ejected already, because of requests that were picked before, stays so
// for longer.
func (b *outlierDetection) outlier(e *endpoint, enforcement uint32, reason string) {
	if 100*b.ejected >= int(b.config.MaxEjectionPercent)*len(b.endpoints) || b.draw(100) >= int(enforcement) {
		return
	}
	if e.ejection.Load() == nil {
		b.ejected++
		b.ejectedIn = nil
	}
	e.at = b.began
	e.times++
	why := &policy.EjectedError{Reason: reason, Until: b.until(e)}
	b.Event(policy.Ejected{Cluster: b.config.Cluster, Address: e.address, Reason: reason, Until: why.Until})
	e.eject(why)
}

// until is when e's ejection is over. It is given back at the end of the first
// interval then.
func (b *outlierDetection) until(e *endpoint) time.Time {
	base, longest := b.config.BaseEjectionTime, max(b.config.BaseEjectionTime, b.config.MaxEjectionTime)
	if base > 0 && e.times > int64(longest/base) {
		return e.at.Add(longest)
	}
	return e.at.Add(base * time.Duration(e.times))
}

// giveBack ends e's ejection.
func (b *outlierDetection) giveBack(e *endpoint) {
	b.ejected--
	b.ejectedIn = nil
	b.Event(policy.Unejected{Cluster: b.config.Cluster, Address: e.address})
	e.giveBack()
}
