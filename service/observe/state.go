package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// StateOptions are what a State needs.
type StateOptions struct {
	Logger *slog.Logger
	Events *Events
	Ledger *ledger.Ledger
	// Overload reports what lbd itself lacks; it may be nil.
	Overload *overload.Monitor
	// Turns is the budget of bulk work, for metrics; it may be nil.
	Turns *overload.Turns
	// ConnectMode stands for the empty mode.
	ConnectMode resource.ConnectMode
	// Name and Version are those of the daemon.
	Name, Version string
	// Hosts returns a function that lists what hosts a target. It fails while pushed
	// resources are being loaded.
	Hosts func() (func(target string) []Host, error)
	// Covers returns what the resources of a cluster cover.
	Covers func(c *resource.ClusterConfig, name string) []Cover
	// Covered returns the resources that a push or a file covers, each with what covers it; it may be nil.
	Covered func() map[string]string
	// Registered returns the ttl of a registered endpoint of an assignment, and when it expires; 0 for others.
	Registered func(assignment, address string) (ttl time.Duration, expires time.Time)
	// Conditions return the conditions of one part of the daemon each as they are now, or nothing. They
	// are called for every probe of readiness and once a second while a dashboard is open, from any
	// goroutine, so they must not block. Conditions that last must keep their Since.
	Conditions []func() []Condition
	// Draining ends when the daemon drains, and every wait for a change with it.
	Draining context.Context
}

// State reads the state of the daemon, its targets and clusters. Its methods may be
// called from any goroutine.
type State struct {
	// Fixed after build.
	options StateOptions
	ledger  *ledger.Ledger
	started time.Time
	waiting *prometheus.GaugeVec // requests that wait for changes, by kind
	unwatch func()               // ends the reports of shortages

	shortages map[overload.Resource]overload.State // as of the monitor's last call
}

// NewState returns a State. It must be closed.
func NewState(o StateOptions) *State {
	s := &State{options: o, ledger: o.Ledger, started: time.Now().UTC()}
	s.waiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lbd_watchers",
		Help: "Requests that wait for changes now, by kind: sse, longpoll.",
	}, []string{"kind"})
	s.waiting.WithLabelValues("longpoll")
	s.waiting.WithLabelValues("sse")
	s.unwatch = o.Overload.Watch(s.overloaded)
	s.options.Conditions = append(slices.Clip(o.Conditions), s.shortageConditions)
	return s
}

// Close ends the reports of shortages.
func (s *State) Close() { s.unwatch() }

// TargetSummary is the summary of an xds target.
type TargetSummary struct {
	Name string `json:"name"` // xds:///orders
	// State is the connectivity state of all its clusters together, as in a gRPC
	// channel; WARMING without a balancer tree.
	State string `json:"state" enums:"READY,CONNECTING,IDLE,TRANSIENT_FAILURE,WARMING"`
	// Error is why every pick fails: the Listener or the routes do not exist.
	Error string `json:"error,omitempty"`
	// Pending is true until its routes are known for the first time. Picks wait.
	Pending bool `json:"pending,omitempty"`
	// HostedBy is what hosts the target: --target, PUT /v1/targets, a Listener
	// that was pushed, one of the resource directory.
	HostedBy []Host `json:"hosted_by" enums:"flag,api,push,file"`
	// Clusters is the number of clusters of its routes.
	Clusters   int   `json:"clusters"`
	Generation int64 `json:"generation"`
}

// Host is what hosts a target.
type Host string

// The hosts of a target.
const (
	HostFlag Host = "flag" // --target
	HostAPI  Host = "api"  // HostTarget
	HostPush Host = "push" // a Listener that was pushed
	HostFile Host = "file" // a Listener of the resource directory
)

// Holds says why the target is hosted.
func (h Host) Holds() string {
	switch h {
	case HostFlag:
		return "--target hosts it for as long as the daemon runs"
	case HostPush:
		return "a Listener that was pushed hosts it"
	case HostFile:
		return "a Listener of the resource directory hosts it"
	default:
		return "it is hosted by its name"
	}
}

// TargetState is one xds target with its routes.
type TargetState struct {
	TargetSummary
	// AmbientErrors are the resources of a management server that the target and its
	// clusters use in spite of an error.
	AmbientErrors []AmbientError `json:"ambient_errors,omitempty"`
	Listener      *Origin        `json:"listener,omitempty"`
	// RouteConfiguration is the Listener if the routes are inline.
	RouteConfiguration *Origin `json:"route_configuration,omitempty"`
	// VirtualHost is the best match for the target's name.
	VirtualHost *VirtualHostState `json:"virtual_host,omitempty"`
	// ClusterStates are the clusters of the routes, by name.
	ClusterStates []ClusterSummary `json:"cluster_states"`
}

// Origin is a resource and its source.
type Origin struct {
	Resource string `json:"resource" example:"Listener/orders"`
	Source   string `json:"source" enums:"push,file,ads,cache"`
	// Version is the management server's.
	Version string    `json:"version,omitempty"`
	Updated time.Time `json:"updated_at"`
}

// VirtualHostState is the virtual host of a target.
type VirtualHostState struct {
	Name    string   `json:"name"`
	Domains []string `json:"domains"`
	// Routes are tried in order. The first match is used.
	Routes []RouteState `json:"routes"`
}

