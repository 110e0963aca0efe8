package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

const (
	// MaxEndpointBytes limits the body of a change of one endpoint.
	MaxEndpointBytes = 64 << 10
	// MaxRenewals is the maximum number of endpoints that one request can renew.
	MaxRenewals = 1000
	// MaxRenewalsBytes limits its body.
	MaxRenewalsBytes = 1 << 20
)

// EndpointEdit is what a push of one endpoint sets. What is absent stays as it is.
type EndpointEdit struct {
	// Weight is the load_balancing_weight; 1 if it was never set.
	Weight *uint32 `json:"weight,omitempty" minimum:"1" maximum:"4294967295" example:"3"`
	// Health is the health_status: only endpoints that are UNKNOWN (the default) or HEALTHY get picks.
	Health *string `json:"health,omitempty" enums:"UNKNOWN,HEALTHY,UNHEALTHY,DRAINING,TIMEOUT,DEGRADED"`
	// Hostname is the hostname of the endpoint; empty for none.
	Hostname *string `json:"hostname,omitempty" maxLength:"255"`
	// Locality is the locality of the endpoint; by default the only one. A new one is added if no
	// locality has a weight.
	Locality *EndpointLocality `json:"locality,omitempty"`
	// Priority is the priority of the locality; required if the locality has several.
	Priority *uint32 `json:"priority,omitempty" minimum:"0" maximum:"4294967295"`
}

// EndpointLocality names a locality.
type EndpointLocality struct {
	Region  string `json:"region" validate:"optional" example:"us-east1"`
	Zone    string `json:"zone" validate:"optional" example:"b"`
	SubZone string `json:"sub_zone" validate:"optional"`
}

// @Summary     Add or change one endpoint of a cluster
// @Description Changes the pushed ClusterLoadAssignment of the cluster: an endpoint that it does not have is added, and nothing else changes, also if others change it at the same time. A cluster without endpoints gets an assignment with this one. Rejected with code blocked if the endpoints come from a file, a management server or DNS.
// @Param       endpoint      body   EndpointEdit false "what to set"
// @Param       ttl           query  string false "registers the endpoint: it is removed unless it is renewed within this time, 1s to 1h; 0s makes it one that stays. The same request again renews it" example(30s)
// @Param       allow_empty   query  bool   false "allow a cluster without usable endpoints"
// @Param       If-Match      header string false "ETags of the assignment, one of which must match; * requires that it exists"
// @Param       If-None-Match header string false "*: requires that the cluster has no pushed assignment"
// @Success     200     {object} PushAnswer "changed or unchanged; with dry_run, what would change"
// @Success     201     {object} PushAnswer "added"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/endpoints/{address} [put]
func (h *handlers) putEndpoint(w *recorder, r *http.Request) error {
	var ttl *time.Duration
	q, err := endpointRequest(w, r, parameter{name: "ttl", set: func(v value) string {
		ttl = new(time.Duration)
		return v.ttl(ttl)
	}})
	if err != nil {
		return err
	}
	var edit EndpointEdit
	if err := readJSON(w, r, MaxEndpointBytes, &edit); err != nil {
		return err
	}
	q.Edit = sources.EndpointEdit{Weight: edit.Weight, Health: edit.Health, Hostname: edit.Hostname, Priority: edit.Priority, Locality: (*sources.Locality)(edit.Locality), TTL: ttl}
	result, err := h.Changes.SetEndpoint(r.Context(), q)
	w.renewal = err == nil && ttl != nil && len(result.Changes) == 0
	return writeResult(w, result, q.Options.DryRun, err)
}

// @Summary     Remove one endpoint of a cluster
// @Description Changes the pushed ClusterLoadAssignment of the cluster. Its locality stays. Rejected with code blocked if it is the last usable one, unless allow_empty is set, and if the endpoints come from a file, a management server or DNS.
// @Param       allow_empty query  bool   false "allow a cluster without usable endpoints"
// @Param       If-Match    header string false "ETags of the assignment, one of which must match; * requires that it exists"
// @Success     200     {object} PushAnswer "what changed; etag is that of the assignment"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/endpoints/{address} [delete]
func (h *handlers) deleteEndpoint(w *recorder, r *http.Request) error {
	q, err := endpointRequest(w, r)
	if err != nil {
		return err
	}
	result, err := h.Changes.RemoveEndpoint(r.Context(), q)
	return writeResult(w, result, q.Options.DryRun, err)
}

