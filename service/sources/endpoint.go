package sources

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// endpointChanges changes single endpoints of pushed assignments.
type endpointChanges struct{ pushes *pushes }

// EndpointEdit is what a change sets of one endpoint.
type EndpointEdit = decode.EndpointEdit

// Locality names a locality.
type Locality = resource.Locality

// EndpointRequest changes one endpoint of a pushed assignment.
type EndpointRequest struct {
	Options ChangeOptions // whose precondition is about the assignment
	// Cluster is the name of the assignment, and Address host:port of the endpoint.
	Cluster, Address string
	// Edit is what SetEndpoint sets.
	Edit EndpointEdit
}

// SetEndpoint adds an endpoint to the pushed assignment of a cluster, or changes it. All else of the
// assignment stays as it is, also if others change it at the same time. A cluster without endpoints gets an
// assignment with this one. It fails with Blocked if the endpoints of the cluster come from another
// source. New of the result is about the endpoint.
//
// With a ttl, the endpoint is registered: it is removed unless it is renewed. The same request again renews
// it; that stores nothing.
func (c endpointChanges) SetEndpoint(ctx context.Context, r *EndpointRequest) (*PushResult, error) {
	p, ttl := c.pushes, r.Edit.TTL
	if ttl == nil || *ttl <= 0 || r.Options.DryRun {
		return c.apply(ctx, r, r.set)
	}
	was, registered := p.registered.Get(r.Cluster, r.Address)
	if registered && !r.Options.Precondition.required() && isSet(&r.Edit, &was) {
		if res := c.renewed(r); res != nil {
			return res, nil
		}
	}
	res, err := c.apply(ctx, r, r.set)
	if err == nil && registered && was.TTL == *ttl {
		p.registered.Renew(r.Cluster, r.Address, time.Now()) // else it has a full ttl already
	}
	return res, err
}

func (r *EndpointRequest) set(e store.Entry) (after []byte, added bool, err error) {
	return decode.SetEndpoint(e.Raw, canonicalHosts(e), r.Cluster, r.Address, &r.Edit)
}

// isSet reports whether a registered endpoint has what an edit would set. It may report false also if it has.
func isSet(edit *EndpointEdit, is *registration.Endpoint) bool {
	return (edit.TTL == nil || *edit.TTL == is.TTL) &&
		(edit.Weight == nil || *edit.Weight == is.Weight) &&
		(edit.Health == nil || *edit.Health == is.Health.String()) &&
		(edit.Hostname == nil || *edit.Hostname == is.Hostname) &&
		(edit.Priority == nil || *edit.Priority == is.Priority) &&
		(edit.Locality == nil || *edit.Locality == is.Locality)
}

// renewed renews a registered endpoint, which the request does not change. It returns nil if it cannot.
func (c endpointChanges) renewed(r *EndpointRequest) *PushResult {
	p := c.pushes
	if _, err := c.RenewEndpoint(r.Cluster, r.Address); err != nil {
		return nil // the change says why, or registers what was removed just now
	}
	res := &PushResult{Index: p.served.now(), Hash: p.registered.Hash(r.Cluster, hash)}
	if t := p.Ledger.Hosted().Named(resolver.Target(r.Cluster)); t != nil {
		res.Generation = t.Channel.Generation()
	}
	return res
}

// Registration returns the ttl of a registered endpoint, and when it is removed without another renewal; 0 for
// others.
func (c endpointChanges) Registration(cluster, address string) (ttl time.Duration, due time.Time) {
	e, ok := c.pushes.registered.Get(cluster, address)
	if !ok {
		return 0, time.Time{}
	}
	return e.TTL, e.Due
}

// RenewEndpoint renews a registered endpoint, and returns when it is removed without another renewal. It
// stores nothing. It fails with UnknownEndpoint if there is none.
func (c endpointChanges) RenewEndpoint(cluster, address string) (due time.Time, err error) {
	p := c.pushes
	if err := p.Unread(); err != nil {
		return time.Time{}, err
	}
	due, kept, ok := p.registered.Renew(cluster, address, time.Now())
	if !ok {
		return due, fault.Errorf(fault.UnknownEndpoint, "%s is no registered endpoint of %q: register it again", address, cluster).Of(cluster, "")
	}
	st, err := p.open()
	if err == nil && p.SharedStore {
		err = st.Err() // the other daemons do not hear of the renewal
	}
	if err == nil && !kept {
		return due, fault.Errorf(fault.StoreUnavailable, "renewals of %s could not be written in time, and other daemons may have removed it: "+
			"renew it at another one, or try again", address).Of(cluster, "").Retry(time.Second)
	}
	if err != nil {
		return due, storeError(err)
	}
	return due, nil
}

// RemoveEndpoint removes an endpoint from the pushed assignment of a cluster. It fails with
// UnknownEndpoint if there is none, with UnknownCluster if there is no assignment, and with Blocked
// if the endpoints of the cluster come from another source.
func (c endpointChanges) RemoveEndpoint(ctx context.Context, r *EndpointRequest) (*PushResult, error) {
	return c.apply(ctx, r, func(e store.Entry) (after []byte, added bool, err error) {
		if e.Raw == nil {
			return nil, false, notPushed(r.key())
		}
		after, removed, err := decode.RemoveEndpoints(e.Raw, canonicalHosts(e), r.Address)
		if err == nil && removed == 0 {
			err = fault.Errorf(fault.UnknownEndpoint, "%s has no endpoint %s", r.key(), r.Address).Of(r.Cluster, "")
		}
		return after, false, err
	})
}

func (r *EndpointRequest) key() resource.Key {
	return resource.Key{Type: Endpoints, Name: r.Cluster}
}

