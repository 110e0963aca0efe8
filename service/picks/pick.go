package picks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of picks.
const (
	MaxPicks   = 1000 // of one request
	MaxExplain = 10   // picks of one request with Explain
	MaxWait    = 60 * time.Second
	MaxExclude = 100 // addresses
	MaxHeaders = 100 // values
	DefaultTTL = 30 * time.Second
	MaxTTL     = 10 * time.Minute
)

// Request asks for picks.
type Request struct {
	// Exactly one of Cluster and Target is set. Target is the name of an xds
	// target, as [TargetName] takes it, whose routes choose the cluster.
	Cluster string
	Target  string
	// Path and Headers are what the routes of Target match: the path begins with a slash,
	// names of headers are in lower case.
	Path    string
	Headers []Header
	// N is the number of picks, 1 to MaxPicks; to MaxExplain with Explain.
	N int
	// Wait is how long the picks may wait together, 0 to MaxWait.
	Wait         time.Duration
	WaitForReady bool
	// Hash is the request hash key, for policies that hash.
	Hash    string
	Exclude []string
	Explain bool
	// TTL, if positive, makes every pick a lease.
	TTL time.Duration
	// Reported means that the caller reports the requests of picks without leases: picks do not count
	// in load reports.
	Reported bool
	// IdempotencyKey makes a repeated request return the same leases, without
	// explanation.
	IdempotencyKey string
	// Owner is who holds the leases, and Account pays for leases and waiting; it may be
	// nil.
	Owner   ledger.Owner
	Account *quota.Account
	// Viewer reports which targets an error may name; nil for all.
	Viewer interface{ MaySee(name string) bool }
	// Canceled ends a wait when it is closed; nil for never.
	Canceled <-chan struct{}
	// NoWait makes Pick return [ErrWouldWait] instead of waiting for an endpoint or for a management
	// server, and before it counts anything.
	NoWait bool
}

// ErrWouldWait is the error of a Request with NoWait whose picks would wait.
var ErrWouldWait error = wouldWait

var wouldWait = &fault.Error{Code: fault.Internal, Detail: "the pick would wait"}

// Header is one value of a header of the request that a pick is for.
type Header = resource.Header

// Picks is the answer to a Request.
type Picks struct {
	// Cluster and Target are those of the request; one of them is empty.
	Cluster    string
	Target     string
	Generation int64
	// Stale is true if the picks used resources of a management server that is
	// unreachable. Age is then the time since the cluster's last change.
	Stale bool
	Age   time.Duration
	// Picks has at least one.
	Picks []Pick
	// Dropped counts the dropped picks by category; nil without any.
	Dropped map[string]int
	// CircuitBroken counts those that the circuit breaker refused.
	CircuitBroken int

	call *call // that the next picks use again
}

// Reset clears the answer. Its memory is used again by the next picks.
func (out *Picks) Reset() {
	clear(out.Picks)
	out.restart("")
}

// restart makes out the answer to a request for a cluster, without picks. It sets field by
// field, as [Pick.set] does: a processor takes longer to copy a struct that was just written.
func (out *Picks) restart(cluster string) {
	out.Cluster, out.Target = cluster, ""
	out.Generation, out.Stale, out.Age = 0, false, 0
	out.Picks = out.Picks[:0]
	out.Dropped, out.CircuitBroken = nil, 0
}

// Pick is one endpoint picked.
type Pick struct {
	// Cluster is the one that the target's routes chose, or that the request
	// named.
	Cluster  string
	Address  string
	Endpoint *resource.Endpoint
	Priority int
	Lease    Lease  // the zero Lease for an unleased pick
	Explain  []Step // nil unless asked for

	upstream *policy.Upstream    // may be nil
	shared   *policy.SharedLimit // of a lease that holds a request of a limit of the fleet
}

// set makes p the result of a call, without lease and explanation.
func (p *Pick) set(c *policy.Call) {
	p.Cluster, p.Address, p.Endpoint, p.Priority = c.Cluster, c.Address, c.Endpoint, c.Priority
	p.Lease, p.Explain, p.upstream, p.shared = Lease{}, nil, c.Upstream, nil
}

// Hostname returns the endpoint's hostname, or an empty string.
func (p *Pick) Hostname() string { return p.Endpoint.Hostname }

// Locality returns the endpoint's locality.
func (p *Pick) Locality() observe.Locality { return observe.Locality(p.Endpoint.Locality) }

