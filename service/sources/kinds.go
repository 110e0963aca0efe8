package sources

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// kind is a kind of stored entries.
type kind struct {
	// propose adds to is what an entry makes of the resolver; nil if nothing. An entry without Raw was removed.
	propose func(p *pushes, is *proposed, e store.Entry)
	// describe says what happens to an entry, which has no Raw where it does not exist; nil if that goes without
	// saying.
	describe func(p *pushes, before, after store.Entry) string
}

// kinds are the kinds of entries. Of another kind, which a newer lbd may have put, an entry is kept as it is.
// Only xDS resources are part of snapshots and can be restored: see isResource.
var kinds = map[resource.Type]kind{
	resource.TypeListener:   {proposeResource, describeResource},
	resource.TypeRoutes:     {proposeResource, describeResource},
	resource.TypeCluster:    {proposeResource, describeResource},
	resource.TypeAssignment: {proposeResource, describeResource},
	overlay.Type:            {proposeOverlay, describeOverlay},
	hostedType:              {propose: proposeTarget},
	registration.Type:       {propose: proposeRenewals},
	changelog.Type:          {},
}

// hostedType is the store's type of the targets that are hosted by name.
const hostedType resource.Type = "Target"

// isResource reports whether an entry of the store is an xDS resource.
func isResource(key resource.Key) bool { return key.Type.URL() != "" }

// UnknownKinds counts the entries of a store by their kinds, of those that this lbd does not know: a newer one has put
// them. They stay as they are, also when a snapshot replaces all resources.
func UnknownKinds(all iter.Seq[store.Entry]) map[resource.Type]int {
	unknown := map[resource.Type]int{}
	for e := range all {
		if _, known := kinds[e.Key.Type]; !known {
			unknown[e.Key.Type]++
		}
	}
	return unknown
}

// keptKinds are the warnings of a snapshot that replaces all resources but these.
func keptKinds(unknown map[resource.Type]int) (all []fault.Problem) {
	for _, kind := range slices.Sorted(maps.Keys(unknown)) {
		all = append(all, fault.Problem{Resource: string(kind), Reason: difference.Count(unknown[kind], "record") + " of the kind " + string(kind) +
			", which a newer lbd has put and this one does not know, stay as they are: they are not part of snapshots here"})
	}
	return all
}

// keptUnreadable are the warnings of a snapshot that replaces all resources, but none that was never read.
func (p *pushes) keptUnreadable() []fault.Problem {
	n := 0
	if p.unreadable != nil {
		n = p.unreadable()
	}
	if n == 0 {
		return nil
	}
	return []fault.Problem{{Resource: "DiscoveryResponse", Reason: difference.Count(n, "record") +
		" in etcd cannot be read here, because a newer lbd wrote them or they are damaged: those that were never read here stay as they are"}}
}

// lostFields is the warning of a change that replaces a resource by one without the fields that this lbd does not
// know. The entry before gets its value.
func (p *pushes) lostFields(c *change, before *store.Entry, after []byte) (warning fault.Problem, lost bool) {
	if !isResource(before.Key) || before.Value != nil || len(c.res.Changes) >= difference.MaxListed {
		return warning, false // it was pushed here, with a warning, or too many are replaced to look at each
	}
	item, warnings, err := p.decoded(*before)
	if err != nil {
		return warning, false
	}
	before.Value = item
	i := slices.IndexFunc(warnings, fault.Problem.UnknownField)
	if i < 0 {
		return warning, false
	}
	// The warnings of the change may be cut off, and those about its text are of fields that are not stored.
	if _, stay, _ := p.decoded(store.Entry{Key: before.Key, Raw: after}); slices.ContainsFunc(stay, fault.Problem.UnknownField) {
		return warning, false
	}
	return fault.Problem{
		Resource: before.Key.String(), Field: warnings[i].Field,
		Reason: "the replaced version has this field, which this lbd does not know, and the new one does not: it is lost; if a newer lbd has put it, push to that one",
	}, true
}

// getter returns an entry of a store, and whether there is one.
type getter func(resource.Key) (store.Entry, bool)

