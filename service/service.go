package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Options are what a Service needs from around it.
type Options struct {
	Logger *slog.Logger
	// Connectors hold a Connector for each connect mode; ConnectMode is the
	// one that stands for the empty mode.
	Connectors  map[resource.ConnectMode]lb.Connector
	ConnectMode resource.ConnectMode
	// Wait is how long a pick may queue that does not say.
	Wait time.Duration
	// Lookup looks a name up for LOGICAL_DNS clusters; nil is the system's.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Draw gives uniform random numbers, from any goroutine; nil is
	// math/rand/v2's.
	Draw func() uint64
	// Name is what the daemon calls itself to its operators: in the dashboard and in
	// GET /v1/daemon.
	Name string
	// Version is shown by the build metric, and beside Name.
	Version string
	// RequireIfMatch refuses changes that do not say what they replace.
	RequireIfMatch bool
	// MaxRemoved is how many clusters one change of the resource files may remove;
	// nil is half of those that they provide, at least 1.
	MaxRemoved *int
	// Targets are the full names of xds targets that are hosted from the start,
	// as TargetName returns them.
	Targets []string
	// MaxLeases bounds the leases held at a time; 0 is DefaultMaxLeases.
	MaxLeases int
	// Bootstrap is that of the management server that the service is to
	// [Service.Follow]; nil without one.
	Bootstrap *bootstrap.Config
	// OnDemand is how many known clusters it is asked for at a time because picks
	// name them, OnDemandUnknown how many names that it has not confirmed, and
	// OnDemandIdle how long a cluster stays that nobody picks from; 0 are
	// DefaultOnDemand, DefaultOnDemandUnknown and DefaultOnDemandIdle.
	OnDemand, OnDemandUnknown int
	OnDemandIdle              time.Duration
	// HistoryBytes is the budget of the history of all clusters; 0 is
	// DefaultHistoryBytes, and -1 keeps none.
	HistoryBytes int
	// MaxWatchers bounds who watches at a time; 0 is MaxWatchers.
	MaxWatchers int
	// Overload knows what lbd itself lacks; nil knows of nothing.
	Overload *overload.Monitor
}

// Service is lbd without its edges.
type Service struct {
	// Fixed after New.
	options  Options
	started  time.Time
	counters *policy.Counters
	metrics  *metrics
	targets  *targets
	leases   *leases
	events   *events
	watches  *watches
	recorder *recorder

	resolving sync.Mutex // guards resolver and stored, and the order of its changes
	resolver  *resolver.Resolver
	stored    storedWarnings
	dns       *resolver.DNS

	shortages       shortages
	unwatchOverload func()

	followed *followed // nil without a management server; fixed after Follow
	onDemand onDemand

	conditions  conditions
	storeHealth storeHealth

	reading  *reading
	underWay underWay
	store    atomic.Pointer[store.Store]
	files    atomic.Pointer[files.Set] // nil without a resource directory

	fileSource *fileSource // nil without a resource directory; fixed after FollowFiles

	leaving  atomic.Bool     // since Leave
	draining context.Context // ends with Drain
	drain    context.CancelFunc
}

// New returns a Service without resources. Its [Service.Commit] is to be the
// store's OnCommit; [Service.Start] begins.
func New(o Options) *Service {
	if o.Draw == nil {
		o.Draw = rand.Uint64
	}
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
	if o.MaxLeases == 0 {
		o.MaxLeases = DefaultMaxLeases
	}
	if o.OnDemand == 0 {
		o.OnDemand = DefaultOnDemand
	}
	if o.MaxWatchers == 0 {
		o.MaxWatchers = MaxWatchers
	}
	if o.OnDemandUnknown == 0 {
		o.OnDemandUnknown = DefaultOnDemandUnknown
	}
	if o.OnDemandIdle == 0 {
		o.OnDemandIdle = DefaultOnDemandIdle
	}
	s := &Service{options: o, started: time.Now().UTC(), counters: policy.NewCounters()}
	s.stored.service = s
	s.resolver = resolver.New(s.resolverOptions(o.Bootstrap))
	s.onDemand.init(o)
	s.reading = newReading()
	s.underWay.changes = make(map[*change]struct{})
	s.draining, s.drain = context.WithCancel(context.Background())
	s.metrics = newMetrics(s)
	s.events = newEvents()
	s.watches = newWatches(s)
	s.recorder = newRecorder(o.HistoryBytes)
	s.leases = newLeases(o.MaxLeases, func(a *account) { s.breakerEased(a.target.member(a.cluster)) })
	s.targets = newTargets(s.newTarget, s.counters)
	s.dns = resolver.NewDNS(o.Lookup, s.hostChanged, o.Overload)
	s.unwatchOverload = o.Overload.Watch(s.overloaded)
	s.AddConditions(s.shortageConditions)
	s.AddConditions(s.serverConditions)
	s.AddConditions(s.fileConditions)
	s.AddConditions(s.storeConditions)
	return s
}

