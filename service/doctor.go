package service

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// MaxAttempts is the maximum number of endpoints that one report connects to.
	MaxAttempts = 100
	// maxConcurrentAttempts is the maximum number of connections that it makes at a time.
	maxConcurrentAttempts = 8
	// attemptTimeout is the maximum time for one of them, and attemptsTimeout for all.
	attemptTimeout  = 2 * time.Second
	attemptsTimeout = 5 * time.Second
)

// Dialer connects to endpoints when callers want that. [lb.Dialer] is one.
type Dialer interface {
	Reconnect(cluster string) (endpoints int)
	Try(ctx context.Context, a lb.Attempt, timeout time.Duration) (*x509.Certificate, error)
}

// Examination is what to examine.
type Examination struct {
	// Cluster is a cluster to examine in detail; empty for the daemon and all clusters with a problem.
	Cluster string
	// Dial connects to the endpoints of Cluster.
	Dial bool
	// Scope is that of the caller.
	Scope *ledger.Scope
	// Caller is who asks; nil if all callers have all roles.
	Caller *doctor.Caller
}

// Doctor examines the daemon and its clusters: all parts of the service.
type Doctor struct {
	// Fixed after New.
	parts   *Service
	options Options
	samples *pickSamples
	begun   time.Time

	running sync.WaitGroup // of samples
}

// Attempts connects to the endpoints of the cluster of an examination, if it should, for at most 5 s.
// skipped says why it does not connect to some.
func (d *Doctor) Attempts(ctx context.Context, e *Examination) (out []doctor.Attempt, skipped string) {
	if e.Cluster == "" || !e.Dial {
		return nil, ""
	}
	if d.options.Dialer == nil {
		return nil, "this daemon connects to no endpoints"
	}
	m, err := d.parts.targets.Find(e.Cluster, "")
	if err != nil {
		return nil, ""
	}
	var all []lb.Attempt
	more := 0
	seen := make(map[string]bool)
	for _, cc := range m.Config.Leaves(m.Name) {
		mode := d.connectMode(cc)
		if cc.Assignment == nil || mode == resource.ConnectNone {
			continue
		}
		for _, l := range cc.Assignment.Localities {
			for _, x := range l.Endpoints {
				switch address := x.Addresses[0]; {
				case !x.Usable() || seen[address]:
				case len(all) == MaxAttempts:
					more++
				default:
					seen[address] = true
					all = append(all, lb.Attempt{Mode: mode, Security: cc.Cluster.Security, Hostname: x.Hostname, Address: address})
				}
			}
		}
	}
	if more > 0 {
		skipped = fmt.Sprintf("connections were tried to %d endpoints only: there are %d more", MaxAttempts, more)
	}
	return d.tryAll(ctx, all), skipped
}

func (d *Doctor) connectMode(cc *resource.ClusterConfig) resource.ConnectMode {
	if cc.Cluster == nil {
		return resource.ConnectNone
	}
	if cc.Cluster.Connect == resource.ConnectDefault {
		return d.options.Sources.ConnectMode
	}
	return cc.Cluster.Connect
}

// tryAll makes connections, some at a time.
func (d *Doctor) tryAll(ctx context.Context, all []lb.Attempt) []doctor.Attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptsTimeout)
	defer cancel()
	defer context.AfterFunc(d.parts.draining, cancel)()
	results := make([]doctor.Attempt, len(all))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentAttempts)
	made := 0
	for i := range all {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		made++
		group.Go(func() {
			defer func() { <-slots }()
			a := doctor.Attempt{Address: all[i].Address}
			var c *x509.Certificate
			if c, a.Err = d.options.Dialer.Try(ctx, all[i], attemptTimeout); c != nil {
				a.NotBefore, a.NotAfter = c.NotBefore, c.NotAfter
			}
			results[i] = a
		})
	}
	group.Wait()
	return results[:made]
}

