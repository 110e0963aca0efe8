package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of picks.
const (
	// MaxPicks is the most picks of one request.
	MaxPicks = 1000
	// MaxExplain is the most picks of one request that are explained.
	MaxExplain = 10
	// MaxWait is the longest that a pick may queue.
	MaxWait = 60 * time.Second
	// MaxExclude is the most addresses that a pick may exclude.
	MaxExclude = 100
	// MaxHeaders is the most values of headers that a pick may have.
	MaxHeaders = 100
	// DefaultTTL and MaxTTL are how long a lease lasts.
	DefaultTTL = 30 * time.Second
	MaxTTL     = 10 * time.Minute
)

// PickRequest asks for picks.
type PickRequest struct {
	// Exactly one of Cluster and Target is set. Target is the name of an xds
	// target, as [TargetName] takes it, whose routes choose the cluster.
	Cluster string
	Target  string
	// Path and Headers are what the routes of Target look at: the path begins
	// with a slash, names of headers are in lower case.
	Path    string
	Headers []Header
	// N is how many picks, 1 to MaxPicks; to MaxExplain with Explain.
	N int
	// Wait is how long the picks may queue, 0 to MaxWait.
	Wait         time.Duration
	WaitForReady bool
	// Hash is the request hash key, for policies that hash.
	Hash    string
	Exclude []string
	Explain bool
	// TTL, where positive, makes every pick a lease.
	TTL time.Duration
	// IdempotencyKey, of leases, makes a repeated request return the same,
	// without explanation.
	IdempotencyKey string
}

// Header is one value of a header of the request that a pick is for.
type Header = resource.Header

// Picks is the answer to a PickRequest.
type Picks struct {
	// Cluster and Target are those of the request; one of them is empty.
	Cluster    string
	Target     string
	Generation int64
	// Stale is true where a management server that is away said what the picks
	// were made by. Age is then how long ago the cluster became what it is.
	Stale bool
	Age   time.Duration
	// Picks has at least one.
	Picks []Pick
	// Dropped counts the picks of the request that each drop category took;
	// nil where none did.
	Dropped map[string]int
	// CircuitBroken counts those that the circuit breaker refused.
	CircuitBroken int
}

// Pick is one endpoint picked.
type Pick struct {
	// Cluster is the one that the target's routes chose, or that the request
	// named.
	Cluster  string
	Address  string
	Hostname string
	Locality Locality
	Priority int
	Lease    *Lease // nil for an unleased pick
	Explain  []Step // nil unless asked for
}

// Lease is what is held for one pick.
type Lease struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
}

// result is what became of a pick, as metrics count it: ok, or the code of its
// refusal.
type result string

const resultOK result = "ok"

// sampleMask makes one pick in 256 a timed one: reading the clock costs more
// than the pick.
const sampleMask = 255

var callPool sync.Pool // of *policy.Call

// Pick picks r.N times and fills out, whose slice is used again. It fails with
// what stopped the first pick if none came back. It keeps neither r nor out, nor
// what they hold.
func (s *Service) Pick(ctx context.Context, r *PickRequest, out *Picks) error {
	*out = Picks{Cluster: r.Cluster, Picks: out.Picks[:0]}
	if r.Explain && r.N > MaxExplain {
		err := errorf(InvalidArgument, "explain=true is for at most %d picks: n is %d", MaxExplain, r.N)
		err.Cluster, err.Target = r.Cluster, r.Target
		return err
	}
	if r.IdempotencyKey == "" || r.TTL == 0 {
		return s.pick(ctx, r, out)
	}
	return s.leases.once(ctx, r, out, func() error { return s.pick(ctx, r, out) })
}

