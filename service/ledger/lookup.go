package ledger

import (
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
)

// XDSTarget returns the xds target of a name, as TargetName takes it. It fails with
// UnknownTarget.
func (l *Ledger) XDSTarget(name string) (*Target, error) {
	h := l.Hosted()
	if t := h.xds[name]; t != nil {
		return t, nil
	}
	if t := h.short[TargetKey(name)]; t != nil {
		return t, nil
	}
	return nil, UnknownTarget(name)
}

// Find returns a cluster as it is in an xds target; without a target, in its own tree,
// else in that of the first xds target that has it. It fails with UnknownTarget and
// UnknownCluster.
func (l *Ledger) Find(cluster, target string) (*Cluster, error) {
	if target == "" {
		if c := l.Hosted().Cluster(cluster); c != nil {
			return c, nil
		}
		return nil, UnknownCluster(cluster)
	}
	t, err := l.XDSTarget(target)
	if err != nil {
		return nil, err
	}
	if c := t.View().Clusters[cluster]; c != nil {
		return c, nil
	}
	e := fault.Errorf(fault.UnknownCluster, "no route of %s leads to cluster %q", t.Label, cluster)
	e.Cluster, e.Target = cluster, t.Label
	return nil, e
}

// UnknownCluster returns the error of a request for a cluster that is not known.
func UnknownCluster(name string) *fault.Error {
	err := fault.Errorf(fault.UnknownCluster, "cluster %q not found", name)
	err.Cluster = name
	return err
}

// UnknownTarget returns the error of a request for a target that is not hosted.
func UnknownTarget(name string) *fault.Error {
	err := fault.Errorf(fault.UnknownTarget, "target %q not found: use --target or PUT /v1/targets/NAME, or add its Listener", name)
	err.Target = name
	return err
}

// Gone returns the error of a request whose tree was closed meanwhile. label is the
// target's.
func (l *Ledger) Gone(cluster, label string) *fault.Error {
	var e *fault.Error
	switch {
	case l.options.Draining.Err() != nil:
		e = fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	case label != "":
		e = fault.Errorf(fault.UnknownTarget, "target %q is not hosted any more", label)
	default:
		e = fault.Errorf(fault.UnknownCluster, "cluster %q was removed", cluster)
	}
	e.Cluster, e.Target, e.Err = cluster, label, lb.ErrClosed
	return e
}