// Examine returns a report about the daemon or one cluster, with the connections that were tried. What is
// not known when ctx ends is reported as such.
func (d *Doctor) Examine(ctx context.Context, e *Examination, tried []doctor.Attempt, notTried string) *doctor.Report {
	daemon := d.examineDaemon(ctx, e)
	var clusters []*doctor.Cluster
	if e.Cluster != "" {
		clusters = append(clusters, d.examineCluster(ctx, e.Cluster, e.Scope))
		clusters[0].Attempts, clusters[0].NotTried = tried, notTried
		if clusters[0].State == nil {
			clusters[0].Similar = similar(e.Cluster, daemon.Clusters)
		}
	} else {
		for i := range daemon.Clusters {
			if c := &daemon.Clusters[i]; !suspicious(c) && !d.unhashed(c.Name) {
				continue
			}
			if len(clusters) == doctor.MaxClusters {
				daemon.NotExamined++
				continue
			}
			clusters = append(clusters, d.examineCluster(ctx, daemon.Clusters[i].Name, e.Scope))
		}
	}
	return doctor.Examine(daemon, clusters, e.Cluster)
}

func (d *Doctor) examineDaemon(ctx context.Context, e *Examination) *doctor.Daemon {
	daemon := &doctor.Daemon{
		Now: time.Now(), State: d.parts.State.Daemon(e.Scope), Caller: e.Caller, ClockStep: d.clockStep(),
		XDS: d.parts.Sources.XDS(sources.XDSFilter{Scope: e.Scope}), Files: d.parts.Sources.Files().Within(e.Scope), Fleet: d.parts.Replicas.State(ctx, e.Scope),
		Targets: d.examineTargets(e.Scope), DescriptorLimit: overload.DescriptorLimit(),
	}
	daemon.Descriptors, daemon.DescriptorErr = overload.OpenDescriptors()
	daemon.Store, daemon.StoreErr = d.parts.Sources.Store()
	daemon.Covered = d.parts.Sources.AllCovered(e.Scope)
	if list, err := d.parts.Overlays.States("", e.Scope); err == nil { // else StoreErr says why
		daemon.Overlays = list
	}
	for _, c := range d.parts.State.Clusters() {
		if e.Scope.Cluster(c.Name) {
			daemon.Clusters = append(daemon.Clusters, c.Within(e.Scope))
		}
	}
	if e.Scope.All() { // their names have those of files
		daemon.Certificates = d.ownCertificates()
	}
	return daemon
}

// clockStep returns by how much the wall clock was set since the start.
func (d *Doctor) clockStep() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(d.begun.Round(0)) - now.Sub(d.begun)
}