// edit returns an assignment after a change, and whether the endpoint is new. The entry has no Raw if there is no
// assignment.
type edit func(store.Entry) (after []byte, added bool, err error)

// canonicalHosts reports whether the addresses in an entry are known to have their canonical spelling. A decoder does
// not look at those of localities that it leaves out.
func canonicalHosts(e store.Entry) bool {
	i, ok := e.Value.(resource.Item)
	return ok && i.Assignment != nil && i.Assignment.LeftOut == 0 && !i.Respelled
}

// editedEndpoint is the result of an edit.
type editedEndpoint struct {
	before []byte
	*decode.Decoded
	added bool
}

func (c endpointChanges) apply(ctx context.Context, r *EndpointRequest, by edit) (*PushResult, error) {
	p, key := c.pushes, r.key()
	ch := &change{options: r.Options, cluster: r.Cluster, current: keyed(key), res: &PushResult{}}
	ready, err := c.prepare(ctx, r, by)
	if err != nil {
		p.report(ch, err)
		return nil, err
	}
	ch.run = func(tx *store.Tx) error {
		before, exists := tx.Get(key)
		if !exists {
			if err := c.otherSource(tx, r.Cluster); err != nil {
				return err
			}
		}
		done := ready
		if done == nil || !bytes.Equal(done.before, before.Raw) {
			again, err := c.edited(r, before, by, letOthersRun)
			if err != nil {
				return err
			}
			done = again
		}
		ch.res.New, ch.res.Hash = done.added, hash(done.Raw)
		ch.res.Warnings, ch.res.Notes = c.pushes.judged(done.Warnings, nil), done.Notes
		return p.put(tx, ch, done.Item)
	}
	return p.apply(ctx, ch)
}

// prepare makes the change of the assignment as it is now, so that other changes do not wait for that. It
// returns nil if the change is to be made, or refused, by the transaction. It waits for its turn.
func (c endpointChanges) prepare(ctx context.Context, r *EndpointRequest, by edit) (*editedEndpoint, error) {
	st, err := c.pushes.open()
	if err != nil {
		return nil, err
	}
	now, exists := st.Snapshot().Get(r.key())
	if !exists {
		return nil, nil //nolint:nilnil // documented above
	}
	turn, err := c.pushes.Turns.BeginSized(ctx, overload.PushWork, r.Options.Caller, len(now.Raw))
	if err != nil {
		return nil, fault.FromContext(err)
	}
	defer turn.End()
	done, err := c.edited(r, now, by, turn.Pause)
	if err != nil {
		return nil, nil //nolint:nilnil // the assignment may be another one in the transaction, which reports it
	}
	return done, nil
}

// edited makes the change, and validates the assignment.
func (c endpointChanges) edited(r *EndpointRequest, before store.Entry, by edit, pause func() error) (*editedEndpoint, error) {
	after, added, err := by(before)
	if wrong, ok := errors.AsType[*decode.EndpointError](err); ok {
		return nil, fault.Errorf(fault.InvalidArgument, "%v", wrong).Of(r.Cluster, "")
	}
	if err != nil {
		return nil, err
	}
	o := c.pushes.decoding(Protobuf)
	o.Name, o.Lenient, o.Pause, o.Previous = r.Cluster, true, pause, c.pushes.previous
	d, err := decode.One(Endpoints, after, o)
	if err != nil {
		return nil, decodeError(r.key().String(), r.Cluster, err)
	}
	return &editedEndpoint{before: before.Raw, Decoded: d, added: added}, nil
}

// otherSource returns an error if a cluster without a pushed assignment has endpoints: a push of one
// would hide them. Whether the cluster was pushed is as of the transaction: what others have pushed may not be in use
// yet.
func (c endpointChanges) otherSource(tx *store.Tx, cluster string) error {
	refused := func(from, advice string) error {
		return block(cluster, "the endpoints of %q come from %s, not from a push: %s", cluster, from, advice)
	}
	const push = ", or push all endpoints to /v1/clusters/NAME/endpoints, which then take precedence"
	if c.pushes.files.has(resource.Key{Type: Endpoints, Name: cluster}) {
		return refused("a resource file", "change the file"+push)
	}
	hosted := c.pushes.Ledger.Hosted()
	e, pushed := tx.Get(resource.Key{Type: Config, Name: cluster})
	is := c.pushes.item(e).Cluster
	if m := hosted.Cluster(cluster); !pushed && m != nil && m.ClusterConfig().ClusterFrom.Source != resource.SourcePush {
		is = m.ClusterConfig().Cluster
	}
	switch {
	case is == nil:
	case is.Type == resource.ClusterAggregate:
		return refused("the clusters that it consists of", "change the endpoints of one of these")
	case is.Type == resource.ClusterLogicalDNS:
		return refused("DNS", "change what "+is.DNSHostname+" resolves to")
	case is.AssignmentName() != cluster:
		return refused("the assignment "+is.AssignmentName(), "change that one")
	}
	for t := range hosted.All() {
		if v := t.View(); v != nil && v.Config != nil && serves(v.Config, cluster) {
			return refused("a management server", "change them there"+push)
		}
	}
	return nil
}

// serves reports whether a cluster of a config uses an assignment of a management server.
func serves(c *resource.Config, assignment string) bool {
	for name, cc := range c.Clusters.All() {
		if cc.Cluster != nil {
			name = cc.Cluster.AssignmentName()
		}
		from := cc.AssignmentFrom.Source
		if name == assignment && cc.Assignment != nil && (from == resource.SourceADS || from == resource.SourceCache) {
			return true
		}
	}
	return false
}
