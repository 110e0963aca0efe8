package outlierdetection

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endInterval detects outliers of the interval that ends, ends ejections whose time is
// over, and begins the next interval.
func (b *outlierDetection) endInterval() {
	b.began = time.Now()
	for _, e := range b.endpoints {
		e.last = outcomes(e.ended.Swap(0))
	}
	var outliers []*endpoint
	if c := b.config.SuccessRate; c != nil {
		outliers = b.bySuccessRate(c, outliers)
	}
	if c := b.config.FailurePercentage; c != nil {
		outliers = b.byFailurePercentage(c, outliers)
	}
	for _, e := range outliers {
		b.eject(e)
	}
	for _, e := range b.endpoints {
		switch {
		case e.ejection == nil:
			e.times = max(e.times-1, 0)
		case !b.began.Before(b.until(e)):
			b.uneject(e)
		}
	}
	b.schedule(b.config.Interval)
}

// bySuccessRate adds endpoints that are too far below the mean success rate.
func (b *outlierDetection) bySuccessRate(c *resource.SuccessRateEjection, outliers []*endpoint) []*endpoint {
	judged := b.busy(c.RequestVolume, c.MinimumHosts)
	mean, deviation := spread(judged)
	required := mean - deviation*float64(c.StdevFactor)/1000
	for _, e := range judged {
		if rate := e.last.successRate(); rate < required {
			outliers = b.enforce(outliers, e, c.EnforcementPercentage, fmt.Sprintf(
				"success rate %.1f%% of %d requests is below %.1f%% (mean %.1f%%, standard deviation %.1f%%, factor %g)",
				100*rate, e.last.requests(), 100*required, 100*mean, 100*deviation, float64(c.StdevFactor)/1000))
		}
	}
	return outliers
}

// byFailurePercentage adds endpoints that fail too often.
func (b *outlierDetection) byFailurePercentage(c *resource.FailurePercentageEjection, outliers []*endpoint) []*endpoint {
	for _, e := range b.busy(c.RequestVolume, c.MinimumHosts) {
		if e.last.requests()*uint64(c.Threshold) < 100*uint64(e.last.errors()) {
			outliers = b.enforce(outliers, e, c.EnforcementPercentage, fmt.Sprintf(
				"failure percentage %.1f%% of %d requests is above %d%%",
				100*(1-e.last.successRate()), e.last.requests(), c.Threshold))
		}
	}
	return outliers
}

// busy returns the endpoints with at least volume requests, and one, in the last
// interval; none if there are fewer than minimum. It begins at a random one: if not all
// outliers can be ejected, it is not always the same ones.
func (b *outlierDetection) busy(volume, minimum uint32) []*endpoint {
	var out []*endpoint
	start := b.draw(len(b.endpoints))
	for i := range b.endpoints {
		e := b.endpoints[(start+i)%len(b.endpoints)]
		if e.last.requests() >= max(uint64(volume), 1) {
			out = append(out, e)
		}
	}
	if len(out) < int(minimum) {
		return nil
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

// enforce adds e to the outliers, unless too many are ejected, or by the enforcement
// percentage. Each reason counts as an ejection, which lasts longer then. So does a
// reason for an endpoint that is already ejected, because of requests picked before.
func (b *outlierDetection) enforce(outliers []*endpoint, e *endpoint, enforcement uint32, reason string) []*endpoint {
	if 100*len(b.ejected) >= int(b.config.MaxEjectionPercent)*len(b.endpoints) || b.draw(100) >= int(enforcement) {
		b.Event(policy.EjectionSpared{Root: b.Root(), Cluster: b.config.Cluster})
		return outliers
	}
	e.times++
	e.reasons = append(e.reasons, reason)
	if len(e.reasons) > 1 {
		return outliers
	}
	b.ejected[e] = struct{}{}
	return append(outliers, e)
}

func (b *outlierDetection) eject(e *endpoint) {
	e.at = b.began
	why := &policy.EjectedError{Reason: strings.Join(e.reasons, "; "), Until: b.until(e)}
	e.reasons = nil
	b.Event(policy.Ejected{Root: b.Root(), Cluster: b.config.Cluster, Address: e.value.Addresses[0], Reason: why.Reason, Until: why.Until})
	e.eject(why)
}

// until is when e's ejection is over. It ends with the first interval then.
func (b *outlierDetection) until(e *endpoint) time.Time {
	base, longest := b.config.BaseEjectionTime, max(b.config.BaseEjectionTime, b.config.MaxEjectionTime)
	if base > 0 && e.times > int64(longest/base) {
		return e.at.Add(longest)
	}
	return e.at.Add(base * time.Duration(e.times))
}

// uneject ends e's ejection.
func (b *outlierDetection) uneject(e *endpoint) {
	delete(b.ejected, e)
	b.Event(policy.Unejected{Cluster: b.config.Cluster, Address: e.value.Addresses[0]})
	e.uneject()
}