// resolverOptions are those of a service with a bootstrap, or with none.
func (s *Service) resolverOptions(b *bootstrap.Config) resolver.Options {
	o := resolver.Options{Custom: lb.Foreign, Certificates: b.Instances(), Warnings: s.stored.take}
	if b != nil {
		o.Server, o.ListenerName = true, b.ListenerName
	}
	return o
}

// Start takes the resources of st, and returns once every tree has its config.
func (s *Service) Start(ctx context.Context, st *store.Store) error {
	var updates []resolver.Update
	var hosts []hosting
	for e := range st.Snapshot().All() {
		if e.Key.Type == hostedType {
			hosts = append(hosts, hosting{e.Key.Name, true})
			continue
		}
		updates = append(updates, resolver.Update{Item: resource.Item{Key: e.Key, Raw: e.Raw}, Updated: e.Updated})
	}
	for _, name := range s.options.Targets {
		hosts = append(hosts, hosting{name, true})
	}
	s.resolve(resource.SourcePush, updates, hosts)
	s.stored.end()
	var names []string // those of files, too
	for _, t := range s.targets.current.Load().all() {
		names = append(names, t.name)
	}
	err := s.targets.settle(ctx, names)
	s.store.Store(st)
	s.warnOfTargets(st.Snapshot().Get)
	s.recorder.start(s.targets)
	return err
}

// Commit lets the trees follow what the store has committed. The store's writer
// calls it.
func (s *Service) Commit(c store.Commit) {
	var updates []resolver.Update
	var hosts []hosting
	for _, key := range c.Changed {
		e, exists := c.After.Get(key) // its Raw is nil where it was removed
		if key.Type == hostedType {
			hosts = append(hosts, hosting{key.Name, exists})
			continue
		}
		item := s.underWay.value(key, e.Raw)
		item.Key, item.Raw = key, e.Raw
		updates = append(updates, resolver.Update{Item: item, Updated: e.Updated})
	}
	concerned, vs := s.resolve(resource.SourcePush, updates, hosts)
	s.underWay.commit(concerned, vs)
}

// resolve lets the trees follow what a source says, and which targets are hosted
// by name. It returns the targets that this concerns, and what changed.
func (s *Service) resolve(from resource.Source, updates []resolver.Update, hosts []hosting) (concerned []string, vs versions) {
	concerned = s.follows(func() (changes []resolver.Change) {
		changes, vs = s.applied(from, updates)
		for _, h := range hosts {
			changes = append(changes, s.host(h)...)
		}
		return changes
	})
	return concerned, vs
}

// follows lets the trees follow what is done to the resolver. It returns the targets
// that this concerns.
func (s *Service) follows(resolve func() []resolver.Change) (concerned []string) {
	s.resolving.Lock()
	changes := resolve()
	gone := s.follow(changes)
	s.resolving.Unlock()
	gone.close()
	s.confirm(changes)
	h := s.targets.current.Load()
	for _, c := range changes {
		concerned = append(concerned, c.Target)
		if t := h.named(c.Target); t != nil {
			for _, m := range t.newest.Load().sorted() {
				s.breakerEased(m) // its limit may be another
			}
		}
	}
	return concerned
}

// follow lets the trees follow the resolver, and asks for what they need now. It
// is called under s.resolving.
func (s *Service) follow(changes []resolver.Change) (gone ended) {
	gone = s.targets.apply(changes)
	s.dns.Want(s.resolver.Hosts())
	s.ask()
	s.followAmbientErrors(changes)
	return gone
}

// hostChanged lets the trees follow what a name resolves to.
func (s *Service) hostChanged(host string, addresses []string, err error) {
	if err != nil {
		s.options.Logger.Warn("name does not resolve", "host", host, "error", err)
	}
	s.resolving.Lock()
	before := s.resolver.HostAddresses(host)
	gone := s.follow(s.resolver.ApplyHost(host, addresses, err))
	after := s.resolver.HostAddresses(host)
	s.resolving.Unlock()
	gone.close()
	s.addressesChanged(host, before, after)
}

