package sources

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// blocked returns an error if a pushed resource leaves a cluster without a usable
// endpoint: an assignment that has none, or a configuration by which a cluster would lose
// all that it has now. tx holds the resource, and all that is pushed with it.
func (p *pushes) blocked(tx *store.Tx, i resource.Item) error {
	name := i.Key.Name
	if i.Assignment == nil {
		return p.emptied(p.written(tx), name)
	}
	if usable := i.Assignment.Usable(); usable > 0 {
		return p.masked(name, i.Assignment, usable)
	}
	return block(name, "the assignment of %q has no usable endpoint; set allow_empty=true to push it anyway", name)
}

// masked returns an error if overlays take all usable endpoints of an assignment out of use, of any cluster
// that it serves.
func (p *pushes) masked(name string, a *resource.Assignment, usable int) error {
	now, err := p.contents()
	if err != nil {
		return err
	}
	last := ""
	for e := range overlays.Entries(now) { // by cluster
		cluster := overlay.ClusterOf(e.Key)
		if cluster == last {
			continue
		}
		last = cluster
		if !p.uses(cluster, name) {
			continue
		}
		list := overlays.Of(overlays.Entries(now), cluster, time.Now())
		if _, after := overlay.Apply(list, nil, a); after.Usable() > 0 {
			continue
		}
		whose := "its overlays take all of them out of use: " + overlay.Describe(list[len(list)-1])
		if cluster != name { // the caller may not see it
			whose = "the overlays of a cluster that uses it take all of them out of use (GET /v1/overlays)"
		}
		return block(name, "the assignment of %q has %d usable endpoints, and %s; set allow_empty=true to push it anyway", name, usable, whose)
	}
	return nil
}

// uses reports whether a cluster has its endpoints from an assignment, or would have if it existed.
func (p *pushes) uses(cluster, assignment string) bool {
	if t := p.Ledger.Hosted().Own(cluster); t != nil {
		if cc := t.View().Config.Clusters.Get(cluster); cc != nil && cc.Cluster != nil {
			return cc.Cluster.Type == resource.ClusterEDS && cc.Cluster.AssignmentName() == assignment
		}
	}
	return cluster == assignment
}

// emptied returns an error if a change takes all usable endpoints from a cluster that
// has some now. after is the state after the change.
func (p *pushes) emptied(after admission.View, name string) error {
	m := p.Ledger.Hosted().Cluster(name)
	if m == nil {
		return nil
	}
	guard, before := p.guard(), m.Usable()
	if before == 0 || !guard.Has(after, name) || !guard.Endpoints(after, name).None() {
		return nil
	}
	return block(name, "cluster %q would have no usable endpoints, where it has %d; set allow_empty=true to push it anyway", name, before)
}

// unsecured returns an error if a change of a cluster's configuration, which tx holds,
// takes TLS from its connections, unless the author requests that with lbd.connect.
func (p *pushes) unsecured(tx *store.Tx, name string) error {
	m := p.Ledger.Hosted().Cluster(name)
	if m == nil {
		return nil
	}
	if why := p.guard().Unsecured(m.ClusterConfig().Cluster, p.written(tx), name); why != "" {
		return block(name, "%s", why)
	}
	return nil
}

func block(cluster, format string, args ...any) error {
	return fault.Errorf(fault.Blocked, format, args...).Of(cluster, "")
}

// written returns a View of the resources that people write, after the change that tx
// holds: a pushed resource hides the one of a file.
func (p *pushes) written(tx *store.Tx) admission.View {
	return admission.Over(p.view(tx.Get), p.files.get)
}

// misspelled returns err, which blocks a resource that leaves a cluster without a usable
// endpoint. If warnings name unknown fields of the resource, which may be the cause, the
// error names them instead of allow_empty. locate finds their lines.
func misspelled(err error, warnings []fault.Problem, locate func([]fault.Problem)) error {
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
	locate(unknown)
	e.Detail, _, _ = strings.Cut(e.Detail, "; set allow_empty=true")
	e.Detail += "; it has an unknown field: " + unknown[0].String()
	e.Problems = unknown
	return e
}

// maxUnknownClusters limits how many clusters one warning names.
const maxUnknownClusters = 10

// unknownReferences warns about the references of a bundle's routes to resources that
// neither the store, after the push that tx holds, nor a file has. They may be pushed
// later, or come from a management server.
func (p *pushes) unknownReferences(tx *store.Tx, b *decode.Bundle) []fault.Problem {
	var warnings []fault.Problem
	has := func(t resource.Type, name string) bool {
		key := resource.Key{Type: t, Name: name}
		_, ok := tx.Get(key)
		return ok || p.files.has(key)
	}
	warn := func(i resource.Item, field, format string, args ...any) {
		if len(warnings) < decode.MaxProblems {
			reason := fmt.Sprintf(format, args...) + ": picks that need it are refused unless a management server has it"
			warnings = append(warnings, fault.Problem{Resource: i.Key.String(), Field: strings.TrimPrefix(i.Field+"."+field, "."), Reason: reason})
		}
	}
	for _, i := range b.Items {
		routes, at := i.Routes, "virtual_hosts"
		if l := i.Listener; l != nil {
			if l.RouteName != "" && !has(resource.TypeRoutes, l.RouteName) {
				warn(i, "api_listener.api_listener.rds.route_config_name", "is %q, which was not pushed and is in no file", l.RouteName)
			}
			routes, at = l.Routes, "api_listener.api_listener.route_config.virtual_hosts"
		}
		if routes == nil {
			continue
		}
		unknown := slices.DeleteFunc(clustersOf(routes), func(name string) bool { return has(Config, name) || has(Endpoints, name) })
		if len(unknown) > 0 {
			warn(i, at, "lead to clusters that were not pushed and are in no file: %s", few(unknown, maxUnknownClusters))
		}
	}
	return warnings
}

func clustersOf(c *resource.RouteConfiguration) []string {
	var names []string
	for _, h := range c.VirtualHosts {
		for _, r := range h.Routes {
			for _, to := range r.Clusters {
				names = append(names, to.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
