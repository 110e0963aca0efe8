package api

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/api/accesslog"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/audit"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/reports"
	"github.com/lbd-dev/lbd/service/sources"
)

// Options configure the handler. What is not optional is required.
type Options struct {
	// What handlers use of the parts of the service, which says what each does.
	Picks     Picks
	Leases    Leases
	Replicas  *service.Replicas
	Changes   Changes
	Resources Resources
	Index     Index
	Overlays  *service.Overlays
	State     State
	Watches   Watches
	Events    func(observe.EventFilter) []observe.Event
	Timeline  func(observe.TimelineRequest) (*observe.ClusterTimeline, error)
	Report    func(*reports.Report, *reports.Cluster) (unknown []string, err error)
	Reconnect func(cluster string) (endpoints int, err error)
	Metrics   Metrics
	Readiness func(in *ledger.Scope) []service.Check
	Doctor    *service.Doctor

	// Callers identifies who makes a request. If nil, every caller has all roles.
	Callers *listen.Callers
	// Audit gets one record for each request that requires the role push or admin; nil
	// without an audit log.
	Audit *audit.Log
	// AccessLog gets one entry for each request; nil without an access log.
	AccessLog *accesslog.Log
	// Limits are those of what callers use.
	Limits Limits
	// Peers forwards requests about leases to other daemons of the fleet; nil for none.
	Peers *Peers
	// Logger gets one record for each internal error. Requests are not logged otherwise.
	Logger *slog.Logger
	// OpenAPI is the contract that GET /openapi.yaml returns.
	OpenAPI []byte
	// Dashboard has index.html.gz, which GET / returns, and its files in assets, compressed
	// as well, whose names change with their content. Without index.html.gz, or if nil,
	// GET / returns a page that says that the dashboard was not built.
	Dashboard fs.FS
}

// OptionsFor returns options with the parts of a service.
func OptionsFor(s *service.Service) Options {
	return Options{
		Picks: s.Picks, Leases: s.Picks, Replicas: s.Replicas, Changes: s.Sources, Resources: s.Sources, Index: s.Sources,
		Overlays: s.Overlays, State: s.State, Watches: s.Watches, Events: s.Events.Last, Timeline: s.Timeline.Of, Report: s.Reports.Take,
		Reconnect: s.Reconnect, Metrics: s.Metrics, Readiness: s.Readiness, Doctor: s.Doctor,
	}
}

// handlers serve what the parts in Options know. A handler of one route has the name of its operation
// in openapi.yaml.
type handlers Options

// Picks answers picks.
type Picks interface {
	Pick(ctx context.Context, r *picks.Request, out *picks.Picks) error
	Confirm(out *picks.Picks) error
}

// Leases holds the leases that this daemon has granted.
type Leases interface {
	Lease(id picks.LeaseID) (picks.LeaseState, error)
	Leases(f picks.LeaseFilter) (list []picks.LeaseState, more bool)
	EndLease(id picks.LeaseID, o picks.Outcome, load *picks.Load) (picks.LeaseState, error)
	EndLeases(f picks.LeaseFilter, by string) map[picks.EndedLeases]int
	RenewLease(ctx context.Context, id picks.LeaseID, ttl time.Duration) (picks.LeaseState, error)
	RenewsAtOnce(id picks.LeaseID, ttl time.Duration) bool
}

// Changes changes resources, and what is stored with them. When a method returns, the change is durable
// and picks use it.
type Changes interface {
	Push(ctx context.Context, r *sources.PushRequest) (*sources.PushResult, error)
	Delete(ctx context.Context, kind sources.Kind, cluster string, o sources.ChangeOptions) (*sources.PushResult, error)
	PushSnapshot(ctx context.Context, r *sources.SnapshotRequest) (*sources.PushResult, error)
	SetEndpoint(ctx context.Context, r *sources.EndpointRequest) (*sources.PushResult, error)
	RemoveEndpoint(ctx context.Context, r *sources.EndpointRequest) (*sources.PushResult, error)
	RenewEndpoint(cluster, address string) (due time.Time, err error)
	PutOverlay(ctx context.Context, r *sources.OverlayRequest) (*sources.PushResult, error)
	DeleteOverlay(ctx context.Context, cluster, id string, o sources.ChangeOptions) (*sources.PushResult, error)
	HostTarget(ctx context.Context, target string, o sources.ChangeOptions) (*sources.PushResult, error)
	DropTarget(ctx context.Context, target string, o sources.ChangeOptions) (*sources.PushResult, error)
	Restore(ctx context.Context, r *sources.RestoreRequest) (*sources.PushResult, error)
	PermitFiles(ctx context.Context, hash, by string) (sources.Permission, error)
}

// Resources describes what is pushed, its history, and the other sources of resources.
type Resources interface {
	Pushed(ctx context.Context, caller string, kind sources.Kind, cluster string, f sources.Format) (*sources.Stored, error)
	View(ctx context.Context, caller string, kind sources.Kind, cluster string, v sources.View, f sources.Format) (*sources.Viewed, error)
	Snapshot(ctx context.Context, caller string, in *ledger.Scope, f sources.Format) (*sources.Stored, error)
	Changes(f changelog.Filter, in *ledger.Scope) (list []changelog.Entry, oldest, next uint64, err error)
	Compare(ctx context.Context, caller string, from, to uint64, part sources.Range, in *ledger.Scope) (*sources.Difference, error)
	Store() (sources.StoreState, error)
	Files() sources.FilesState
	XDS(f sources.XDSFilter) sources.XDSState
}

// Index is the index of the store that picks use.
type Index interface {
	Index() uint64
	AwaitIndex(ctx context.Context, index uint64, wait time.Duration) error
	// Missing returns err, or another error if err may only say that it is not known what is stored.
	Missing(err error) error
}

// State describes clusters, targets and the daemon.
type State interface {
	Clusters() []observe.ClusterSummary
	CountClusters() int
	CountEndpoints(cluster, target string) int
	Cluster(ctx context.Context, name, target string, endpoints bool) (*observe.ClusterState, error)
	AwaitCluster(ctx context.Context, name, target string, generation int64, wait time.Duration) error
	Targets() ([]observe.TargetSummary, error)
	Target(name string) (*observe.TargetState, error)
	Daemon(in *ledger.Scope) observe.DaemonState
}

// Watches begins watches.
type Watches interface {
	WatchCluster(in *ledger.Scope, name, target string, endpoints bool, lastID string) (*observe.Watch, error)
	WatchClusters(in *ledger.Scope, prefix, lastID string) (*observe.Watch, error)
	WatchDaemon(in *ledger.Scope) (*observe.Watch, error)
	WatchEvents(f observe.EventFilter, lastID string) (*observe.Watch, error)
}

// Metrics are lbd's metrics; the handler adds those of requests.
type Metrics interface {
	prometheus.Registerer
	prometheus.Gatherer
	EndpointMetrics(ctx context.Context, in *ledger.Scope) *observe.Gathered
}
