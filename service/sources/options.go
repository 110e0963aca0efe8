package sources

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// RecentSpan is the time of the picks that a forecast considers, and for which a file cannot remove their cluster.
const RecentSpan = 5 * time.Minute

// Options configure New.
type Options struct {
	Settings
	// SharedStore is true for a daemon that shares its store with others. Replica identifies it among them.
	SharedStore bool
	Replica     string
	Logger      *slog.Logger
	Ledger      *ledger.Ledger
	Events      *observe.Events
	// Draining ends when the daemon begins to shut down.
	Draining context.Context
	Registry *prometheus.Registry
	Overload *overload.Monitor
	// Turns is the budget of decoding and rendering; nil for none.
	Turns *overload.Turns
	// Recent returns what happened to the picks of a cluster within a time; nil if that is not known.
	Recent func(cluster string, span time.Duration) observe.Recent
}

// Settings are the part of Options that the daemon's flags and files set.
type Settings struct {
	// ConnectMode is the default connect mode.
	ConnectMode resource.ConnectMode
	// Lookup looks up a name of a LOGICAL_DNS cluster; nil is the system's resolver.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// RequireIfMatch refuses changes without a precondition.
	RequireIfMatch bool
	// MaxRemoved limits how many clusters one change of the resource files may remove;
	// nil is half of those that they provide, at least 1.
	MaxRemoved *int
	// Changelog limits the history of pushed resources. Without Changes, there is none.
	Changelog changelog.Limits
	// Targets are the full names of xds targets that are always hosted, as
	// [ledger.TargetName] returns them.
	Targets []string
	// Bootstrap is that of the management servers; nil without one.
	Bootstrap *bootstrap.Config
	// OnDemand limits the known clusters that are hosted because picks name them,
	// OnDemandUnknown the names that no management server has confirmed. OnDemandIdle is
	// the idle time after which a cluster is released. 0 is the default of each:
	// [DefaultOnDemand] and so on.
	OnDemand, OnDemandUnknown int
	OnDemandIdle              time.Duration
	// MaxRegistrations limits the registered endpoints, and MaxExpired is the part of the endpoints of
	// a cluster that is removed within one ttl because they were not renewed. 0 is the default of
	// each: [DefaultMaxRegistrations] and so on.
	MaxRegistrations int
	MaxExpired       float64
}

const (
	// DefaultMaxRegistrations is the default limit of the registered endpoints.
	DefaultMaxRegistrations = 10_000
	// DefaultMaxExpired is the default part of the endpoints of a cluster that is removed within one ttl.
	DefaultMaxExpired = 0.2
)

// decoding returns the options with which resources that people write are decoded.
func (o *Options) decoding(f Format) decode.Options {
	return decode.Options{Origin: decode.ByHand, Format: f, Policies: lb.PolicyTraits, Certificates: o.Bootstrap.Instances(), Fleet: o.SharedStore}
}

// judged corrects the warnings about an assignment with its clusters in force, unless they are in the same
// bundle, which may be nil.
func (o *Options) judged(warnings []fault.Problem, b *decode.Bundle) []fault.Problem {
	return decode.JudgeWeights(warnings, lb.PolicyTraits, func(assignment string) (out []*resource.Cluster) {
		if b != nil && b.ClustersOf(assignment) != nil {
			return nil
		}
		o.Ledger.Hosted().Clusters(func(m *ledger.Cluster, _ []string) {
			for _, cc := range m.Config.Leaves(m.Name) {
				if c := cc.Cluster; c != nil && c.Type == resource.ClusterEDS && c.AssignmentName() == assignment {
					out = append(out, c)
				}
			}
		})
		return out
	})
}

func (o *Options) guard() proposal.Guard {
	return proposal.Guard{TLS: o.ConnectMode == resource.ConnectTLS}
}

// Format is how a resource is written.
type Format = decode.Format

// The formats of resources.
const (
	JSON     = decode.FormatJSON
	YAML     = decode.FormatYAML
	Protobuf = decode.FormatProtobuf
	Text     = decode.FormatText // a list of endpoints
)

// Kind is the type of one of the two resources of a cluster.
type Kind = resource.Type

// Key names a resource.
type Key = resource.Key

// The kinds.
const (
	Endpoints Kind = resource.TypeAssignment
	Config    Kind = resource.TypeCluster
)
