package doctor

import (
	"fmt"
	"math"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
)

// Sample is how many picks each locality got while their shares were the same.
type Sample struct {
	// Since is when the sample begins; zero without one. Why then says why there is none.
	Since time.Time
	Why   string
	// Picks has one number for each locality with a share.
	Picks map[Place]uint64
}

// Place is a locality of a priority.
type Place struct {
	Priority int
	Locality observe.Locality
}

const (
	// minSample is the smallest number of picks that a test needs, and minExpected the smallest number
	// that is expected for a locality.
	minSample   = 1000
	minExpected = 10
	// unlikely is the probability below which the picks do not follow the shares.
	unlikely = 1e-9
)

// picks compares the picks of localities with their shares, in a G-test.
func (c *Cluster) picks(d *Daemon) Check {
	skipped := func(format string, args ...any) Check {
		return c.found("picks", Skipped, "picks are not compared with shares: "+format, args...)
	}
	s := c.State
	switch {
	case s.PriorityInUse < 0 || s.PriorityInUse >= len(s.Priorities):
		return skipped("no priority is in use")
	case s.Type == "AGGREGATE":
		return skipped("an aggregate chooses its leaves by priority only")
	case c.Picks.Since.IsZero():
		return skipped("%s", c.Picks.Why)
	}
	p := &s.Priorities[s.PriorityInUse]
	var expected []float64
	var observed []uint64
	var names []string
	total := uint64(0)
	for i := range p.Localities {
		l := &p.Localities[i]
		switch {
		case l.Share == nil:
			return skipped("the policy %s does not choose localities by weight", s.Policy)
		case *l.Share == 0:
			continue
		}
		n := c.Picks.Picks[Place{p.Priority, l.Locality}]
		expected, observed, names = append(expected, *l.Share), append(observed, n), append(names, localityName(l.Locality))
		total += n
	}
	if len(expected) < 2 {
		return skipped("only one locality is in use")
	}
	smallest := math.Inf(1)
	for _, share := range expected {
		smallest = min(smallest, share*float64(total))
	}
	took := d.Now.Sub(c.Picks.Since).Round(time.Second)
	if total < minSample || smallest < minExpected {
		return skipped("%d picks in %v are not enough", total, took)
	}
	probability := fits(expected, observed)
	details := make([]string, len(names))
	for i, name := range names {
		details[i] = fmt.Sprintf("%s: %s of the picks, and a share of %s", name, percent(float64(observed[i])/float64(total)), percent(expected[i]))
	}
	if probability < unlikely {
		return c.found("picks", Warning, "%d picks in %v do not follow the shares of the localities (p = %.1g): %s", total, took, probability, details[0]).
			do("callers that exclude endpoints cause this; otherwise, report it").with(details...)
	}
	return c.found("picks", OK, "%d picks in %v follow the shares of %d localities (p = %.2g)", total, took, len(names), probability)
}

// fits returns the probability that counts with these shares differ from them as much as they do, or
// more: a G-test.
func fits(shares []float64, counts []uint64) float64 {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	g := 0.0
	for i, n := range counts {
		if n > 0 {
			g += 2 * float64(n) * math.Log(float64(n)/(shares[i]*total))
		}
	}
	return upperGamma(float64(len(counts)-1)/2, max(0, g)/2)
}

// upperGamma is the regularized upper incomplete gamma function Q(a, x) for multiples of 1/2: from Q(1/2, x) or
// Q(1, x) by Q(a+1, x) = Q(a, x) + x^a e^-x / Γ(a+1), whose terms are all positive.
func upperGamma(a, x float64) float64 {
	if x <= 0 {
		return 1
	}
	from, q := 1.0, math.Exp(-x)
	if a != math.Trunc(a) {
		from, q = 0.5, math.Erfc(math.Sqrt(x))
	}
	for ; from < a; from++ {
		logGamma, _ := math.Lgamma(from + 1)
		q += math.Exp(from*math.Log(x) - x - logGamma)
	}
	return min(q, 1)
}
