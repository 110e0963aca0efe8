package policy

import (
	"math"
	"sync/atomic"
)

// Usage is what a caller reports of its requests to one endpoint, for which it has no leases.
type Usage struct {
	// The report.

	// Address is one of the endpoint's.
	Address string
	// Successes, Errors and Cancelled are how many requests ended with these outcomes.
	Successes, Errors, Cancelled uint32
	// ConnectFailures is how many connects failed, of which no request was sent. They are
	// no requests.
	ConnectFailures uint32
	// InFlight is how many requests are in flight from now on, in parts of [InFlightUnit].
	InFlight int64

	// The result.

	// Found is true once an endpoint has taken the report.
	Found bool
	// Checked is true if lbd checks itself whether the endpoint can be connected to. Connect
	// failures are only a reason to do so now then, and else count as errors.
	Checked bool

	levels [maxLevels]*InFlight
}

// InFlightUnit is one request in a count of requests in flight: reports have parts of requests.
const InFlightUnit = 1 << 10

// maxLevels limits what counts the requests in flight to one endpoint: an endpoint policy, and the load
// of a locality.
const maxLevels = 2

// InFlight counts the requests in flight to an endpoint, in parts of [InFlightUnit], for an endpoint
// policy that chooses by it. Any goroutine may call its methods.
type InFlight struct{ n atomic.Int64 }

// Load returns the count.
func (f *InFlight) Load() int64 { return f.n.Load() }

// Add counts n more.
func (f *InFlight) Add(n int64) { f.n.Add(n) }

// EndInFlight ends the requests that Report counted as in flight. It is called once.
func (u *Usage) EndInFlight() {
	for i, l := range u.levels {
		if l != nil {
			l.n.Add(-u.InFlight)
			u.levels[i] = nil
		}
	}
}

func (u *Usage) count(l *InFlight) {
	for i := range u.levels {
		if u.levels[i] == nil {
			u.levels[i] = l
			l.n.Add(u.InFlight)
			return
		}
	}
}

// Used counts reported requests for a policy above the endpoint policy. The Finisher of a Connection may be
// one.
type Used interface {
	// Use is called by the owner of the tree.
	Use(u *Usage)
}

// AddSaturating adds two counts without overflow.
func AddSaturating(a, b uint32) uint32 {
	if b > math.MaxUint32-a {
		return math.MaxUint32
	}
	return a + b
}
