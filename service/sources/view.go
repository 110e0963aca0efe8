package sources

import (
	"context"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/encode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// View is a way to look at the resources of a cluster.
type View string

// The views.
const (
	// ViewPushed is what was pushed, as it was pushed.
	ViewPushed View = "pushed"
	// ViewSource is what the source in use has: a push, a file, a management server or DNS.
	ViewSource View = "source"
	// ViewEffective is what the overlays make of that: what picks use.
	ViewEffective View = "effective"
)

// Viewed is a resource as it is in use.
type Viewed struct {
	Stored

	// From is its source, and Updated the time of its last change there; zero for the defaults of a
	// cluster without configuration.
	From    resource.Source
	Updated time.Time
	// Overlays is how many overlays have been applied.
	Overlays int
}

// View returns a resource of a cluster as it is in use, in a format, for a caller. It has the fields that
// lbd applies, and can be pushed. It waits for its turn. It fails with UnknownCluster, also if the cluster
// has no such resource.
func (c *overlayChanges) View(ctx context.Context, caller string, kind Kind, cluster string, v View, f Format) (*Viewed, error) {
	cc := c.Config(cluster)
	if cc == nil {
		return nil, ledger.UnknownCluster(cluster)
	}
	out := &Viewed{}
	config, assignment := cc.Source()
	if v == ViewEffective {
		config, assignment, out.Overlays = cc.Cluster, cc.Assignment, len(cc.Overlays())
	}
	from, missing, has, size := cc.ClusterFrom, cc.Err, config != nil, 0
	write := func() ([]byte, error) { return encode.Cluster(config) }
	if kind == Endpoints {
		from, missing, has = cc.AssignmentFrom, cc.AssignmentErr, assignment != nil
		write = func() ([]byte, error) { return encode.Assignment(assignment) }
	}
	if !has {
		return nil, notThere(cc, kind, cluster, missing)
	}
	if kind == Endpoints {
		for _, l := range assignment.Localities {
			size += len(l.Endpoints) * endpointBytes
		}
	}
	turn, err := c.pushes.beginText(ctx, caller, size, f)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	raw, err := write()
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	body, err := decode.Render(kind, raw, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	out.Stored = Stored{Body: Parts{body}, Hash: hash(raw)}
	out.From, out.Updated = from.Source, from.Updated.UTC()
	return out, nil
}

// endpointBytes is about what an endpoint takes as protobuf.
const endpointBytes = 64

// notThere returns the error of a resource that a cluster does not have: it says why, and what it has.
func notThere(cc *resource.ClusterConfig, kind Kind, cluster string, why error) error {
	detail := "they are not known yet"
	switch {
	case why != nil:
		detail = why.Error()
	case kind == Endpoints && cc.Cluster != nil && cc.Cluster.Type == resource.ClusterAggregate:
		detail = "it is an AGGREGATE of " + difference.Few(cc.Leaves, maxListedNames)
	}
	return fault.Errorf(fault.UnknownCluster, "cluster %q has no %s: %s", cluster, kind, detail).Of(cluster, "")
}
