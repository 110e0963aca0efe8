package service

import (
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// XDSState tells how lbd stands with its management servers.
type XDSState struct {
	// Configured is false where lbd has no bootstrap: nothing else is there
	// then.
	Configured bool `json:"configured"`
	// NodeID is what lbd calls itself.
	NodeID string `json:"node_id,omitempty"`
	// Bootstrap is where the bootstrap was read from.
	Bootstrap string `json:"bootstrap,omitempty"`
	// Servers are those of each authority, in the order of fallback.
	Servers []XDSServer `json:"servers"`
	// Resources are what is asked for, by type and name.
	Resources []XDSResource `json:"resources"`
	// Total counts the resources that the filter chooses, listed or not.
	Total int `json:"total"`
	// LoadReports are those to each server that wants some.
	LoadReports []XDSLoadReports `json:"load_reports"`
	// OnDemand are the clusters that are asked for because picks named them.
	OnDemand OnDemandState `json:"on_demand"`
}

// OnDemandState counts clusters on demand.
type OnDemandState struct {
	Clusters int `json:"clusters"`
	Max      int `json:"max"`
}

// XDSLoadReports is how load reports (LRS) to a server go.
type XDSLoadReports struct {
	Server    string `json:"server"`
	Connected bool   `json:"connected"`
	// Interval is how often it wants a report; absent until it said so.
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
	// Connected: it answered on the stream that there is.
	Connected bool `json:"connected"`
	// Active: the authority uses it.
	Active bool `json:"active"`
	// Since is when Connected became what it is; absent where it was never
	// tried.
	Since       *time.Time `json:"since,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
}

// XDSResource is one resource that a management server is asked for.
type XDSResource struct {
	Type      string `json:"type" enums:"Listener,RouteConfiguration,Cluster,ClusterLoadAssignment"`
	Name      string `json:"name"`
	Authority string `json:"authority,omitempty"`
	State     string `json:"state" enums:"requested,acked,nacked,nacked_but_cached,does_not_exist,timeout"`
	// Version, Updated and Age are of the last good one.
	Version string     `json:"version,omitempty"`
	Updated *time.Time `json:"updated_at,omitempty"`
	Age     string     `json:"age,omitempty"` // since updated_at, a Go duration
	Error   string     `json:"error,omitempty"`
	// Rejected is the last response, where it was refused (NACK).
	Rejected *XDSRejection `json:"rejected,omitempty"`
}

// XDSRejection is a NACK.
type XDSRejection struct {
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// XDSFilter chooses resources.
type XDSFilter struct {
	// Type, State and Prefix are empty for any.
	Type, State, Prefix string
	// Limit is how many at most; 0 is all.
	Limit int
}

// XDSStates are the states of resources, and XDSTypes their types.
var (
	XDSStates = []string{
		string(client.Requested), string(client.Acked), string(client.Nacked), string(client.NackedButCached),
		string(client.DoesNotExist), string(client.Timeout),
	}
	XDSTypes = []string{
		string(resource.TypeListener), string(resource.TypeRoutes), string(resource.TypeCluster), string(resource.TypeAssignment),
	}
)

// XDS tells how lbd stands with its management servers.
func (s *Service) XDS(f XDSFilter) XDSState {
	out := XDSState{Servers: []XDSServer{}, Resources: []XDSResource{}, LoadReports: []XDSLoadReports{}}
	if s.followed == nil {
		return out
	}
	out.Configured, out.NodeID, out.Bootstrap = true, s.options.Bootstrap.Node.GetId(), s.options.Bootstrap.Source
	s.onDemand.mu.Lock()
	out.OnDemand = OnDemandState{Clusters: len(s.onDemand.clusters), Max: s.onDemand.max}
	s.onDemand.mu.Unlock()
	status := s.followed.server.Status()
	for _, server := range status.Servers {
		out.Servers = append(out.Servers, XDSServer{
			Server: server.URI, Authority: server.Authority, Connected: server.Connected, Active: server.Active,
			Since: optional(server.Since), LastError: text(server.LastError), LastErrorAt: optional(server.LastErrorAt),
		})
	}
	for _, to := range s.followed.reports.Status() {
		state := XDSLoadReports{
			Server: to.URI, Connected: to.Connected, Clusters: to.Clusters,
			LastReport: optional(to.LastReport), LastError: text(to.Err), LastErrorAt: optional(to.ErrAt),
		}
		if to.Interval > 0 {
			state.Interval = to.Interval.String()
		}
		out.LoadReports = append(out.LoadReports, state)
	}
	chosen := slices.DeleteFunc(status.Resources, func(r client.ResourceStatus) bool {
		return f.Type != "" && string(r.Key.Type) != f.Type || f.State != "" && string(r.State) != f.State ||
			!strings.HasPrefix(r.Key.Name, f.Prefix)
	})
	out.Total = len(chosen)
	if f.Limit > 0 {
		chosen = chosen[:min(len(chosen), f.Limit)]
	}
	for _, r := range chosen {
		out.Resources = append(out.Resources, resourceState(r))
	}
	return out
}

func resourceState(r client.ResourceStatus) XDSResource {
	out := XDSResource{
		Type: string(r.Key.Type), Name: r.Key.Name, Authority: r.Authority, State: string(r.State),
		Version: r.Version, Updated: optional(r.Updated), Error: text(r.Err),
	}
	if out.Updated != nil {
		out.Age = time.Since(r.Updated).Round(time.Second).String()
	}
	if r.Rejection != nil {
		out.Rejected = &XDSRejection{Version: r.Rejection.Version, Reason: text(r.Rejection.Err), At: r.Rejection.At.UTC()}
	}
	return out
}