// view is a state of the store: a snapshot, or what a transaction sees.
type view interface {
	// Get returns an entry, and whether there is one.
	Get(key resource.Key) (store.Entry, bool)
	// Of yields the entries of a type.
	Of(kind resource.Type) iter.Seq[store.Entry]
}

// earlier is the state that a transaction finds.
type earlier struct{ *store.Tx }

func (v earlier) Get(key resource.Key) (store.Entry, bool) {
	if e, changed := v.Earlier()[key]; changed {
		if e == nil {
			return store.Entry{}, false
		}
		return *e, true
	}
	return v.Base().Get(key)
}

func (v earlier) Of(kind resource.Type) iter.Seq[store.Entry] {
	return v.Base().OfWith(kind, v.Earlier())
}

// proposed is what entries of the store make of the resolver and of the registered endpoints.
type proposed struct {
	resolver.Proposal

	renewals []store.Entry
	// warnings are about resources that this daemon did not push, by resource.
	warnings []fault.Problem
}

// propose returns what the entries of some keys are in a state of the store.
func (p *pushes) propose(v view, keys []resource.Key) *proposed {
	is := &proposed{Proposal: resolver.Proposal{
		From: resource.SourcePush, Updates: make([]resource.Update, 0, len(keys)),
		Overlays: map[string][]*resource.Overlay{}, Hosted: map[string]bool{},
	}}
	for _, key := range keys {
		e, _ := v.Get(key)
		e.Key = key
		if of := kinds[key.Type]; of.propose != nil {
			of.propose(p, is, e)
		}
	}
	if len(is.Overlays) > 0 {
		for _, o := range overlays.Of(v.Of(overlay.Type), "", time.Now()) {
			if list, changed := is.Overlays[o.Cluster]; changed {
				is.Overlays[o.Cluster] = append(list, o)
			}
		}
	}
	return is
}

func proposeResource(p *pushes, is *proposed, e store.Entry) {
	u := resource.Update{Item: resource.Item{Key: e.Key}}
	if e.Raw != nil {
		var warnings []decode.Problem
		u.Item, warnings, u.Err = p.decoded(e)
		if u.Updated = e.Updated; u.Err != nil {
			u.Raw = nil
		}
		is.warnings = append(is.warnings, warnings...)
	}
	is.Updates = append(is.Updates, u)
}

func proposeOverlay(p *pushes, is *proposed, e store.Entry) {
	is.Overlays[overlay.ClusterOf(e.Key)] = nil
	if _, err := overlays.Decode(e); e.Raw != nil && err != nil {
		p.Logger.Warn("an overlay has no effect on this daemon", "error", err)
	}
}

func proposeTarget(p *pushes, is *proposed, e store.Entry) {
	is.Hosted[e.Key.Name] = e.Raw != nil || slices.Contains(p.Targets, e.Key.Name)
}

func proposeRenewals(_ *pushes, is *proposed, e store.Entry) {
	if e.Raw != nil && e.Key != registration.Joined {
		is.renewals = append(is.renewals, e)
	}
}

func describeResource(p *pushes, before, after store.Entry) string {
	return difference.Describe(p.item(before), p.item(after))
}

func describeOverlay(_ *pushes, before, after store.Entry) string {
	if o, err := overlays.Decode(after); after.Raw != nil && err == nil {
		return overlays.Says(o)
	}
	says := "was removed"
	if o, err := overlays.Decode(before); err == nil {
		if o.Expired(time.Now()) {
			says = "it has expired"
		}
		says = overlay.Describe(o) + ": " + says
	}
	return says
}

// item returns a stored resource with its value, which it does not have if it is invalid or was removed.
func (o *Options) item(e store.Entry) resource.Item {
	if e.Raw == nil {
		return resource.Item{Key: e.Key}
	}
	i, _, _ := o.decoded(e)
	return i
}

// decoded returns an entry with its value. One that this daemon has pushed has it already.
func (o *Options) decoded(e store.Entry) (resource.Item, []decode.Problem, error) {
	if i, ok := e.Value.(resource.Item); ok {
		return i, nil, nil
	}
	d := o.decoding(Protobuf)
	d.Stored, d.Name = true, e.Key.Name
	return decode.Item(resource.Item{Key: e.Key, Raw: e.Raw}, d)
}
