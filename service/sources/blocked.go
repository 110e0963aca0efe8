package sources

import (
	"errors"
	"strings"

	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
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
	if i.Assignment.Usable() > 0 {
		return nil
	}
	return block(name, "the assignment of %q has no usable endpoint; set allow_empty=true to push it anyway", name)
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
	e := fault.Errorf(fault.Blocked, format, args...)
	e.Cluster = cluster
	return e
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
