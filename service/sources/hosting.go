package sources

import (
	"context"
	"slices"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// hostedType is the store's type of the targets that are hosted by name. Its
// entries are no xDS resources: no snapshot has them, or takes them away.
const hostedType resource.Type = "Target"

// HostRequest is about an xds target that is hosted by name.
type HostRequest struct {
	// Target is what TargetName takes.
	Target       string
	DryRun       bool
	Precondition Precondition
	From         string
}

// HostTarget hosts an xds target, also after a restart. When it returns, that is
// durable and picks find the target: they wait, or are refused, while there is no
// Listener for it.
func (s *Sources) HostTarget(ctx context.Context, r *HostRequest) (*PushResult, error) {
	c, key, err := hostingChange(r)
	if err != nil {
		return nil, err
	}
	item := resource.Item{Key: key, Raw: []byte(key.Name)}
	c.res.Hash = hash(item.Raw)
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		_, err := put(tx, item, c.res)
		return err
	}
	return s.change(ctx, c)
}

// DropTarget takes back what HostTarget did. It fails with UnknownTarget where
// nobody hosts the target by name; where something else does, it says what.
func (s *Sources) DropTarget(ctx context.Context, r *HostRequest) (*PushResult, error) {
	c, key, err := hostingChange(r)
	if err != nil {
		return nil, err
	}
	c.run = func(tx *store.Tx) error {
		others := s.hostedElsewhere(key.Name, tx.Get)
		if tx.Delete(key) {
			c.res.Changes = append(c.res.Changes, difference.Change{Resource: key.String(), Change: "removed"})
			for _, h := range others {
				c.res.Warnings = append(c.res.Warnings, fault.Problem{Resource: key.String(), Reason: "is hosted all the same: " + h.Holds()})
			}
			return nil
		}
		if len(others) == 0 {
			return ledger.UnknownTarget(key.Name)
		}
		e := fault.Errorf(fault.UnknownTarget, "%s was not hosted by its name, so there is nothing to take back: %s", key.Name, others[0].Holds())
		e.Target = key.Name
		return e
	}
	return s.change(ctx, c)
}

// hostingChange is a change of what is hosted by name, and the store's key of it.
func hostingChange(r *HostRequest) (*change, resource.Key, error) {
	name, err := ledger.TargetName(r.Target)
	if err != nil {
		return nil, resource.Key{}, err
	}
	key := resource.Key{Type: hostedType, Name: name}
	return &change{
		target: name, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
		res: &PushResult{Changes: []difference.Change{}, Warnings: []fault.Problem{}},
	}, key, nil
}

// Hosts returns a function that lists all that host a target.
func (s *Sources) Hosts() (func(target string) []observe.Host, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	get := st.Snapshot().Get
	return func(name string) []observe.Host {
		hosts := s.hostedElsewhere(name, get)
		if _, ok := get(resource.Key{Type: hostedType, Name: name}); ok {
			hosts = append(hosts, observe.HostAPI)
		}
		return hosts
	}, nil
}

// hostedElsewhere are those but HostTarget.
func (s *Sources) hostedElsewhere(name string, get func(resource.Key) (store.Entry, bool)) []observe.Host {
	hosts := []observe.Host{}
	if slices.Contains(s.options.Targets, name) {
		hosts = append(hosts, observe.HostFlag)
	}
	listener := resource.Key{Type: resource.TypeListener, Name: ledger.TargetKey(name)}
	if _, ok := get(listener); ok {
		hosts = append(hosts, observe.HostPush)
	}
	if set := s.files.Load(); set != nil {
		if _, ok := set.Resources[listener]; ok {
			hosts = append(hosts, observe.HostFile)
		}
	}
	return hosts
}

// hosting is whether a target is hosted by name.
type hosting struct {
	name string
	on   bool
}

// host tells the resolver. It is called under s.resolving.
func (s *Sources) host(h hosting) []resolver.Change {
	switch {
	case h.on:
		return s.resolver.Host(h.name)
	case slices.Contains(s.options.Targets, h.name):
		return nil
	default:
		return s.resolver.Unhost(h.name)
	}
}

// warnOfTargets logs the targets of --target that have no Listener, where only a
// push or a file can bring one.
func (s *Sources) warnOfTargets(get func(resource.Key) (store.Entry, bool)) {
	if s.options.Bootstrap != nil {
		return
	}
	for _, name := range s.options.Targets {
		others := slices.DeleteFunc(s.hostedElsewhere(name, get), func(h observe.Host) bool { return h == observe.HostFlag })
		if len(others) == 0 {
			s.options.Logger.Warn("--target has no Listener: there is no bootstrap, and neither a push nor a resource file has it; its picks are refused until one does",
				"target", name, "listener", ledger.TargetKey(name))
		}
	}
}