// endpointRequest reads a change of one endpoint, without its body.
func endpointRequest(w *recorder, r *http.Request, more ...parameter) (q *sources.EndpointRequest, err error) {
	q = &sources.EndpointRequest{}
	if q.Address, err = pathName(r, "address"); err != nil {
		return nil, err
	}
	q.Cluster, err = changeRequest(w, r, &q.Options, append(more, allowEmpty(&q.Options))...)
	return q, err
}

// ttl stores the ttl of a registered endpoint.
func (v value) ttl(to *time.Duration) string {
	d, err := time.ParseDuration(v.text)
	if err != nil {
		return "a duration, such as 30s"
	}
	*to = d // the service checks the limits
	return ""
}

// RegisteredEndpoint names a registered endpoint.
type RegisteredEndpoint struct {
	Cluster string `json:"cluster" example:"orders"`
	Address string `json:"address" example:"10.0.0.7:8080"`
}

// Renewals names registered endpoints.
type Renewals struct {
	Endpoints []RegisteredEndpoint `json:"endpoints" maxItems:"1000"`
}

// Renewed has the result for each endpoint, in the order of the request.
type Renewed struct {
	Endpoints []RenewedEndpoint `json:"endpoints"`
}

// RenewedEndpoint says until when an endpoint is registered, or why it is not.
type RenewedEndpoint struct {
	RegisteredEndpoint

	// ExpiresAt is when the endpoint is removed without another renewal.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Problem is why the endpoint was not renewed: with unknown_endpoint, register it again.
	Problem *Problem `json:"problem,omitempty"`
}

// @Summary     Renew registered endpoints
// @Description Each endpoint is renewed independently, for the ttl with which it was registered: the answer is 200 with a result for each, in the order of the request. An endpoint that is not registered, because it was removed or never was, has a problem with code unknown_endpoint: register it again. Renewals store nothing, and are neither in the history nor in the audit log.
// @Param       endpoints body Renewals true "the endpoints, at most 1000"
// @Success     200 {object} Renewed "a result for each endpoint"
// @Router      /v1/renewals [post]
func (h *handlers) renewEndpoints(w *recorder, r *http.Request) error {
	if err := readParameters(r); err != nil {
		return err
	}
	var many Renewals
	if err := readJSON(w, r, MaxRenewalsBytes, &many); err != nil {
		return err
	}
	switch {
	case many.Endpoints == nil:
		return fault.Errorf(fault.InvalidArgument, `body: endpoints is required: {"endpoints":[{"cluster":…,"address":…}…]}`)
	case len(many.Endpoints) > MaxRenewals:
		return fault.Errorf(fault.InvalidArgument, "body: %d endpoints; at most %d are allowed", len(many.Endpoints), MaxRenewals)
	}
	for i, e := range many.Endpoints {
		for field, text := range map[string]string{"cluster": e.Cluster, "address": e.Address} {
			if wrong := badName(text); wrong != "" {
				return fault.Errorf(fault.InvalidArgument, "body: endpoints[%d]: %s %s", i, field, wrong)
			}
		}
	}
	out := Renewed{Endpoints: make([]RenewedEndpoint, len(many.Endpoints))}
	for i, e := range many.Endpoints {
		is := &out.Endpoints[i]
		is.RegisteredEndpoint = e
		var due time.Time
		err := mayUseCluster(w, e.Cluster)
		if err == nil {
			due, err = h.Changes.RenewEndpoint(e.Cluster, e.Address)
		}
		if err != nil {
			is.Problem = new(problemFor(r, err))
			continue
		}
		is.ExpiresAt = new(due.UTC().Round(0))
	}
	w.renewal = true
	return reply(w, out, nil)
}
