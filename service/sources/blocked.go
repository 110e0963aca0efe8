package sources

import (
	"bytes"
	"errors"
	"strings"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// blocked refuses a pushed resource that leaves a cluster without a usable
// endpoint: an assignment without one, or a configuration by which a cluster that
// has some now would have none. tx holds the resource, and all of pushed.
func (s *Sources) blocked(tx *store.Tx, i resource.Item, pushed map[resource.Key]resource.Item) error {
	name := i.Key.Name
	if i.Assignment != nil {
		if i.Assignment.Usable() > 0 {
			return nil
		}
		e := fault.Errorf(fault.Blocked, "the assignment of %q has no endpoint that picks may reach; allow_empty=true pushes it all the same", name)
		e.Cluster = name
		return e
	}
	return s.emptied(s.pushView(tx, pushed), name)
}

// emptied refuses a change that takes all usable endpoints from a cluster that has
// some now. after is what there is after the change.
func (s *Sources) emptied(after admission.View, name string) error {
	m := s.targets.Hosted().Cluster(name)
	if m == nil {
		return nil
	}
	guard := s.guard()
	before := m.Usable()
	if before == 0 || !guard.Has(after, name) || !guard.Endpoints(after, name).None() {
		return nil
	}
	e := fault.Errorf(fault.Blocked, "cluster %q would have no endpoint that picks may reach, where it had %d; allow_empty=true pushes it all the same", name, before)
	e.Cluster = name
	return e
}

// guard compares what there is before and after a change.
func (s *Sources) guard() admission.Guard {
	return admission.Guard{Server: s.options.Bootstrap != nil, TLS: s.options.ConnectMode == resource.ConnectTLS}
}

// unsecured refuses a change that takes TLS from the connections of a cluster, unless
// the author asks for that with lbd.connect. tx holds the change, which is of the
// cluster's configuration.
func (s *Sources) unsecured(tx *store.Tx, name string, pushed map[resource.Key]resource.Item) error {
	m := s.targets.Hosted().Cluster(name)
	if m == nil {
		return nil
	}
	why := s.guard().Unsecured(m.ClusterConfig().Cluster, s.pushView(tx, pushed), name)
	if why == "" {
		return nil
	}
	e := fault.Errorf(fault.Blocked, "%s", why)
	e.Cluster = name
	return e
}

// pushView is what there is of resources that people write, once a change holds: what
// it pushes and what was pushed, else what a file has. The store's writer calls it.
func (s *Sources) pushView(tx *store.Tx, pushed map[resource.Key]resource.Item) admission.View {
	return func(key resource.Key) (resource.Item, bool) {
		if i, ok := pushed[key]; ok {
			return i, true
		}
		if e, ok := tx.Get(key); ok {
			return s.decoded(e, isSecured(tx.Get, e)), true
		}
		if set := s.files.Load(); set != nil {
			if r, ok := set.Resources[key]; ok {
				return r.Item, true
			}
			_, rejected := set.Rejected[key]
			return resource.Item{Key: key}, rejected
		}
		return resource.Item{}, false
	}
}

// decoded is an entry with its value: the one that was pushed; of what was stored at the
// start, the one that the trees have.
func (s *Sources) decoded(e store.Entry, secured bool) resource.Item {
	if i, ok := e.Value.(resource.Item); ok {
		return i
	}
	if st, err := s.open(); err == nil {
		if committed, ok := st.Snapshot().Get(e.Key); ok && bytes.Equal(committed.Raw, e.Raw) {
			s.resolving.Lock()
			defer s.resolving.Unlock()
			return s.resolver.Value(resource.SourcePush, "", e.Key)
		}
	}
	return admission.Decode(resource.Item{Key: e.Key, Raw: e.Raw}, decode.Options{
		Origin: decode.ByHand, Format: Protobuf, Stored: true, Secured: secured, Name: e.Key.Name,
		Policies: lb.PolicyConfig, Certificates: s.options.Bootstrap.Instances(),
	})
}

// misspelled returns err, the refusal of a resource that leaves a cluster without a
// usable endpoint. If warnings name unknown fields of the resource, which may be why,
// the refusal names them in the place of allow_empty. place finds their lines.
func misspelled(err error, warnings []fault.Problem, place func([]fault.Problem)) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.Blocked {
		return err
	}
	var unknown []fault.Problem
	for _, w := range warnings {
		of, _, _ := strings.Cut(w.Resource, "/")
		if w.UnknownField() && w.Resource == of+"/"+e.Cluster {
			w.Reason = strings.TrimSuffix(w.Reason, ": ignored")
			unknown = append(unknown, w)
		}
	}
	if unknown == nil {
		return err
	}
	place(unknown)
	e.Detail, _, _ = strings.Cut(e.Detail, "; allow_empty=true")
	e.Detail += "; it has a field that lbd does not know: " + unknown[0].String()
	e.Problems = unknown
	return e
}
