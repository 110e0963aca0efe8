package service

import (
	"errors"
	"strings"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// blocked refuses a pushed resource that leaves a cluster without a usable
// endpoint: an assignment without one, or a configuration that leads a cluster
// that has some now to an assignment with none. tx holds the resource, and all
// of pushed.
func (s *Service) blocked(tx *store.Tx, i resource.Item, pushed map[resource.Key]resource.Item) error {
	name := i.Key.Name
	if i.Assignment != nil {
		if i.Assignment.Usable() > 0 {
			return nil
		}
		e := errorf(Blocked, "the assignment of %q has no endpoint that picks may reach; allow_empty=true pushes it all the same", name)
		e.Cluster = name
		return e
	}
	if i.Cluster.Type != resource.ClusterEDS {
		return nil // its endpoints are of no assignment that anyone pushes
	}
	m := s.targets.current.Load().member(name)
	if m == nil {
		return nil
	}
	before := m.usable()
	if before == 0 || s.fromServer(tx, i.Cluster.AssignmentName(), pushed) || s.usable(tx, m, i.Cluster.AssignmentName(), pushed) > 0 {
		return nil
	}
	e := errorf(Blocked, "the configuration of %q takes its endpoints from an assignment that has none that picks may reach, where it had %d; allow_empty=true pushes it all the same", name, before)
	e.Cluster = name
	return e
}

// misspelled returns err, the refusal of a resource that leaves a cluster without a
// usable endpoint. If warnings name unknown fields of the resource, which may be why,
// the refusal names them in the place of allow_empty. place finds their lines.
func misspelled(err error, warnings []Problem, place func([]Problem)) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != Blocked {
		return err
	}
	var unknown []Problem
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

// fromServer reports whether only the management server may have an assignment:
// what that holds nobody can tell now.
func (s *Service) fromServer(tx *store.Tx, assignment string, pushed map[resource.Key]resource.Item) bool {
	if s.followed == nil {
		return false
	}
	key := resource.Key{Type: Endpoints, Name: assignment}
	if _, ok := pushed[key]; ok {
		return false
	}
	if set := s.files.Load(); set != nil && set.Resources[key].Assignment != nil {
		return false
	}
	_, ok := tx.Get(key)
	return !ok
}

// usable counts the endpoints that picks may reach of the assignment that a
// cluster will have: of what is pushed, else of what a file has. The store's
// writer calls it, so it decodes only what nobody else has.
func (s *Service) usable(tx *store.Tx, m *member, assignment string, pushed map[resource.Key]resource.Item) int {
	key := resource.Key{Type: Endpoints, Name: assignment}
	if i, ok := pushed[key]; ok {
		return i.Assignment.Usable()
	}
	e, ok := tx.Get(key)
	if !ok {
		if set := s.files.Load(); set != nil && set.Resources[key].Assignment != nil {
			return set.Resources[key].Assignment.Usable()
		}
		return 0
	}
	cc := m.clusterConfig()
	if from := cc.AssignmentFrom; cc.Assignment != nil && cc.Assignment.Name == assignment &&
		from.Source == resource.SourcePush && from.Updated.Equal(e.Updated) {
		return cc.Assignment.Usable()
	}
	d, err := resource.DecodeAssignment(e.Raw, resource.Options{Format: Protobuf, Stored: true, Name: assignment, Custom: lb.Foreign})
	if err != nil {
		return 0
	}
	return d.Value.Usable()
}