func (s *Service) pick(ctx context.Context, r *PickRequest, out *Picks) error {
	t, err := s.targetOf(r)
	if err != nil {
		return err
	}
	out.Target = t.label
	call, ok := callPool.Get().(*policy.Call)
	if !ok {
		call = new(policy.Call)
	}
	defer putCall(call)
	call.Context = ctx // putCall has left nothing else
	call.Hold = r.TTL > 0
	call.WaitForReady = r.WaitForReady
	call.Path, call.Headers = r.Path, r.Headers
	call.Exclude = r.Exclude
	if r.Hash != "" {
		call.Hash, call.HasHash = xxhash.Sum64String(r.Hash), true
	}

	var first error
	wait := r.Wait
	for i := range max(r.N, 1) {
		if i > 0 {
			call.Again()
		}
		p, refusal := s.pickOne(t, call, r, wait)
		wait -= min(wait, call.Queued)
		for next := s.successor(t, r, refusal); next != nil; next = s.successor(t, r, refusal) {
			t = next
			call.Again()
			p, refusal = s.pickOne(t, call, r, wait)
			wait -= min(wait, call.Queued)
		}
		if refusal == nil {
			m := t.member(call.Cluster)
			m.picks.add(resultOK)
			m.places.add(place{p.Priority, resource.Locality(p.Locality)})
			if m.stale.Load() {
				out.Stale, out.Age = true, max(out.Age, time.Since(updated(m.clusterConfig())))
			}
			out.Generation = call.Generation
			out.Picks = append(out.Picks, p)
			continue
		}
		t.accountOf(call.Cluster).picks.add(result(refusal.Code))
		if first == nil && len(out.Picks) == 0 {
			first = refusal
		}
		if !out.shed(refusal) {
			break
		}
	}
	if len(out.Picks) == 0 {
		return first
	}
	return nil
}

// putCall takes a call back, and nothing of the request with it.
func putCall(call *policy.Call) {
	call.Reset(context.Background())
	callPool.Put(call)
}

// pickOne picks once, and makes a lease of the pick where that is asked for.
func (s *Service) pickOne(t *target, call *policy.Call, r *PickRequest, wait time.Duration) (p Pick, refused *Error) {
	call.Cluster = r.Cluster // a target's routes replace it
	if r.Explain {
		call.Trace = new(policy.Trace)
	}
	done := false
	defer func() {
		if !done { // a panic, of a policy that is not lbd's for one: nothing is held for it
			call.GiveUp()
		}
	}()
	err := s.decide(t, call, wait)
	if err != nil {
		done = true
		return Pick{}, s.refusal(t, call, err)
	}
	p = Pick{
		Cluster: call.Cluster, Address: call.Address, Hostname: call.Endpoint.Hostname,
		Locality: localityOf(call.Endpoint.Locality), Priority: call.Priority,
	}
	if r.Explain {
		p.Explain = explain(t, call)
	}
	done = true
	if r.TTL > 0 {
		p.Lease, refused = s.leases.grant(t.member(call.Cluster).account, call, r.TTL)
	}
	return p, refused
}

// successor is the target that a pick goes on with whose own was closed under it:
// a cluster on demand may be released just when a pick comes for it. It is nil
// where there is none.
func (s *Service) successor(t *target, r *PickRequest, refused *Error) *target {
	if refused == nil || !refused.closed || s.draining.Err() != nil {
		return nil
	}
	next, err := s.targetOf(r)
	if err != nil || next == t {
		return nil
	}
	return next
}

// decide asks the target's picker, and sees how long that takes.
func (s *Service) decide(t *target, call *policy.Call, wait time.Duration) error {
	sampled := rand.Uint64()&sampleMask == 0
	var start time.Time
	if sampled {
		start = time.Now()
	}
	err := t.channel.Pick(call, wait)
	if sampled && call.Queued == 0 {
		s.metrics.pickDuration.Observe(time.Since(start).Seconds())
	}
	if call.Queued > 0 {
		s.metrics.pickWait.Observe(call.Queued.Seconds())
	}
	return err
}

