package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// xdsScheme begins the full name of a target that is found by a Listener.
const xdsScheme = "xds:"

// hostedType is the store's type of the targets that are hosted by name. Its
// entries are no xDS resources: no snapshot has them, or takes them away.
const hostedType resource.Type = "Target"

// targetKey is the name of an xds target without what all such names have in
// common: "orders" of "xds:///orders", "xds:orders" and "orders"; "//traffic/orders"
// of "xds://traffic/orders", whose Listener is of the authority "traffic".
func targetKey(name string) string {
	name = strings.TrimPrefix(name, xdsScheme)
	if after, ok := strings.CutPrefix(name, "///"); ok {
		return after
	}
	return name
}

// TargetName is the full name of an xds target: "xds:///orders" of "orders", as
// gRPC names it. One that has an authority keeps it: "xds://traffic/orders". It
// fails with InvalidArgument where that can be no target.
func TargetName(name string) (string, error) {
	key := targetKey(name)
	full := xdsScheme + "///" + key
	wrong := ""
	switch authority, ok := strings.CutPrefix(key, "//"); {
	case key == "":
		wrong = "names nothing"
	case ok:
		full = xdsScheme + key
		if host, rest, _ := strings.Cut(authority, "/"); host == "" || rest == "" {
			wrong = "has no authority and name after its two slashes"
		}
	case key[0] == '/':
		wrong = "has a name that begins with a slash"
	}
	switch {
	case wrong != "":
	case len(full) > resource.MaxNameBytes:
		wrong = fmt.Sprintf("has more than %d bytes", resource.MaxNameBytes)
	case !utf8.ValidString(full) || strings.ContainsFunc(full, func(r rune) bool { return !unicode.IsPrint(r) }):
		wrong = "holds what cannot be printed"
	}
	if wrong != "" {
		e := errorf(InvalidArgument, "target %q %s: it is to be xds:///NAME, or NAME alone", name, wrong)
		e.Target = name
		return "", e
	}
	return full, nil
}

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
func (s *Service) HostTarget(ctx context.Context, r *HostRequest) (*PushResult, error) {
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
func (s *Service) DropTarget(ctx context.Context, r *HostRequest) (*PushResult, error) {
	c, key, err := hostingChange(r)
	if err != nil {
		return nil, err
	}
	c.run = func(tx *store.Tx) error {
		others := s.hostedElsewhere(key.Name, tx.Get)
		if tx.Delete(key) {
			c.res.Changes = append(c.res.Changes, Change{Resource: key.String(), Change: "removed"})
			for _, h := range others {
				c.res.Warnings = append(c.res.Warnings, Problem{Resource: key.String(), Reason: "is hosted all the same: " + h.holds()})
			}
			return nil
		}
		if len(others) == 0 {
			return unknownTarget(key.Name)
		}
		e := errorf(UnknownTarget, "%s was not hosted by its name, so there is nothing to take back: %s", key.Name, others[0].holds())
		e.Target = key.Name
		return e
	}
	return s.change(ctx, c)
}

// hostingChange is a change of what is hosted by name, and the store's key of it.
func hostingChange(r *HostRequest) (*change, resource.Key, error) {
	name, err := TargetName(r.Target)
	if err != nil {
		return nil, resource.Key{}, err
	}
	key := resource.Key{Type: hostedType, Name: name}
	return &change{
		target: name, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
		res: &PushResult{Changes: []Change{}, Warnings: []Problem{}},
	}, key, nil
}

// Host is what hosts a target.
type Host string

// The hosts of a target.
const (
	HostFlag Host = "flag" // --target
	HostAPI  Host = "api"  // HostTarget
	HostPush Host = "push" // a Listener that was pushed
	HostFile Host = "file" // a Listener of the resource directory
)

// holds says what holds the target.
func (h Host) holds() string {
	switch h {
	case HostFlag:
		return "--target hosts it for as long as the daemon runs"
	case HostPush:
		return "a Listener that was pushed hosts it"
	case HostFile:
		return "a Listener of the resource directory hosts it"
	default:
		return "it is hosted by its name"
	}
}

// hosts are all that host a target.
func (s *Service) hosts(name string, get func(resource.Key) (store.Entry, bool)) []Host {
	hosts := s.hostedElsewhere(name, get)
	if _, ok := get(resource.Key{Type: hostedType, Name: name}); ok {
		hosts = append(hosts, HostAPI)
	}
	return hosts
}

// hostedElsewhere are those but HostTarget.
func (s *Service) hostedElsewhere(name string, get func(resource.Key) (store.Entry, bool)) []Host {
	hosts := []Host{}
	if slices.Contains(s.options.Targets, name) {
		hosts = append(hosts, HostFlag)
	}
	listener := resource.Key{Type: resource.TypeListener, Name: targetKey(name)}
	if _, ok := get(listener); ok {
		hosts = append(hosts, HostPush)
	}
	if set := s.files.Load(); set != nil {
		if _, ok := set.Resources[listener]; ok {
			hosts = append(hosts, HostFile)
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
func (s *Service) host(h hosting) []resolver.Change {
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
func (s *Service) warnOfTargets(get func(resource.Key) (store.Entry, bool)) {
	if s.options.Bootstrap != nil {
		return
	}
	for _, name := range s.options.Targets {
		others := slices.DeleteFunc(s.hostedElsewhere(name, get), func(h Host) bool { return h == HostFlag })
		if len(others) == 0 {
			s.options.Logger.Warn("--target has no Listener: there is no bootstrap, and neither a push nor a resource file has it; its picks are refused until one does",
				"target", name, "listener", targetKey(name))
		}
	}
}