// Text returns what render makes of the address, the hostname and the locality. The endpoint
// keeps it, so render must be the same function in all calls.
func (p *Pick) Text(render func(*Pick) string) string {
	u := p.upstream
	if u == nil || !u.IsFirst(p.Address) {
		return render(p)
	}
	t := u.Text.Load()
	if t == nil {
		text := render(p)
		t = &text
		u.Text.Store(t)
	}
	return *t
}

// Lease is what is held for one pick.
type Lease struct {
	ID        LeaseID   `json:"id" swaggertype:"string"`
	ExpiresAt time.Time `json:"expires_at"`
}

// sampleMask makes one pick in 256 a timed one: reading the clock costs more
// than the pick.
const sampleMask = 255

// call is what an answer keeps for the next picks into it.
type call struct {
	policy.Call

	source   rand.PCG
	recent   recent
	batches  uint64              // that of the last batch, for its first place
	more     int                 // picks of the request after this one
	picks    uint32              // a number that grows by one with each pick, from a random one
	deciding bool                // a policy picks now: if it panics, what it holds is released
	shared   *policy.SharedLimit // of the last pick that was admitted
}

// recent is the target of the last pick by the name of a cluster.
type recent struct {
	hosted  *ledger.Hosted // in which it was found
	cluster string
	target  *ledger.Target
}

// begin returns the call of a request.
func (s *Picker) begin(ctx context.Context, r *Request, out *Picks) *call {
	if out.call == nil {
		out.call = &call{picks: rand.Uint32()}
		if s.options.OwnDraws {
			out.call.source.Seed(rand.Uint64(), rand.Uint64())
			out.call.Source = &out.call.source
		}
	}
	c := out.call // end has left no request in it
	c.Context = ctx
	c.Hold, c.Reported = r.TTL > 0, r.Reported
	c.WaitForReady = r.WaitForReady
	c.Canceled = r.Canceled
	c.Path, c.Headers = r.Path, r.Headers
	switch {
	case r.NoWait:
		c.Waiter = noWaiter{}
	case r.Account != nil:
		c.Waiter = (*waiter)(r.Account)
	default:
	}
	c.Exclude = spellings(r.Exclude)
	if r.Hash != "" {
		c.Hash, c.HasHash = xxhash.Sum64String(r.Hash), true
	}
	return c
}

// golden is 2^64 divided by the golden ratio: places that many apart are the most even, however many there are.
const golden = 0x9e3779b97f4a7c15

