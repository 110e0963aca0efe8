package sources

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Options are what sources need from around them.
type Options struct {
	Logger *slog.Logger
	Ledger *ledger.Ledger
	Events *observe.Events
	// BreakerEased is called with each cluster whose circuit breaker may have a new
	// limit.
	BreakerEased func(*ledger.Cluster)
	// Draining ends when the daemon begins to shut down.
	Draining context.Context
	Registry *prometheus.Registry
	Overload *overload.Monitor

	// The others are as in [Options].

	Lookup                    func(ctx context.Context, host string) ([]string, error)
	ConnectMode               resource.ConnectMode
	Bootstrap                 *bootstrap.Config
	Targets                   []string
	RequireIfMatch            bool
	MaxRemoved                *int
	OnDemand, OnDemandUnknown int
	OnDemandIdle              time.Duration
}

// Sources are all that resources come from: pushes, snapshots, files, management
// servers, DNS, and names that picks ask for.
type Sources struct {
	// Fixed after build.
	options  Options
	targets  *ledger.Ledger
	events   *observe.Events
	draining context.Context
	pushes   *prometheus.CounterVec
	dns      *resolver.DNS
	reading  *reading

	resolving sync.Mutex // guards resolver and stored, and the order of its changes
	resolver  *resolver.Resolver
	stored    storedWarnings

	followed *followed // nil without a management server; fixed after Follow
	onDemand onDemand

	storeHealth storeHealth
	underWay    underWay
	store       atomic.Pointer[Store]
	files       atomic.Pointer[files.Set] // nil without a resource directory

	fileSource *fileSource // nil without a resource directory; fixed after FollowFiles
}

// New returns sources without resources. Its [Sources.Commit] is to be the
// store's OnCommit; [Sources.Start] begins.
func New(o Options) *Sources {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupHost
	}
	if o.OnDemand == 0 {
		o.OnDemand = DefaultOnDemand
	}
	if o.OnDemandUnknown == 0 {
		o.OnDemandUnknown = DefaultOnDemandUnknown
	}
	if o.OnDemandIdle == 0 {
		o.OnDemandIdle = DefaultOnDemandIdle
	}
	s := &Sources{
		options: o, targets: o.Ledger, events: o.Events, draining: o.Draining,
		pushes: newPushes(o.Registry), reading: newReading(), stored: storedWarnings{logger: o.Logger},
	}
	s.resolver = resolver.New(s.resolverOptions(o.Bootstrap))
	s.onDemand.init(o)
	s.underWay.changes = make(map[*change]struct{})
	s.dns = resolver.NewDNS(o.Lookup, s.hostChanged, o.Overload)
	o.Registry.MustRegister(&sourcesCollector{s})
	return s
}

// Close ends the search for clusters on demand and for addresses.
func (s *Sources) Close() {
	s.stopDemand()
	s.dns.Close()
}

// Loaded reports whether the store's resources are loaded.
func (s *Sources) Loaded() bool { return s.store.Load() != nil }

// resolverOptions are those of a service with a bootstrap, or with none.
func (s *Sources) resolverOptions(b *bootstrap.Config) resolver.Options {
	o := resolver.Options{Policies: lb.PolicyConfig, Certificates: b.Instances(), Warnings: s.stored.take}
	if b != nil {
		o.Server, o.ListenerName = true, b.ListenerName
	}
	return o
}

// open returns the store, once there is one.
func (s *Sources) open() (Store, error) {
	st := s.store.Load()
	if st == nil {
		return nil, fault.Errorf(fault.ShuttingDown, "what was pushed is still being loaded")
	}
	return *st, nil
}

// Start takes the resources of st, and returns once every tree has its config.
func (s *Sources) Start(ctx context.Context, st Store) error {
	var updates []resolver.Update
	var hosts []hosting
	stored := st.Snapshot()
	for e := range stored.All() {
		switch e.Key.Type {
		case securedType:
		case hostedType:
			hosts = append(hosts, hosting{e.Key.Name, true})
		default:
			updates = append(updates, resolver.Update{
				Item: resource.Item{Key: e.Key, Raw: e.Raw}, Secured: isSecured(stored.Get, e), Updated: e.Updated,
			})
		}
	}
	for _, name := range s.options.Targets {
		hosts = append(hosts, hosting{name, true})
	}
	s.resolve(resource.SourcePush, updates, hosts)
	s.stored.end()
	var names []string // those of files, too
	for _, t := range s.targets.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	err := s.targets.Settle(ctx, names)
	s.markAll(ctx, st)
	s.store.Store(&st)
	s.warnOfTargets(st.Snapshot().Get)
	return err
}

// Commit lets the trees follow what the store has committed. The store's writer
// calls it.
func (s *Sources) Commit(c store.Commit) {
	var updates []resolver.Update
	var hosts []hosting
	for _, key := range c.Changed {
		e, exists := c.After.Get(key) // its Raw is nil where it was removed
		switch key.Type {
		case securedType:
			continue
		case hostedType:
			hosts = append(hosts, hosting{key.Name, exists})
			continue
		}
		item, _ := e.Value.(resource.Item) // as it was decoded when it was pushed
		item.Key, item.Raw = key, e.Raw
		updates = append(updates, resolver.Update{Item: item, Secured: isSecured(c.After.Get, e), Updated: e.Updated})
	}
	concerned, vs := s.resolve(resource.SourcePush, updates, hosts)
	s.underWay.commit(concerned, vs)
}

// resolve lets the trees follow what a source says, and which targets are hosted
// by name. It returns the targets that this concerns, and what changed.
func (s *Sources) resolve(from resource.Source, updates []resolver.Update, hosts []hosting) (concerned []string, vs difference.Versions) {
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
func (s *Sources) follows(resolve func() []resolver.Change) (concerned []string) {
	s.resolving.Lock()
	changes := resolve()
	gone := s.follow(changes)
	s.resolving.Unlock()
	gone.Close()
	s.confirm(changes)
	h := s.targets.Hosted()
	for _, c := range changes {
		concerned = append(concerned, c.Target)
		if t := h.Named(c.Target); t != nil {
			for _, m := range t.View().Sorted() {
				s.options.BreakerEased(m) // its limit may be another
			}
		}
	}
	return concerned
}

// follow lets the trees follow the resolver, and asks for what they need now. It
// is called under s.resolving.
func (s *Sources) follow(changes []resolver.Change) (gone ledger.Ended) {
	gone = s.targets.Apply(changes)
	s.dns.Want(s.resolver.Hosts())
	s.ask()
	s.followAmbientErrors(changes)
	return gone
}

// hostChanged lets the trees follow what a name resolves to.
func (s *Sources) hostChanged(host string, addresses []string, err error) {
	if err != nil {
		s.options.Logger.Warn("name does not resolve", "host", host, "error", err)
	}
	s.resolving.Lock()
	before := s.resolver.HostAddresses(host)
	gone := s.follow(s.resolver.ApplyHost(host, addresses, err))
	after := s.resolver.HostAddresses(host)
	s.resolving.Unlock()
	gone.Close()
	s.addressesChanged(host, before, after)
}
