package reports

import (
	"math"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/quota"
)

// Limits of reports.
const (
	// MaxEndpoints is how many endpoints a report may have.
	MaxEndpoints = 1000
	// MinInterval and MaxInterval limit the time that a report is about.
	MinInterval = 100 * time.Millisecond
	MaxInterval = 5 * time.Minute
	// MaxRequests limits the requests, the connect failures, and the mean of the requests in flight, of one
	// endpoint in a report.
	MaxRequests = 1_000_000
	// MaxInFlight is how many endpoints with requests in flight all reporters together may have.
	MaxInFlight = 200_000
	// InFlightBytes is what each of them counts of the quota of bytes of its caller.
	InFlightBytes = 256
)

// Report is what one caller has counted within an interval.
type Report struct {
	// Reporter is who counted, as the caller calls itself. Its next report replaces the requests in flight
	// of this one.
	Reporter ledger.Owner
	// Interval is 0 for a report that has only connect failures, which replaces nothing.
	Interval time.Duration
	// Account pays for what is kept until the next report; it may be nil.
	Account  *quota.Account
	Clusters []Cluster
}

// Cluster is the part of a report about one cluster.
type Cluster struct {
	Cluster string
	// Target is the xds target whose picks were used; empty for those of the cluster.
	Target    string
	Endpoints []Endpoint
}

// Endpoint has the requests to one endpoint.
type Endpoint struct {
	// Address is one of its addresses.
	Address string
	// Requests ended within the interval; Errors and Cancelled are parts of them.
	Requests, Errors, Cancelled uint32
	// ConnectFailures are connects that failed, of which no request was sent; they are no part of Requests.
	ConnectFailures uint32
	// InFlight is the mean number of requests in flight.
	InFlight float64
	// Latency is the sum of the durations of Requests.
	Latency time.Duration
}

// Table has the requests in flight that were reported. Its methods may be called from any goroutine.
type Table struct {
	ledger *ledger.Ledger

	mu     sync.Mutex
	levels map[key]*inFlight
	count  int
	closed bool
}

// key identifies what the next report replaces.
type key struct {
	reporter        ledger.Owner
	target, cluster string
}

// inFlight has the endpoints with requests in flight of one key.
type inFlight struct {
	usages  []*policy.Usage
	account *quota.Account
	timer   *time.Timer
}

// New returns a table without requests.
func New(l *ledger.Ledger) *Table { return &Table{ledger: l, levels: make(map[key]*inFlight)} }

// InFlight returns how many endpoints have reported requests in flight, once for each reporter.
func (t *Table) InFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Close ends all requests in flight, and takes no more.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for k := range t.levels {
		t.end(k)
	}
}

// Take takes one part of a report, and returns the addresses that are no endpoints of the cluster, or of
// which the tree does not know: their requests count in no policy. It fails with UnknownCluster,
// UnknownTarget, and RateLimited.
func (t *Table) Take(r *Report, part *Cluster) (unknown []string, err error) {
	c, err := t.ledger.Find(part.Cluster, part.Target)
	if err != nil {
		return nil, err
	}
	usages := make([]*policy.Usage, len(part.Endpoints))
	held := make([]*policy.Usage, 0, len(usages))
	for i := range part.Endpoints {
		e := &part.Endpoints[i]
		usages[i] = &policy.Usage{
			Address:   e.Address,
			Successes: e.Requests - e.Errors - e.Cancelled, Errors: e.Errors, Cancelled: e.Cancelled,
			ConnectFailures: e.ConnectFailures,
			InFlight:        int64(math.Round(e.InFlight * policy.InFlightUnit)),
		}
		if usages[i].InFlight > 0 {
			held = append(held, usages[i])
		}
	}
	if err := t.acquire(r.Account, len(held)); err != nil {
		return nil, err
	}
	c.Target.MarkUsed()
	<-c.Target.Channel.Use(c.Name, usages)
	for i, u := range usages {
		e := &part.Endpoints[i]
		c.Totals.Reported.Add(u, e.Latency)
		if !u.Found {
			unknown = append(unknown, u.Address)
		}
	}
	if r.Interval == 0 {
		return unknown, nil
	}
	t.replace(key{r.Reporter, part.Target, part.Cluster}, &inFlight{usages: held, account: r.Account}, r.Interval)
	return unknown, nil
}

// acquire counts endpoints with requests in flight.
func (t *Table) acquire(a *quota.Account, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count+n > MaxInFlight {
		return fault.Errorf(fault.RateLimited, "limit of reported endpoints reached (%d)", MaxInFlight).Retry(time.Second)
	}
	if err := a.Acquire(quota.Bytes, int64(n)*InFlightBytes); err != nil {
		return fault.Errorf(fault.RateLimited, "%v", err).Retry(time.Second)
	}
	t.count += n
	return nil
}

// replace ends what a key had, and keeps what it has now for two intervals.
func (t *Table) replace(k key, next *inFlight, interval time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(k)
	t.levels[k] = next
	if len(next.usages) == 0 || t.closed {
		t.end(k)
		return
	}
	next.timer = time.AfterFunc(2*interval, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.levels[k] == next {
			t.end(k)
		}
	})
}

// end ends what a key has. It is called under mu.
func (t *Table) end(k key) {
	l := t.levels[k]
	if l == nil {
		return
	}
	delete(t.levels, k)
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, u := range l.usages {
		u.EndInFlight()
	}
	t.count -= len(l.usages)
	l.account.Release(quota.Bytes, int64(len(l.usages))*InFlightBytes)
}
