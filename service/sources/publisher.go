package sources

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// publisher owns the resolver. Every source changes resources through it, one change at
// a time, and it publishes the configs that result to the ledger's targets.
type publisher struct {
	// Fixed after New.
	Options
	dns *resolver.DNS
	// subscribe is called after each change of the resolver, with the lock held: it
	// subscribes to the resources that the targets need now.
	subscribe func(*resolver.Resolver)
	// updated is called after that with the published configs, and what Waiting of the resolver returns.
	updated func(changes []resolver.TargetConfig, waiting map[string][]resource.Key)
	// confirm is called with the published configs, without the lock.
	confirm func([]resolver.TargetConfig)
	// index returns the index of the store that picks use.
	index    func() uint64
	observed changelog.Observed

	// deciding is held from the evaluation of a change of files until it is published, while a change of the store
	// is evaluated, and while a commit is published: no two decisions are about the same state.
	deciding sync.Mutex

	mu       sync.Mutex // guards resolver, and the order in which its configs are published
	resolver *resolver.Resolver
}

func newPublisher(o Options) *publisher {
	ro := resolver.Options{Policies: lb.PolicyTraits, Certificates: o.Bootstrap.Instances()}
	if o.Bootstrap != nil {
		ro.Server, ro.ListenerName = true, o.Bootstrap.ListenerName
	}
	p := &publisher{Options: o, resolver: resolver.New(ro)}
	p.dns = resolver.NewDNS(o.Lookup, p.addressesResolved, o.Overload)
	return p
}

// withResolver calls f with the resolver, whose configs f must not change.
func (p *publisher) withResolver(f func(*resolver.Resolver)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.resolver)
}

// update runs f, which changes the resolver, and publishes the configs that f returns.
// The caller must close the ended targets when it holds no lock.
func (p *publisher) update(f func(*resolver.Resolver) []resolver.TargetConfig) (changes []resolver.TargetConfig, ended ledger.Ended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changes = f(p.resolver)
	ended = p.Ledger.Apply(changes)
	p.dns.Want(p.resolver.Hosts())
	p.subscribe(p.resolver)
	p.updated(changes, p.resolver.Waiting())
	p.setAmbientErrors(changes)
	return changes, ended
}

// setAmbientErrors updates the ambient errors of the targets whose config or ambient
// errors changed, which already have their newest configs. Trees and pickers stay as
// they are.
func (p *publisher) setAmbientErrors(changes []resolver.TargetConfig) {
	targets := p.resolver.AmbientChanges()
	for _, c := range changes {
		targets = append(targets, c.Target)
	}
	h := p.Ledger.Hosted()
	for _, name := range targets {
		if t := h.Named(name); t != nil {
			t.SetAmbient(p.resolver.AmbientErrors(name))
		}
	}
}

// notInForce returns the warnings of all such resources.
func (p *publisher) notInForce() (warnings []fault.Problem) {
	p.withResolver(func(r *resolver.Resolver) {
		keys := slices.Concat(slices.Collect(maps.Values(r.Waiting()))...)
		slices.SortFunc(keys, store.CompareKeys)
		for _, key := range slices.Compact(keys) {
			warnings = append(warnings, notInForce(key))
		}
	})
	return warnings
}

// publish makes the changes of a proposal, and then more. It returns the targets with new configs, and the versions of
// the updated resources.
func (p *publisher) publish(is *resolver.Proposal, more ...func(*resolver.Resolver) []resolver.TargetConfig) (affected []string, vs difference.Versions) {
	var covered difference.Versions
	changes := p.updateAndClose(func(r *resolver.Resolver) []resolver.TargetConfig {
		vs = make(difference.Versions, len(is.Updates))
		for i, u := range is.Updates {
			vs[i].Before = r.Value(is.From, u.Target, u.Key)
		}
		changes := r.Accept(is)
		for i, u := range is.Updates {
			vs[i].After = r.Value(is.From, u.Target, u.Key)
		}
		covered = coveredChanges(r, is.From, vs)
		for _, f := range more {
			changes = append(changes, f(r)...)
		}
		return changes
	})
	if e, ok := coveredEvent(covered); ok {
		p.Events.Add(e)
	}
	h := p.Ledger.Hosted()
	for _, c := range changes {
		affected = append(affected, c.Target)
		if t := h.Named(c.Target); t != nil {
			for _, m := range t.View().Sorted() {
				p.Events.BreakerEased(m) // its limit may have changed
			}
		}
	}
	return affected, vs
}

// updateAndClose is update for a caller that holds no lock but deciding.
func (p *publisher) updateAndClose(f func(*resolver.Resolver) []resolver.TargetConfig) []resolver.TargetConfig {
	changes, ended := p.update(f)
	ended.Close()
	p.confirm(changes)
	return changes
}

// addChanges adds an event about the resources that a source other than a push changed.
func (p *publisher) addChanges(source changelog.Source, e observe.Event, vs difference.Versions) {
	changes := vs.Changes()
	if len(changes) == 0 {
		return
	}
	p.observed.Add(changelog.Entry{Index: p.index(), Time: time.Now().UTC(), Source: source, File: e.File}, changes)
	e.Says, e.Changes = difference.Summary(changes), difference.WithoutWords(changes)
	if len(changes) == 1 {
		e.Cluster = clusterOf(changes[0].Key())
	}
	p.Events.Add(e)
}

// clusterOf returns the cluster that an event about a resource is listed with.
func clusterOf(key resource.Key) string {
	if key.Type == Config || key.Type == Endpoints {
		return key.Name
	}
	return ""
}

// addressesResolved publishes the addresses of a DNS name, or why it does not resolve.
func (p *publisher) addressesResolved(host string, addresses []string, err error) {
	if err != nil {
		p.Logger.Warn("name does not resolve", "host", host, "error", err)
	}
	var before, after []string
	_, ended := p.update(func(r *resolver.Resolver) []resolver.TargetConfig {
		before = r.HostAddresses(host)
		changes := r.ApplyHost(host, addresses, err)
		after = r.HostAddresses(host)
		return changes
	})
	ended.Close()
	removed, added := without(before, after), without(after, before)
	var parts []string
	if len(removed) > 0 {
		parts = append(parts, "removed "+difference.Few(removed, maxListedNames))
	}
	if len(added) > 0 {
		parts = append(parts, "added "+difference.Few(added, maxListedNames))
	}
	if parts != nil {
		p.Events.Add(observe.Event{Type: observe.EventDNSChanged, Resource: host, Says: difference.Clip(
			fmt.Sprintf("%s resolves to %d addresses: %s", host, len(after), strings.Join(parts, "; ")), difference.MaxSentence)})
	}
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// maxListedNames limits how many names an event lists.
const maxListedNames = 5
