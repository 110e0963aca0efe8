package sources

import (
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// XDSState is the state of the management servers, and of what lbd subscribes to.
type XDSState struct {
	// Configured is false if lbd has no bootstrap: all else is empty then.
	Configured bool `json:"configured"`
	// NodeID is lbd's node ID.
	NodeID string `json:"node_id,omitempty"`
	// Bootstrap is the file or variable of the bootstrap.
	Bootstrap string `json:"bootstrap,omitempty"`
	// Servers are those of each authority, in the order of fallback.
	Servers []XDSServer `json:"servers"`
	// Targets are the targets that need resources, and the server that each uses:
	// those on a fallback server first, then by name. A cluster on demand is a
	// target of its own, "cluster:NAME".
	Targets []client.TargetStatus `json:"targets"`
	// TargetsTotal counts the targets, listed or not; Fallbacks counts those of them
	// that use a fallback server.
	TargetsTotal int `json:"targets_total"`
	Fallbacks    int `json:"fallbacks"`
	// Resources are the subscriptions, by type and name.
	Resources []XDSResource `json:"resources"`
	// Total counts the resources that match the filter, listed or not.
	Total int `json:"total"`
	// Unapplied are the fields that lbd does not apply and that management servers set in
	// resources in use, by type and field, of the types that match the filter.
	Unapplied []client.UnappliedField `json:"unapplied_fields"`
	// LoadReports are those to each server that requests them.
	LoadReports []XDSLoadReports `json:"load_reports"`
	// OnDemand counts the clusters that are subscribed to because picks named them.
	OnDemand OnDemandState `json:"on_demand"`
}

// XDSLoadReports is the state of the load reports (LRS) to a server.
type XDSLoadReports struct {
	Server    string `json:"server"`
	Connected bool   `json:"connected"`
	// Interval is the time between two reports; absent until the server sends it.
	Interval string `json:"interval,omitempty"`
	// Clusters is how many are reported.
	Clusters    int        `json:"clusters"`
	LastReport  *time.Time `json:"last_report_at,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
}

// XDSServer is one management server of an authority.
type XDSServer struct {
	Server string `json:"server"` // its URI
	// Authority is absent for names without one.
	Authority string `json:"authority,omitempty"`
	// Connected is true if it answered on the current stream.
	Connected bool `json:"connected"`
	// Active is true if at least one target uses it.
	Active bool `json:"active"`
	// Targets is how many targets use it; Waiting is how many use a less preferred
	// server until it answers.
	Targets int `json:"targets"`
	Waiting int `json:"waiting"`
	// Since is when connected last changed; absent if lbd never tried to connect.
	Since       *time.Time `json:"since,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
}

// XDSResource is one subscription of one target.
type XDSResource struct {
	// The target that subscribes to the resource at server.
	Target string `json:"target"`
	Server string `json:"server,omitempty"`

	Type      string `json:"type" enums:"Listener,RouteConfiguration,Cluster,ClusterLoadAssignment"`
	Name      string `json:"name"`
	Authority string `json:"authority,omitempty"`
	State     string `json:"state" enums:"requested,acked,nacked,nacked_but_cached,does_not_exist,does_not_exist_but_cached,received_error,received_error_but_cached,timeout"`
	// The last accepted version.
	Version string `json:"version,omitempty"`
	// When the last accepted version arrived.
	Updated *time.Time `json:"updated_at,omitempty"`
	// Time since updated_at, a Go duration.
	Age   string `json:"age,omitempty"`
	Error string `json:"error,omitempty"`
	// Rejected is the last response, if it was rejected (NACK).
	Rejected *XDSRejection `json:"rejected,omitempty"`
}

// XDSRejection is a NACK.
type XDSRejection struct {
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// XDSFilter selects resources.
type XDSFilter struct {
	// Type, State and Prefix are empty for any.
	Type, State, Prefix string
	// Target is the only target that is listed, with its resources; empty for all.
	Target string
	// Scope is that of the caller: other targets and resources are neither listed nor
	// counted.
	Scope *ledger.Scope
	// Limit is how many targets, and how many resources, at most; 0 is all.
	Limit int
}

// XDSStates are the states of resources, and XDSTypes their types.
var (
	XDSStates = []string{
		string(client.Requested), string(client.Acked), string(client.Nacked), string(client.NackedButCached),
		string(client.DoesNotExist), string(client.DoesNotExistButCached),
		string(client.ReceivedError), string(client.ReceivedErrorButCached), string(client.Timeout),
	}
	XDSTypes = []string{
		string(resource.TypeListener), string(resource.TypeRoutes), string(resource.TypeCluster), string(resource.TypeAssignment),
	}
)

// XDS returns the state of the management servers, and of what lbd subscribes to. It waits
// for the xDS client.
func (s *servers) XDS(f XDSFilter) XDSState {
	out := XDSState{Servers: []XDSServer{}, Targets: []client.TargetStatus{}, Resources: []XDSResource{}, Unapplied: []client.UnappliedField{}, LoadReports: []XDSLoadReports{}}
	if s.client == nil {
		return out
	}
	out.Configured, out.NodeID, out.Bootstrap = true, s.Bootstrap.Node.GetId(), s.Bootstrap.Source
	status := within(f.Scope, withCached(s.Ledger.Hosted(), s.client.Status()))
	for _, server := range status.Servers {
		out.Servers = append(out.Servers, XDSServer{
			Server: server.URI, Authority: server.Authority, Connected: server.Connected,
			Active: server.Targets > 0, Targets: server.Targets, Waiting: server.Waiting,
			Since: observe.Optional(server.Since), LastError: fault.Text(server.LastError), LastErrorAt: observe.Optional(server.LastErrorAt),
		})
	}
	targets := slices.DeleteFunc(status.Targets, func(t client.TargetStatus) bool { return f.Target != "" && t.Target != f.Target })
	for _, t := range targets {
		if t.Fallback {
			out.Fallbacks++
		}
	}
	out.TargetsTotal, out.Targets = len(targets), append(out.Targets, limited(targets, f.Limit)...)
	out.Unapplied = append(out.Unapplied, slices.DeleteFunc(status.Unapplied, func(u client.UnappliedField) bool { return f.Type != "" && string(u.Type) != f.Type })...)
	if f.Scope.All() {
		out.OnDemand, out.LoadReports = s.demand.state(), s.loadReports()
	}
	chosen := slices.DeleteFunc(status.Resources, func(r client.ResourceStatus) bool {
		return f.Target != "" && r.Target != f.Target || f.Type != "" && string(r.Key.Type) != f.Type || f.State != "" && string(r.State) != f.State ||
			!strings.HasPrefix(r.Key.Name, f.Prefix)
	})
	out.Total = len(chosen)
	for _, r := range limited(chosen, f.Limit) {
		out.Resources = append(out.Resources, resourceState(r))
	}
	return out
}

func (s *servers) loadReports() []XDSLoadReports {
	out := []XDSLoadReports{}
	for _, to := range s.reports.Status() {
		state := XDSLoadReports{
			Server: to.URI, Connected: to.Connected, Clusters: to.Clusters,
			LastReport: observe.Optional(to.LastReport), LastError: fault.Text(to.Err), LastErrorAt: observe.Optional(to.ErrAt),
		}
		if to.Interval > 0 {
			state.Interval = to.Interval.String()
		}
		out = append(out, state)
	}
	return out
}

// limited returns the first elements of a list; all for a limit of 0.
func limited[V any](all []V, limit int) []V {
	if limit == 0 {
		return all
	}
	return all[:min(len(all), limit)]
}

func resourceState(r client.ResourceStatus) XDSResource {
	out := XDSResource{
		Target: r.Target, Server: r.Server, Type: string(r.Key.Type), Name: r.Key.Name, Authority: r.Authority, State: string(r.State),
		Version: r.Version, Updated: observe.Optional(r.Updated), Error: fault.Text(r.Err),
	}
	if out.Updated != nil {
		out.Age = time.Since(r.Updated).Round(time.Second).String()
	}
	if r.Rejection != nil {
		out.Rejected = &XDSRejection{Version: r.Rejection.Version, Reason: fault.Text(r.Rejection.Err), At: r.Rejection.At.UTC()}
	}
	return out
}

// withCached returns the status with the states of resources as the targets use them.
func withCached(h *ledger.Hosted, status client.Status) client.Status {
	status.Resources = slices.Clone(status.Resources)
	for i := range status.Resources {
		r := &status.Resources[i]
		if cached, ok := cachedStates[r.State]; ok {
			if t := h.Named(r.Target); t != nil && t.Ambient().Has(r.Key) {
				r.State = cached
			}
		}
	}
	return status
}

// cachedStates are those of a resource that has an error, and of which a version is in
// use from before the daemon's start: the client does not know of that version.
var cachedStates = map[client.State]client.State{
	client.Nacked:        client.NackedButCached,
	client.DoesNotExist:  client.DoesNotExistButCached,
	client.ReceivedError: client.ReceivedErrorButCached,
}
