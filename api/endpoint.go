package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service/sources"
)

// MaxEndpointBytes limits the body of a change of one endpoint.
const MaxEndpointBytes = 64 << 10

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
// @Accept      json
// @Param       endpoint      body   EndpointEdit false "what to set"
// @Param       allow_empty   query  bool   false "allow a cluster without usable endpoints"
// @Param       If-Match      header string false "ETags of the assignment, one of which must match; * requires that it exists"
// @Param       If-None-Match header string false "*: requires that the cluster has no pushed assignment"
// @Success     200     {object} PushAnswer "changed or unchanged; with dry_run, what would change"
// @Success     201     {object} PushAnswer "added"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/endpoints/{address} [put]
func (h *handlers) putEndpoint(w http.ResponseWriter, r *http.Request) error {
	q, err := endpointRequest(w, r)
	if err != nil {
		return err
	}
	var edit EndpointEdit
	if err := readJSON(w, r, MaxEndpointBytes, &edit); err != nil {
		return err
	}
	q.Edit = sources.EndpointEdit{Weight: edit.Weight, Health: edit.Health, Hostname: edit.Hostname, Priority: edit.Priority, Locality: (*sources.Locality)(edit.Locality)}
	result, err := h.service.SetEndpoint(r.Context(), q)
	return writeResult(w, result, q.DryRun, err)
}

// @Summary     Remove one endpoint of a cluster
// @Description Changes the pushed ClusterLoadAssignment of the cluster. Its locality stays. Rejected with code blocked if it is the last usable one, unless allow_empty is set, and if the endpoints come from a file, a management server or DNS.
// @Param       allow_empty query  bool   false "allow a cluster without usable endpoints"
// @Param       If-Match    header string false "ETags of the assignment, one of which must match; * requires that it exists"
// @Success     200     {object} PushAnswer "what changed; etag is that of the assignment"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/endpoints/{address} [delete]
func (h *handlers) deleteEndpoint(w http.ResponseWriter, r *http.Request) error {
	q, err := endpointRequest(w, r)
	if err != nil {
		return err
	}
	result, err := h.service.RemoveEndpoint(r.Context(), q)
	return writeResult(w, result, q.DryRun, err)
}

// endpointRequest reads a change of one endpoint, without its body.
func endpointRequest(w http.ResponseWriter, r *http.Request) (*sources.EndpointRequest, error) {
	q := &sources.EndpointRequest{}
	var err error
	if q.Cluster, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	if q.Address, err = pathName(r, "address"); err != nil {
		return nil, err
	}
	q.ChangeOptions, err = readChange(w, r, parameter{name: "allow_empty", set: func(v value) string { return v.boolean(&q.AllowEmpty) }})
	return q, err
}