// RouteState is one route.
type RouteState struct {
	Name string `json:"name,omitempty"`
	// Match describes the requests that match.
	Match string `json:"match" example:"prefix \"/orders\", header tenant: exact \"a\""`
	// Clusters are drawn by weight.
	Clusters []RouteCluster `json:"clusters"`
	// Hash describes the parts of the request's hash, in order.
	Hash []string `json:"hash,omitempty"`
	// Unsupported is what lbd does not support. Picks of matching requests fail.
	Unsupported string `json:"unsupported,omitempty"`
}

// RouteCluster is a cluster of a route.
type RouteCluster struct {
	Name   string `json:"name"`
	Weight uint32 `json:"weight"`
	// Share is the part of the route's picks that the cluster gets, 0 to 1.
	Share float64 `json:"share"`
}

// Targets returns the summaries of all xds targets, by name.
func (s *State) Targets() ([]TargetSummary, error) {
	hosts, err := s.options.Hosts()
	if err != nil {
		return nil, err
	}
	out := []TargetSummary{}
	for _, t := range s.ledger.Hosted().XDS() {
		out = append(out, summarizeTarget(t, t.View(), hosts(t.Name)))
	}
	return out, nil
}

// Target returns an xds target with its routes and clusters. It fails with
// UnknownTarget.
func (s *State) Target(name string) (*TargetState, error) {
	hosts, err := s.options.Hosts()
	if err != nil {
		return nil, err
	}
	t, err := s.ledger.XDSTarget(name)
	if err != nil {
		return nil, err
	}
	v := t.View()
	out := &TargetState{
		TargetSummary: summarizeTarget(t, v, hosts(t.Name)),
		AmbientErrors: ambientList(t.Ambient()),
		ClusterStates: []ClusterSummary{},
	}
	h := s.ledger.Hosted()
	for _, m := range v.Sorted() {
		summary := summarize(m)
		summary.Targets = h.LivesIn(m.Name)
		out.ClusterStates = append(out.ClusterStates, summary)
	}
	if c := v.Config.Routing; c != nil {
		listener := resource.Key{Type: resource.TypeListener, Name: c.Listener.Name}
		out.Listener = originOf(listener, c.ListenerFrom)
		routes := listener
		if c.RouteName != "" {
			routes = resource.Key{Type: resource.TypeRoutes, Name: c.RouteName}
		}
		out.RouteConfiguration = originOf(routes, c.RoutesFrom)
		out.VirtualHost = &VirtualHostState{Name: c.VirtualHost.Name, Domains: c.VirtualHost.Domains, Routes: []RouteState{}}
		for _, r := range c.VirtualHost.Routes {
			out.VirtualHost.Routes = append(out.VirtualHost.Routes, RouteStateOf(r))
		}
	}
	return out, nil
}

func summarizeTarget(t *ledger.Target, v *ledger.View, hosts []Host) TargetSummary {
	out := TargetSummary{
		Name: t.Name, State: stateOf(t.Channel, t.Channel.State()), HostedBy: hosts, Pending: v.Config.Pending,
		Clusters: v.Clusters.Len(), Generation: t.Channel.Generation(),
	}
	if err := v.Config.Err; err != nil {
		_, out.Error = Unusable(&lb.TargetError{Target: t.Name, Err: err})
	}
	return out
}

// Unusable returns the error of all picks of a target: UnknownTarget if it has no
// Listener, because its name is probably wrong.
func Unusable(err *lb.TargetError) (code fault.Code, detail string) {
	code, detail = fault.NoReadyEndpoint, err.Error()
	missing, ok := errors.AsType[*resolver.NotFoundError](err)
	if !ok {
		return code, detail
	}
	if missing.Key.Type == resource.TypeListener {
		code = fault.UnknownTarget
	}
	if missing.Err == nil {
		detail += ": push it with PUT /v1/snapshot, or give lbd a management server that has it"
	}
	return code, detail
}

func originOf(key resource.Key, from resource.Provenance) *Origin {
	return &Origin{Resource: key.String(), Source: from.Source.String(), Version: from.Version, Updated: from.Updated.UTC()}
}

// RouteStateOf describes a route.
func RouteStateOf(r *resource.Route) RouteState {
	out := RouteState{
		Name: r.Name, Match: r.Match.Words(), Unsupported: r.Unsupported, Clusters: make([]RouteCluster, len(r.Clusters)),
	}
	for i, c := range r.Clusters {
		out.Clusters[i] = RouteCluster{Name: c.Name, Weight: c.Weight, Share: float64(c.Weight) / float64(r.TotalWeight)}
	}
	for i := range r.Hash {
		out.Hash = append(out.Hash, HashWords(&r.Hash[i]))
	}
	return out
}

// HashWords describes what a hash policy hashes.
func HashWords(p *resource.HashPolicy) string {
	words := "header " + p.Header
	if p.Header == "" {
		words = "the target itself: the same for all its picks"
	}
	if p.Regex != nil {
		words += fmt.Sprintf(", %q replaced by %q", p.Regex, p.Substitution)
	}
	if p.Terminal {
		words += "; terminal: what comes after counts only where this made none"
	}
	return words
}

// Within leaves the states of the clusters that are in a scope.
func (t *TargetState) Within(s *ledger.Scope) *TargetState {
	if s.All() {
		return t
	}
	out := *t
	out.ClusterStates = []ClusterSummary{}
	for _, c := range t.ClusterStates {
		if s.Cluster(c.Name) {
			out.ClusterStates = append(out.ClusterStates, c.Within(s))
		}
	}
	out.AmbientErrors = slices.DeleteFunc(slices.Clone(t.AmbientErrors), func(e AmbientError) bool {
		return e.ofCluster() && !s.Resource(difference.Change{Resource: e.Resource}.Key())
	})
	return &out
}