// batch returns the place of the first of n picks, and the distance from each to the next: n evenly spaced
// places, none near the one before it, and in the gaps of the batches before.
func (c *call) batch(n int) (place, step uint64) {
	if c.batches == 0 {
		c.batches = rand.Uint64() | 1
	}
	c.batches += golden
	gap := math.MaxUint64 / uint64(n)
	stride := max(1, uint64(float64(n)/math.Phi))
	for gcd(stride, uint64(n)) != 1 {
		stride++
	}
	place, _ = bits.Mul64(c.batches, gap)
	return place, stride * gap
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// spellings adds the canonical spellings of addresses that have another one.
func spellings(addresses []string) []string {
	all := slices.Clip(addresses)
	for _, a := range addresses {
		if canonical := resource.CanonicalAddress(a); canonical != a {
			all = append(all, canonical)
		}
	}
	return all
}

// end leaves no references to the request.
func (c *call) end() {
	if c.deciding {
		c.deciding = false
		c.GiveUp()
	}
	c.Exclude = nil // the caller's
	c.shared = nil
	c.Reset(context.Background())
}

// Pick picks r.N times and fills out, whose memory is used again. If no pick succeeds, it
// returns the error of the first. It keeps no reference to r or out, nor to the texts of
// r: they may be parts of a URL, which is much longer.
//
// It allocates nothing if out was used before, leases included, unless their owner is new, r has an
// IdempotencyKey or Explain, or a pick is refused.
func (s *Picker) Pick(ctx context.Context, r *Request, out *Picks) error {
	out.restart(r.Cluster)
	if r.Explain && r.N > MaxExplain {
		return fault.Errorf(fault.InvalidArgument, "explain=true is for at most %d picks: n is %d", MaxExplain, r.N).Of(r.Cluster, r.Target)
	}
	if r.IdempotencyKey == "" || r.TTL == 0 {
		return s.pick(ctx, r, out)
	}
	return s.leases.once(ctx, r, out, func() error {
		if err := s.pick(ctx, r, out); err != nil {
			return err
		}
		return s.Confirm(out) // not again when the answer is repeated
	})
}

func (s *Picker) pick(ctx context.Context, r *Request, out *Picks) error {
	call := s.begin(ctx, r, out)
	defer call.end()
	t, err := s.targetOf(r, &call.recent)
	if err != nil {
		return err
	}
	out.Target = t.Label
	var first *fault.Error
	var steps []Step // of first
	wait := r.Wait
	n := max(r.N, 1)
	out.Picks = slices.Grow(out.Picks, n)
	var place, step uint64
	if n > 1 && r.TTL == 0 {
		place, step = call.batch(n)
	}
	for i := range n {
		if i > 0 {
			call.Again()
		}
		if step > 0 {
			call.Spread(place)
			place += step
		}
		out.Picks = out.Picks[:len(out.Picks)+1]
		p := &out.Picks[len(out.Picks)-1]
		call.more = n - i - 1
		refusal := s.pickOne(t, call, r, wait, p)
		wait -= min(wait, call.Queued)
		for refusal != nil {
			next := s.successor(t, r, call, refusal)
			if next == nil {
				break
			}
			t = next
			call.Again()
			refusal = s.pickOne(t, call, r, wait, p)
			wait -= min(wait, call.Queued)
		}
		if refusal == wouldWait {
			out.Picks = out.Picks[:len(out.Picks)-1]
			if i == 0 {
				return refusal
			}
			break // as after a wait that was too short
		}
		if refusal == nil {
			m := t.Cluster(call.Cluster)
			m.CountPick(&call.Call)
			if call.Unhashed {
				m.MarkUnhashed()
			}
			if m.Stale() {
				out.Stale, out.Age = true, max(out.Age, time.Since(ledger.Updated(m.ClusterConfig())))
			}
			out.Generation = call.Generation
			continue
		}
		t.Record(call.Cluster).Picks.Add(ledger.Result(refusal.Code))
		out.Picks = out.Picks[:len(out.Picks)-1]
		if first == nil && len(out.Picks) == 0 {
			first, steps = refusal, p.Explain
		}
		*p = Pick{}
		if !out.shed(refusal) {
			break
		}
	}
	if len(out.Picks) > 0 {
		return nil
	}
	var holders []ledger.Holder
	if first.Code == fault.CircuitBroken {
		holders = t.Cluster(first.Cluster).Holders(time.Now())
	}
	if r.Explain || holders != nil {
		return &ExplainedError{Err: first, Explain: steps, Holders: holders}
	}
	return first
}

// waiter counts waiting picks against the quota of an account.
type waiter quota.Account

func (w *waiter) BeginWait() error { return (*quota.Account)(w).Acquire(quota.WaitingPicks, 1) }
func (w *waiter) EndWait()         { (*quota.Account)(w).Release(quota.WaitingPicks, 1) }

// noWaiter is the waiter of a request with NoWait.
type noWaiter struct{}

func (noWaiter) BeginWait() error { return ErrWouldWait }
func (noWaiter) EndWait()         {}

// pickOne picks once, and makes a lease of the pick if r has a TTL. p has the explanation
// also of a refused pick.
func (s *Picker) pickOne(t *ledger.Target, call *call, r *Request, wait time.Duration, p *Pick) (refused *fault.Error) {
	call.Cluster = r.Cluster // a target's routes replace it
	if r.Explain {
		call.Trace = new(policy.Trace)
	}
	call.deciding = true
	err := s.decide(t, call, wait)
	if err != nil {
		call.deciding = false
		*p = Pick{}
		if r.NoWait && (errors.Is(err, ErrWouldWait) || errors.Is(err, lb.ErrClosed)) { // a successor may have to be asked for
			return wouldWait
		}
		if r.Explain {
			p.Explain = explain(t, &call.Call)
		}
		return s.refusal(t, &call.Call, err)
	}
	p.set(&call.Call)
	if r.Explain {
		p.Explain = explain(t, &call.Call)
	}
	call.deciding = false
	if r.TTL > 0 {
		if refused = s.admit(t, call, r); refused == nil {
			p.shared = call.shared
			refused = s.leases.grant(t.Cluster(call.Cluster), call, r, s.options.MaxLeaseShare, &p.Lease)
		}
		if refused != nil {
			steps := p.Explain
			*p = Pick{}
			if r.Explain {
				p.Explain = append(steps, Step{Step: "failure", Says: refused.Detail, Error: refused.Detail})
			}
		}
	}
	return refused
}

// successor returns the target for a pick whose own was closed meanwhile, such as an
// on-demand cluster that was just released; or nil.
func (s *Picker) successor(t *ledger.Target, r *Request, call *call, refused *fault.Error) *ledger.Target {
	if !errors.Is(refused, lb.ErrClosed) || s.options.Draining.Err() != nil {
		return nil
	}
	next, err := s.targetOf(r, &call.recent)
	if err != nil || next == t {
		return nil
	}
	return next
}

// decide calls the target's picker, and measures a sample of the calls.
func (s *Picker) decide(t *ledger.Target, call *call, wait time.Duration) error {
	call.picks++
	measured := call.picks&sampleMask == 0
	var start time.Time
	if measured {
		start = time.Now()
	}
	err := t.Channel.Pick(&call.Call, wait)
	switch {
	case call.Queued > 0:
		s.pickWait.Observe(call.Queued.Seconds())
	case measured:
		s.pickDuration.Observe(time.Since(start).Seconds())
	}
	return err
}

func (s *Picker) refusal(t *ledger.Target, call *policy.Call, err error) *fault.Error {
	e := &fault.Error{Detail: err.Error(), Cluster: call.Cluster, Target: t.Label}
	if refused, ok := errors.AsType[*policy.Refusal](err); ok { // the most frequent
		e.Code, e.Category = refusalCodes[refused.Kind], refused.Category
		if e.Code == fault.CircuitBroken {
			s.options.Events.BreakerFull(t.Cluster(call.Cluster))
		}
	} else {
		s.failed(e, t, call, err)
	}
	return e
}

// failed sets the code of e, and adds details.
func (s *Picker) failed(e *fault.Error, t *ledger.Target, call *policy.Call, err error) {
	var (
		noRoute   *lb.RouteError
		noTarget  *lb.TargetError
		noCluster *resolver.NotFoundError
		notReady  *lb.NotReadyError
		timeout   *lb.TimeoutError
		connect   *policy.ConnectError
		limit     *quota.LimitError
	)
	switch {
	case errors.As(err, &limit):
		e.Code, e.RetryAfter = fault.RateLimited, time.Second
	case errors.As(err, &noRoute):
		e.Code = fault.NoRoute
	case errors.As(err, &noTarget):
		e.Code, e.Detail = observe.Unusable(noTarget)
	case errors.As(err, &noCluster) && t.Label == "" && noCluster.Key == (resource.Key{Type: resource.TypeCluster, Name: call.Cluster}):
		e.Code = fault.UnknownCluster
	case errors.As(err, &notReady):
		e.Code, e.Detail = fault.NoReadyEndpoint, withNote(t, call.Cluster, e.Detail)
		if errors.As(err, &connect) && !connect.RetryAt.IsZero() {
			e.RetryAfter = max(time.Until(connect.RetryAt), time.Millisecond)
		}
	case errors.As(err, &timeout):
		e.Code = fault.PickTimeout
		if timeout.Err != nil {
			e.Detail = withNote(t, call.Cluster, e.Detail)
		}
		if t.Label == "" && !t.Cluster(call.Cluster).Known() {
			e.Detail = fmt.Sprintf("cluster %q is not known yet: the management server sent no answer within %v", call.Cluster, timeout.Wait)
		}
		for _, lacking := range s.options.Overload.Current() {
			if lacking.Resource != overload.APIConnections { // which keeps no dial waiting
				e.Detail += "; " + lacking.Resource.Text()
				break
			}
		}
	case errors.Is(err, lb.ErrClosed):
		*e = *s.options.Ledger.Gone(call.Cluster, t.Label)
	case call.Err() != nil, errors.Is(err, lb.ErrCanceled):
		e.Code = fault.CallerGone
	default:
		e.Code, e.Detail = fault.NoReadyEndpoint, withNote(t, call.Cluster, e.Detail) // a foreign policy's own error
	}
}

// withNote returns the detail of a pick that failed, with the resolution note of the
// cluster that was chosen.
func withNote(t *ledger.Target, cluster, detail string) string {
	if m := t.View().Clusters.Get(cluster); m != nil {
		detail = m.Ambient().AppendNote(detail)
	}
	return detail
}

var refusalCodes = map[policy.Kind]fault.Code{
	policy.KindDropped:        fault.Dropped,
	policy.KindCircuitBroken:  fault.CircuitBroken,
	policy.KindUnknownCluster: fault.UnknownCluster,
	policy.KindAllExcluded:    fault.AllExcluded,
}

// shed counts a refusal of a single pick. It reports false for an error that the next
// pick of the request would have as well.
func (out *Picks) shed(e *fault.Error) bool {
	switch e.Code {
	case fault.Dropped:
		if out.Dropped == nil {
			out.Dropped = make(map[string]int)
		}
		out.Dropped[e.Category]++
	case fault.CircuitBroken:
		out.CircuitBroken++
	default:
		return false
	}
	return true
}