// refusal says in the service's terms why a pick failed.
func (s *Service) refusal(t *target, call *policy.Call, err error) *Error {
	e := &Error{Detail: err.Error(), Cluster: call.Cluster, Target: t.label}
	if refused, ok := errors.AsType[*policy.Refusal](err); ok { // the most frequent, and the cheapest
		e.Code, e.Category = refusalCodes[refused.Kind], refused.Category
		if e.Code == CircuitBroken {
			s.breakerFull(t.member(call.Cluster))
		}
	} else {
		s.failed(e, t, call, err)
	}
	if call.Trace != nil {
		e.Explain = explain(t, call)
	}
	return e
}

// failed gives e its code, and says more where more is known.
func (s *Service) failed(e *Error, t *target, call *policy.Call, err error) {
	var (
		noRoute   *lb.RouteError
		noTarget  *lb.TargetError
		noCluster *resolver.NotFoundError
		notReady  *lb.NotReadyError
		timeout   *lb.TimeoutError
		connect   *policy.ConnectError
	)
	switch {
	case errors.As(err, &noRoute):
		e.Code = NoRoute
	case errors.As(err, &noTarget):
		e.Code, e.Detail = unusable(noTarget)
	case errors.As(err, &noCluster) && t.label == "" && noCluster.Key == (resource.Key{Type: Config, Name: call.Cluster}):
		e.Code = UnknownCluster
	case errors.As(err, &notReady):
		e.Code, e.Detail = NoReadyEndpoint, t.withNote(call.Cluster, e.Detail)
		if errors.As(err, &connect) && !connect.RetryAt.IsZero() {
			e.RetryAfter = max(time.Until(connect.RetryAt), time.Millisecond)
		}
	case errors.As(err, &timeout):
		e.Code = PickTimeout
		if timeout.Err != nil {
			e.Detail = t.withNote(call.Cluster, e.Detail)
		}
		if t.label == "" && !t.member(call.Cluster).known() {
			e.Detail = fmt.Sprintf("cluster %q is not known yet: the management server has not told of it within %v", call.Cluster, timeout.Wait)
		}
		for _, lacking := range s.options.Overload.Current() {
			if lacking.Resource != overload.APIConnections { // which keeps no dial waiting
				e.Detail += "; " + lacking.Resource.Text()
				break
			}
		}
	case errors.Is(err, lb.ErrClosed):
		*e = *s.closed(call.Cluster, t.label)
	case call.Err() != nil:
		e.Code = CallerGone
	default:
		e.Code, e.Detail = NoReadyEndpoint, t.withNote(call.Cluster, e.Detail) // a foreign policy's own error
	}
}

// withNote returns the detail of a pick that failed, with the resolution note of the
// cluster that was chosen.
func (t *target) withNote(cluster, detail string) string {
	if m := t.newest.Load().members[cluster]; m != nil {
		detail = m.ambient.Load().appendNote(detail)
	}
	return detail
}

// unusable says why no pick of a target can be answered, and with which code: who
// asks for a target that has no Listener has most likely its name wrong.
func unusable(err *lb.TargetError) (code Code, detail string) {
	code, detail = NoReadyEndpoint, err.Error()
	missing, ok := errors.AsType[*resolver.NotFoundError](err)
	if !ok {
		return code, detail
	}
	if missing.Key.Type == resource.TypeListener {
		code = UnknownTarget
	}
	if missing.Err == nil {
		detail += ": push it with PUT /v1/snapshot, or give lbd a management server that has it"
	}
	return code, detail
}

var refusalCodes = map[policy.Kind]Code{
	policy.KindDropped:        Dropped,
	policy.KindCircuitBroken:  CircuitBroken,
	policy.KindUnknownCluster: UnknownCluster,
	policy.KindAllExcluded:    AllExcluded,
}

// shed counts a refusal that concerns one pick alone. It reports false for one
// that the next pick of the request would meet as well.
func (out *Picks) shed(e *Error) bool {
	switch e.Code {
	case Dropped:
		if out.Dropped == nil {
			out.Dropped = make(map[string]int)
		}
		out.Dropped[e.Category]++
	case CircuitBroken:
		out.CircuitBroken++
	default:
		return false
	}
	return true
}

func localityOf(l resource.Locality) Locality {
	return Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}
