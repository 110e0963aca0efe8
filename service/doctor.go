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

// Dialer connects to endpoints for reports. [lb.Dialer] is one.
type Dialer interface {
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

// AddCertificates registers a function that returns certificates of lbd, for reports. It must not block.
func (s *Service) AddCertificates(source func() []doctor.Certificate) {
	s.certificates.mu.Lock()
	defer s.certificates.mu.Unlock()
	s.certificates.sources = append(s.certificates.sources, source)
}

// certificateSources are the functions of AddCertificates.
type certificateSources struct {
	mu      sync.Mutex // guards the rest
	sources []func() []doctor.Certificate
}

// Attempts connects to the endpoints of the cluster of an examination, if it should, for at most 5 s.
// skipped says why it does not connect to some.
func (s *Service) Attempts(ctx context.Context, e *Examination) (out []doctor.Attempt, skipped string) {
	if e.Cluster == "" || !e.Dial {
		return nil, ""
	}
	if s.options.Dialer == nil {
		return nil, "this daemon connects to no endpoints"
	}
	m, err := s.targets.Find(e.Cluster, "")
	if err != nil {
		return nil, ""
	}
	var all []lb.Attempt
	more := 0
	seen := make(map[string]bool)
	for _, cc := range m.Config.Leaves(m.Name) {
		mode := s.connectMode(cc)
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
	return s.tryAll(ctx, all), skipped
}

func (s *Service) connectMode(cc *resource.ClusterConfig) resource.ConnectMode {
	if cc.Cluster == nil {
		return resource.ConnectNone
	}
	if cc.Cluster.Connect == resource.ConnectDefault {
		return s.options.ConnectMode
	}
	return cc.Cluster.Connect
}

// tryAll makes connections, some at a time.
func (s *Service) tryAll(ctx context.Context, all []lb.Attempt) []doctor.Attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptsTimeout)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
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
			if c, a.Err = s.options.Dialer.Try(ctx, all[i], attemptTimeout); c != nil {
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
func (s *Service) Examine(ctx context.Context, e *Examination, tried []doctor.Attempt, notTried string) *doctor.Report {
	d := s.examineDaemon(ctx, e)
	var clusters []*doctor.Cluster
	if e.Cluster != "" {
		clusters = append(clusters, s.examineCluster(ctx, e.Cluster, e.Scope))
		clusters[0].Attempts, clusters[0].NotTried = tried, notTried
		if clusters[0].State == nil {
			clusters[0].Similar = similar(e.Cluster, d.Clusters)
		}
	} else {
		drops := s.dropping()
		for i := range d.Clusters {
			if !suspicious(&d.Clusters[i]) && !drops[d.Clusters[i].Name] {
				continue
			}
			if len(clusters) == doctor.MaxClusters {
				d.NotExamined++
				continue
			}
			clusters = append(clusters, s.examineCluster(ctx, d.Clusters[i].Name, e.Scope))
		}
	}
	return doctor.Examine(d, clusters, e.Cluster)
}

func (s *Service) examineDaemon(ctx context.Context, e *Examination) *doctor.Daemon {
	d := &doctor.Daemon{
		Now: time.Now(), State: s.Daemon(e.Scope), Caller: e.Caller, ClockStep: s.clockStep(),
		XDS: s.XDS(sources.XDSFilter{Scope: e.Scope}), Files: s.Files().Within(e.Scope), Fleet: s.Fleet(ctx, e.Scope),
		Targets: s.examineTargets(e.Scope), DescriptorLimit: overload.DescriptorLimit(),
	}
	d.Descriptors, d.DescriptorErr = overload.OpenDescriptors()
	d.Store, d.StoreErr = s.Store()
	d.Covered = s.AllCovered(e.Scope)
	if list, err := s.OverlayStates("", e.Scope); err == nil { // else StoreErr says why
		d.Overlays = list
	}
	for _, c := range s.Clusters() {
		if e.Scope.Cluster(c.Name) {
			d.Clusters = append(d.Clusters, c.Within(e.Scope))
		}
	}
	if e.Scope.All() { // their names have those of files
		d.Certificates = s.ownCertificates()
	}
	return d
}

// clockStep returns by how much the wall clock was set since the start.
func (s *Service) clockStep() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(s.started.Round(0)) - now.Sub(s.started)
}

// ownCertificates returns the certificates of lbd: those of AddCertificates, and those of the
// certificate providers of the bootstrap.
func (s *Service) ownCertificates() []doctor.Certificate {
	var out []doctor.Certificate
	s.certificates.mu.Lock()
	all := slices.Clone(s.certificates.sources)
	s.certificates.mu.Unlock()
	for _, source := range all {
		out = append(out, source()...)
	}
	if s.options.Bootstrap == nil {
		return out
	}
	for name, p := range s.options.Bootstrap.CertificateProviders {
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

func (s *Service) examineTargets(in *ledger.Scope) []doctor.Target {
	var out []doctor.Target
	for _, t := range s.targets.Hosted().XDS() {
		if !in.Target(t.Label) {
			continue
		}
		v := t.View()
		x := doctor.Target{Name: t.Label, Pending: v.Config.Pending}
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
	return c.State == connectivity.TransientFailure.String() || c.Breaker != nil && c.Breaker.Open || c.Stale ||
		c.PriorityInUse > 0 || c.Endpoints.TransientFailure > 0 || c.Endpoints.Ejected > 0 || c.Endpoints.Total == c.Endpoints.Unhealthy
}

// dropping returns the clusters with a category that drops all picks.
func (s *Service) dropping() map[string]bool {
	out := make(map[string]bool)
	s.targets.Hosted().Clusters(func(m *ledger.Cluster, _ []string) {
		for _, leaf := range m.Leaves {
			if a := leaf.Assignment; a != nil && slices.ContainsFunc(a.Drops, func(d resource.Drop) bool { return d.PerMillion >= 1_000_000 }) {
				out[m.Name] = true
			}
		}
	})
	return out
}

func (s *Service) examineCluster(ctx context.Context, name string, in *ledger.Scope) *doctor.Cluster {
	out := &doctor.Cluster{Name: name}
	m, err := s.targets.Find(name, "")
	if err == nil {
		out.State, err = s.Cluster(ctx, name, "", true)
	}
	if err != nil {
		out.Err = err
		return out
	}
	out.State = out.State.Within(in)
	cc := m.ClusterConfig()
	out.ConfigErr = cc.Err
	for leaf, part := range m.Config.Leaves(name) {
		out.Parts = append(out.Parts, partOf(leaf, part))
	}
	out.Holders = m.Totals.Leases.LargestNow(time.Now())
	out.Picks = s.samples.of(m, time.Now())
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
		out.Usable = a.Usable()
	}
	return out
}

// maxSimilar is the maximum number of similar names.
const maxSimilar = 3

// similar returns the names of clusters that are spelled like a name.
func similar(name string, among []observe.ClusterSummary) []string {
	var out []string
	for i := range among {
		if n := among[i].Name; len(out) < maxSimilar && strings.EqualFold(n, name) || len(name) > 3 && distance(n, name) <= min(2, len(name)/4) {
			out = append(out, n)
		}
	}
	return out[:min(len(out), maxSimilar)]
}

// distance returns how many letters differ between two names, 3 for many.
func distance(a, b string) int {
	const many = 3
	if d := len(a) - len(b); d >= many || d <= -many {
		return many
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], many)
}