// Leave lets readiness fail, so that callers go elsewhere. Everything else goes on.
func (s *Service) Leave() { s.leaving.Store(true) }

// Drain lets readiness fail, and whoever waits for a change have what there is,
// so that callers go elsewhere. Picks go on.
func (s *Service) Drain() { s.drain() }

// Close ends the watches, the leases, and then the trees. Picks that queue end with
// ShuttingDown. The store is the caller's to close.
func (s *Service) Close() {
	s.Drain()
	s.recorder.close()
	s.unwatchOverload()
	s.watches.close()
	s.leases.close()
	s.stopDemand()
	s.dns.Close()
	s.targets.close()
}

// DefaultWait is how long a pick may queue that does not say.
func (s *Service) DefaultWait() time.Duration { return s.options.Wait }

// Registry holds all of lbd's metrics.
func (s *Service) Registry() *prometheus.Registry { return s.metrics.registry }

// Check is one line of a health probe's answer.
type Check struct {
	Name   string
	OK     bool
	Detail string
	// Warning marks a condition of the daemon that does not make the probe fail.
	Warning bool
}

// Health returns the checks of being ready to answer picks: those of the service,
// and one for each condition of the daemon.
func (s *Service) Health() []Check {
	loaded := Check{Name: "store", OK: s.store.Load() != nil, Detail: "what was pushed is loaded"}
	if !loaded.OK {
		loaded.Detail = "what was pushed is being loaded"
	}
	serving := Check{Name: "serving", OK: s.draining.Err() == nil && !s.leaving.Load(), Detail: "taking picks"}
	if !serving.OK {
		serving.Detail = "shutting down"
	}
	checks := []Check{loaded, serving}
	for _, c := range s.Conditions() {
		detail := c.Text
		if c.Remedy != "" {
			detail += ": " + c.Remedy
		}
		checks = append(checks, Check{Name: string(c.Kind), OK: !c.NotReady, Warning: !c.NotReady, Detail: detail})
	}
	return checks
}

// open returns the store, once there is one.
func (s *Service) open() (*store.Store, error) {
	st := s.store.Load()
	if st == nil {
		return nil, errorf(ShuttingDown, "what was pushed is still being loaded")
	}
	return st, nil
}

// closed is the error of a request whose tree was closed meanwhile. target is its
// label.
func (s *Service) closed(cluster, target string) *Error {
	var e *Error
	switch {
	case s.draining.Err() != nil:
		e = errorf(ShuttingDown, "the daemon is shutting down")
	case target != "":
		e = errorf(UnknownTarget, "target %q is not hosted any more", target)
	default:
		e = errorf(UnknownCluster, "cluster %q was removed", cluster)
	}
	e.Cluster, e.Target, e.closed = cluster, target, true
	return e
}

// targetOf returns the target that is to pick.
func (s *Service) targetOf(r *PickRequest) (*target, error) {
	if r.Target != "" {
		return s.xdsTarget(r.Target)
	}
	h := s.targets.current.Load()
	if t := h.clusters[r.Cluster]; t != nil {
		if !t.used.Load() { // a store by every pick would cost its cache line
			t.used.Store(true)
		}
		return t, nil
	}
	if s.followed != nil {
		return s.demand(r.Cluster)
	}
	err := unknownCluster(r.Cluster)
	if in := h.livesIn(r.Cluster); in != nil {
		err.Detail = fmt.Sprintf("cluster %q is part of %s only: ask with target=, whose routes choose it", r.Cluster, in[0])
	}
	return nil, err
}

// xdsTarget returns the xds target of a name, as TargetName takes it.
func (s *Service) xdsTarget(name string) (*target, error) {
	if t := s.targets.xds(name); t != nil {
		return t, nil
	}
	return nil, unknownTarget(name)
}

func unknownCluster(name string) *Error {
	err := errorf(UnknownCluster, "cluster %q is not known: nothing was pushed for it", name)
	err.Cluster = name
	return err
}

func unknownTarget(name string) *Error {
	err := errorf(UnknownTarget, "target %q is not hosted: nobody asked for it with --target or PUT /v1/targets, and no Listener of its name was pushed", name)
	err.Target = name
	return err
}

// callerGone is the error of a request whose caller left; nil stays nil.
func callerGone(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errorf(CallerGone, "the request was given up: %v", err)
	}
	return err
}