// ownCertificates returns the certificates of lbd: those of Options, and those of the certificate
// providers of the bootstrap.
func (d *Doctor) ownCertificates() []doctor.Certificate {
	var out []doctor.Certificate
	if d.options.Certificates != nil {
		out = d.options.Certificates()
	}
	if d.options.Sources.Bootstrap == nil {
		return out
	}
	for name, p := range d.options.Sources.Bootstrap.CertificateProviders {
		identity, _, err := p.Certificates()
		c := doctor.Certificate{Name: fmt.Sprintf("certificate provider %q", name), Err: err}
		if err == nil {
			if len(identity) == 0 || identity[0].Leaf == nil {
				continue
			}
			c.NotBefore, c.NotAfter = identity[0].Leaf.NotBefore, identity[0].Leaf.NotAfter
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b doctor.Certificate) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (d *Doctor) examineTargets(in *ledger.Scope) []doctor.Target {
	var out []doctor.Target
	for _, t := range d.parts.targets.Hosted().XDS() {
		if !in.Target(t.Label) {
			continue
		}
		v := t.View()
		x := doctor.Target{Name: t.Label, Pending: v.Config.Pending, Refusing: t.Unrouted.Refusing.Now()}
		if err := v.Config.Err; err != nil {
			_, x.Error = observe.Unusable(&lb.TargetError{Target: t.Name, Err: err})
		}
		for _, m := range v.Sorted() {
			var missing *resolver.NotFoundError
			if errors.As(m.ClusterConfig().Err, &missing) && in.Cluster(m.Name) {
				x.Unknown = append(x.Unknown, m.Name)
			}
		}
		if r := v.Config.Routing; r != nil && in.All() { // a match may have the names of others
			for _, route := range r.VirtualHost.Routes {
				if route.Unsupported != "" {
					x.Unsupported = append(x.Unsupported, route.Match.Words()+": "+route.Unsupported)
				}
			}
		}
		out = append(out, x)
	}
	return out
}

// suspicious reports whether a cluster should be examined.
func suspicious(c *observe.ClusterSummary) bool {
	return c.Trouble != nil || c.State == connectivity.TransientFailure.String() || c.Breaker != nil && c.Breaker.Open || c.Stale ||
		c.PriorityInUse > 0 || c.Endpoints.TransientFailure > 0 || c.Endpoints.Ejected > 0 || c.Endpoints.Total == c.Endpoints.Unhealthy
}

// unhashed reports whether a cluster whose policy needs hash keys had picks without one in the last minutes.
func (d *Doctor) unhashed(cluster string) bool {
	m, err := d.parts.targets.Find(cluster, "")
	if err != nil {
		return false
	}
	now := time.Now()
	at := m.SampleUnhashed(now)
	return at != nil && now.Sub(*at) < doctor.UnhashedAge
}

// find returns a cluster in the tree of a target, or in any, with its state.
func (d *Doctor) find(ctx context.Context, name, target string) (m *ledger.Cluster, state *observe.ClusterState, err error) {
	if m, err = d.parts.targets.Find(name, target); err == nil {
		state, err = d.parts.State.Cluster(ctx, name, target, true)
	}
	return m, state, err
}

func (d *Doctor) examineCluster(ctx context.Context, name string, in *ledger.Scope) *doctor.Cluster {
	out := &doctor.Cluster{Name: name}
	m, state, err := d.find(ctx, name, "")
	if err != nil {
		out.Err = err
		return out
	}
	if trouble := state.Trouble; trouble != nil && trouble.Target != m.Target.Label { // in another tree
		if other, is, err := d.find(ctx, name, trouble.Target); err == nil {
			is.Trouble = trouble
			m, state = other, is
		}
	}
	out.State = state.Within(in)
	cc := m.ClusterConfig()
	out.ConfigErr = cc.Err
	for leaf, part := range m.Config.Leaves(name) {
		out.Parts = append(out.Parts, partOf(leaf, part))
	}
	out.Holders = map[string][]ledger.Holder{}
	for _, leaf := range m.Leaves {
		out.Holders[leaf.Cluster.Name] = leaf.Totals.Leases.LargestNow(time.Now())
	}
	out.Picks, out.Unhashed = d.samples.of(m, time.Now()), d.unhashed(name)
	return out
}

func partOf(name string, cc *resource.ClusterConfig) doctor.Part {
	out := doctor.Part{Name: name, Err: cc.Err, AssignmentErr: cc.AssignmentErr, Pending: cc.Pending, Source: cc.AssignmentFrom.Source.String()}
	c, a := cc.Source()
	if c != nil {
		if c.Type == resource.ClusterLogicalDNS {
			out.Host = c.DNSHostname
		} else {
			out.Assignment = c.AssignmentName()
		}
	}
	if out.Assigned = a != nil; out.Assigned {
		for _, l := range a.Localities {
			out.Endpoints += len(l.Endpoints)
		}
		out.Usable, out.LeftOut = a.Usable(), a.LeftOut
	}
	return out
}

// maxSimilar is the maximum number of similar names.
const maxSimilar = 3

// similar returns the names of clusters that are spelled like a name, or that are it with or without a
// prefix, such as prod/.
func similar(name string, among []observe.ClusterSummary) []string {
	var out []string
	for i := range among {
		n := among[i].Name
		if strings.EqualFold(n, name) || isPart(n, name) || isPart(name, n) || len(name) > 3 && text.Edits(n, name, 3) <= min(2, len(name)/4) {
			out = append(out, n)
		}
	}
	return out[:min(len(out), maxSimilar)]
}

// isPart reports whether a name ends with another one, after a separator.
func isPart(of, end string) bool {
	prefix, ok := strings.CutSuffix(of, end)
	return ok && strings.TrimRight(prefix, "/.:_-|") != prefix
}
