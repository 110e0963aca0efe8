package picks

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks/handover"
	"github.com/lbd-dev/lbd/service/quota"
)

// Options are the dependencies of a Picker.
type Options struct {
	Ledger *ledger.Ledger
	Events *observe.Events // of circuit breakers
	// Demand asks a management server for a cluster that is not hosted, and returns the
	// target whose picks wait for the answer; nil without a management server. The account, which
	// may be nil, pays for the name while it is unknown.
	Demand func(cluster string, by *quota.Account) (*ledger.Target, error)
	// MaxLeases is the limit on held leases; 0 is DefaultMaxLeases.
	MaxLeases int
	// Replica identifies this daemon in the IDs of leases; 0 for a daemon without a fleet.
	Replica ReplicaTag
	// MaxLeaseShare is the part of a cluster's circuit breaker that one owner may hold with
	// leases, for clusters that do not set it; 0 is no limit.
	MaxLeaseShare float64
	// OwnDraws makes each answer have random numbers of its own for its picks, instead of those of
	// the trees.
	OwnDraws bool
	Overload *overload.Monitor
	Registry *prometheus.Registry
	// Draining ends when the daemon begins to shut down.
	Draining context.Context
}

// Picker answers picks, and holds the leases.
type Picker struct {
	// Fixed after build.
	options                Options
	leases                 *leases
	pickDuration, pickWait prometheus.Histogram
}

// New returns a Picker without leases.
func New(o Options) *Picker {
	s := &Picker{
		options: o,
		pickDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lbd_pick_duration_seconds",
			Help:    "Duration of the decision of a pick, without queueing. One pick in 256 is measured.",
			Buckets: []float64{100e-9, 250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 50e-6, 250e-6, 1e-3, 10e-3},
		}),
		pickWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lbd_pick_wait_seconds",
			Help:    "Time for which picks waited for a READY endpoint. Only picks that waited count.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
	}
	s.leases = newLeases(cmp.Or(o.MaxLeases, DefaultMaxLeases), o.Replica, func(r *ledger.Record) {
		if r.Target != nil {
			o.Events.BreakerEased(r.Target.Cluster(r.Name))
		} else if c := o.Ledger.Hosted().Cluster(r.Name); c != nil { // of an earlier process
			o.Events.BreakerEased(c)
		}
	})
	o.Registry.MustRegister(s.pickDuration, s.pickWait)
	return s
}

const (
	// MaxHandedOver is how many leases the next process knows: of others it has only the number.
	MaxHandedOver = 20_000
	// LostOwner is the owner of leases of which only the number is known.
	LostOwner = "unknown, of the process before"
)

// HandOver counts the leases that the last process has left in a file, and makes Close leave those of this
// one; for a disk that hangs, that waits about as long as given. It must be called before the first pick, by one process
// at a time.
func (s *Picker) HandOver(path string, wait time.Duration, log *slog.Logger) {
	f, last := handover.Open[handedLease](path, log)
	for i := range last.Leases {
		f.Known(s.adopt(last.Leases[i].Leaf, &last.Leases[i].LeaseState), last.Leases[i].Leaf.TTL)
	}
	for _, leaf := range last.Leaves {
		f.Lost(s.adopt(leaf, nil), leaf)
	}
	if n := s.leases.count.Load(); n > 0 {
		log.Info("leases of the last process count until they end", "known", len(last.Leases), "unknown", n-int64(len(last.Leases)))
	}
	s.leases.handover, s.leases.leaveWait = f, wait
	s.leases.begun.Wake()
	f.Begin()
}

// adopt counts requests of a leaf: that of a lease if it is not nil. It returns where they count.
func (s *Picker) adopt(leaf handover.Leaf, l *LeaseState) (counters *policy.ClusterCounters) {
	ls, now := s.leases, s.leases.clock.now()
	cluster, owner, expires := leaf.Cluster, ledger.Owner{Name: LostOwner}, now.add(min(max(leaf.TTL, 0), MaxTTL))
	if l != nil {
		leaf.Requests = 1
		cluster, owner, expires.unix = l.Cluster, l.Owner, l.ExpiresAt.UnixNano()
	}
	s.options.Ledger.Adopt(cluster, leaf.Key(), func(r *ledger.Record, of *ledger.Leases, c *policy.ClusterCounters) {
		for range min(leaf.Requests, ls.max-ls.count.Load()) { // with more, each pick is refused anyway
			sh := &ls.shards[ls.count.Add(1)%leaseShards]
			if l != nil {
				sh = &ls.shards[l.ID.shard%leaseShards]
			}
			sh.mu.Lock()
			slot := sh.adopt(l, now, expires)
			slot.record, slot.owner, slot.leaf, slot.held = r, r.Totals.Leases.Begin(owner, 0), nil, c.Adopt(l == nil)
			if leaf.Cluster != cluster {
				slot.leaf = of.BeginThrough(owner)
			}
			sh.mu.Unlock()
		}
		counters = c
	})
	return counters
}

// Close ends all leases.
func (s *Picker) Close() { s.leases.close() }

// targetOf returns the target of a request. Most picks into an answer are of the cluster of the
// one before.
func (s *Picker) targetOf(r *Request, last *recent) (*ledger.Target, error) {
	if r.Target != "" {
		return s.options.Ledger.XDSTarget(r.Target)
	}
	h := s.options.Ledger.Hosted()
	if last.hosted == h && last.cluster == r.Cluster {
		last.target.MarkUsed()
		return last.target, nil
	}
	if t := h.Own(r.Cluster); t != nil {
		t.MarkUsed()
		*last = recent{h, t.Cluster(r.Cluster).Name, t} // not the text of r
		return t, nil
	}
	if r.NoWait {
		return nil, ErrWouldWait
	}
	if t, err := s.options.Demand(r.Cluster, r.Account); t != nil || err != nil {
		return t, err
	}
	err := ledger.UnknownCluster(r.Cluster)
	in := h.LivesIn(r.Cluster)
	if r.Viewer != nil {
		in = ledger.NewScope(r.Viewer.MaySee).Targets(in)
	}
	if len(in) > 0 {
		err.Detail = fmt.Sprintf("cluster %q is only in %s: set target=, whose routes choose the cluster", r.Cluster, in[0])
	}
	return nil, err
}
