package sources

import (
	"context"
	"slices"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// HostTarget hosts an xds target, also after a restart. target is a name as
// [ledger.TargetName] takes it. When HostTarget returns, that is
// durable and picks find the target: they wait, or are refused, while there is no
// Listener for it.
func (p *pushes) HostTarget(ctx context.Context, target string, o ChangeOptions) (*PushResult, error) {
	c, key, err := hostingChange(target, o)
	if err != nil {
		return nil, err
	}
	item := resource.Item{Key: key, Raw: []byte(key.Name)}
	c.res.Hash = hash(item.Raw)
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		return p.put(tx, c, item)
	}
	return p.apply(ctx, c)
}

// DropTarget undoes HostTarget. It fails with UnknownTarget if the target is not hosted by
// its name; if something else hosts it, the error says what.
func (p *pushes) DropTarget(ctx context.Context, target string, o ChangeOptions) (*PushResult, error) {
	c, key, err := hostingChange(target, o)
	if err != nil {
		return nil, err
	}
	c.run = func(tx *store.Tx) error {
		others := p.hostedElsewhere(key.Name, tx.Get)
		if p.remove(tx, c, key) {
			for _, h := range others {
				c.res.Warnings = append(c.res.Warnings, fault.Problem{Resource: key.String(), Reason: "is still hosted: " + h.Holds()})
			}
			return nil
		}
		if len(others) == 0 {
			return ledger.UnknownTarget(key.Name)
		}
		return fault.Errorf(fault.UnknownTarget, "%s is not hosted by its name: %s", key.Name, others[0].Holds()).Of("", key.Name)
	}
	return p.apply(ctx, c)
}

// hostingChange returns a change of the targets hosted by name, and the store's key.
func hostingChange(target string, o ChangeOptions) (*change, resource.Key, error) {
	name, err := ledger.TargetName(target)
	if err != nil {
		return nil, resource.Key{}, err
	}
	key := resource.Key{Type: hostedType, Name: name}
	return &change{options: o, target: name, current: keyed(key), res: &PushResult{}}, key, nil
}

// Hosts returns a function that lists all that host a target.
func (p *pushes) Hosts() (func(target string) []observe.Host, error) {
	st, err := p.open()
	if err != nil {
		return nil, err
	}
	get := st.Snapshot().Get
	return func(name string) []observe.Host {
		hosts := p.hostedElsewhere(name, get)
		if _, ok := get(resource.Key{Type: hostedType, Name: name}); ok {
			hosts = append(hosts, observe.HostAPI)
		}
		return hosts
	}, nil
}

// hostedElsewhere returns what hosts a target, except HostTarget.
func (p *pushes) hostedElsewhere(name string, get getter) []observe.Host {
	hosts := []observe.Host{}
	if slices.Contains(p.Targets, name) {
		hosts = append(hosts, observe.HostFlag)
	}
	listener := resource.Key{Type: resource.TypeListener, Name: ledger.TargetKey(name)}
	if _, ok := get(listener); ok {
		hosts = append(hosts, observe.HostPush)
	}
	if p.files.has(listener) {
		hosts = append(hosts, observe.HostFile)
	}
	return hosts
}

// warnOfTargets logs the targets of --target that have no Listener, if only a push or a
// file can provide one.
func (p *pushes) warnOfTargets(get getter) {
	if p.Bootstrap != nil {
		return
	}
	for _, name := range p.Targets {
		if slices.Equal(p.hostedElsewhere(name, get), []observe.Host{observe.HostFlag}) {
			p.Logger.Warn("--target has no Listener: there is no bootstrap, and no push or resource file has it; its picks are refused until one does",
				"target", name, "listener", ledger.TargetKey(name))
		}
	}
}
