package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// PushAnswer is the result of a push or deletion.
type PushAnswer struct {
	Generation int64 `json:"generation"`
	// ETag is the hash of the content, for If-Match; empty after a deletion. The ETag header
	// of GET adds a suffix for the representation, which If-Match ignores.
	ETag string `json:"etag"`
	// Changes is empty if the content is unchanged.
	Changes []difference.Change `json:"changes"`
	// Warnings list what may not have the expected effect, such as a field that lbd does not
	// apply.
	Warnings []fault.Problem `json:"warnings"`
	// Notes list what lbd filled in because it was absent: a name, a locality, the weights of
	// localities.
	Notes []fault.Problem `json:"notes"`
}

// resources serves /v1/clusters/{name}/endpoints and config.
type resources struct{ service *service.Service }

// getEndpoints returns a pushed ClusterLoadAssignment.
//
//	@Summary	Get the pushed endpoints
//	@ID			getEndpoints
//	@Tags		resources
//	@Produce	json,application/yaml,application/x-protobuf
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		If-None-Match	header		string	false	"ETags that the caller has"
//	@Success	200				{object}	object	"envoy.config.endpoint.v3.ClusterLoadAssignment"
//	@Header		200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success	304				"unchanged: If-None-Match has the ETag"
//	@Failure	400,404,414,500,503	{object}	Problem
//	@Router		/v1/clusters/{name}/endpoints [get]
func (e *resources) getEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.get(w, r, sources.Endpoints)
}

// putEndpoints stores a ClusterLoadAssignment.
//
//	@Summary		Push the endpoints of a cluster
//	@Description	A ClusterLoadAssignment, or a DiscoveryResponse with exactly one. Without Content-Type, a body that begins with a brace is JSON, any other is YAML. lbd answers when the push is on disk and picks use it.
//	@ID				putEndpoints
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			name			path		string					true	"the cluster's name, percent-encoded"
//	@Param			resource		body		object	true	"envoy.config.endpoint.v3.ClusterLoadAssignment, at most 32 MiB"
//	@Param			dry_run			query		bool					false	"return what would change, without changing it"
//	@Param			allow_empty		query		bool					false	"allow a cluster without usable endpoints"
//	@Param			strict			query		bool					false	"false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
//	@Param			If-Match		header		string					false	"ETags, one of which must match; * requires that the resource exists"
//	@Param			If-None-Match	header		string					false	"*: requires that the resource does not exist"
//	@Success		200				{object}	PushAnswer				"replaced or unchanged; with dry_run, what would change"
//	@Success		201				{object}	PushAnswer				"created"
//	@Failure		400,403,404,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/clusters/{name}/endpoints [put]
func (e *resources) putEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.put(w, r, sources.Endpoints)
}

// deleteEndpoints deletes a pushed ClusterLoadAssignment.
//
//	@Summary	Delete the pushed endpoints
//	@ID			deleteEndpoints
//	@Tags		resources
//	@Produce	json
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		dry_run			query		bool	false	"return what would change, without changing it"
//	@Param		If-Match		header		string	false	"ETags, one of which must match; * requires that the resource exists"
//	@Success	200				{object}	PushAnswer	"what changed"
//	@Failure	400,403,404,412,414,428,500,503,507	{object}	Problem
//	@Router		/v1/clusters/{name}/endpoints [delete]
func (e *resources) deleteEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.delete(w, r, sources.Endpoints)
}

// getConfig returns a pushed Cluster.
//
//	@Summary	Get the pushed config
//	@ID			getConfig
//	@Tags		resources
//	@Produce	json,application/yaml,application/x-protobuf
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		If-None-Match	header		string	false	"ETags that the caller has"
//	@Success	200				{object}	object	"envoy.config.cluster.v3.Cluster"
//	@Header		200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success	304				"unchanged: If-None-Match has the ETag"
//	@Failure	400,404,414,500,503	{object}	Problem
//	@Router		/v1/clusters/{name}/config [get]
func (e *resources) getConfig(w http.ResponseWriter, r *http.Request) error {
	return e.get(w, r, sources.Config)
}

// putConfig stores a Cluster.
//
//	@Summary		Push the config of a cluster
//	@Description	A Cluster, or a DiscoveryResponse with exactly one. Without Content-Type, a body that begins with a brace is JSON, any other is YAML. lbd answers when the push is on disk and picks use it.
//	@ID				putConfig
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			name			path		string		true	"the cluster's name, percent-encoded"
//	@Param			resource		body		object		true	"envoy.config.cluster.v3.Cluster, at most 32 MiB"
//	@Param			dry_run			query		bool		false	"return what would change, without changing it"
//	@Param			allow_empty		query		bool		false	"allow a cluster without usable endpoints"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
//	@Param			If-Match		header		string		false	"ETags, one of which must match; * requires that the resource exists"
//	@Param			If-None-Match	header		string		false	"*: requires that the resource does not exist"
//	@Success		200				{object}	PushAnswer	"replaced or unchanged; with dry_run, what would change"
//	@Success		201				{object}	PushAnswer	"created"
//	@Failure		400,403,404,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/clusters/{name}/config [put]
func (e *resources) putConfig(w http.ResponseWriter, r *http.Request) error {
	return e.put(w, r, sources.Config)
}

// deleteConfig deletes a pushed Cluster.
//
//	@Summary		Delete the pushed config
//	@Description	Rejected with code blocked if the config secures the connections to endpoints that remain: they would become plain.
//	@ID			deleteConfig
//	@Tags		resources
//	@Produce	json
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		dry_run			query		bool	false	"return what would change, without changing it"
//	@Param		If-Match		header		string	false	"ETags, one of which must match; * requires that the resource exists"
//	@Success	200				{object}	PushAnswer	"what changed"
//	@Failure	400,403,404,409,412,414,428,500,503,507	{object}	Problem
//	@Router		/v1/clusters/{name}/config [delete]
func (e *resources) deleteConfig(w http.ResponseWriter, r *http.Request) error {
	return e.delete(w, r, sources.Config)
}

func (e *resources) get(w http.ResponseWriter, r *http.Request, kind sources.Kind) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	as := accepted(r.Header)
	stored, err := e.service.Pushed(kind, name, as.format)
	if err != nil {
		return err
	}
	return writeStored(w, r, as, stored)
}

// writeStored writes a pushed resource, or status 304.
func writeStored(w http.ResponseWriter, r *http.Request, as *representation, stored *sources.Stored) error {
	same, err := unchanged(r.Header, stored.Hash, as.suffix)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", strongTag(stored.Hash, as.suffix))
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-cache") // cached, but revalidated
	if same {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", as.contentType)
	writeBody(w, http.StatusOK, stored.Body)
	return nil
}

func (e *resources) put(w http.ResponseWriter, r *http.Request, kind sources.Kind) error {
	p, err := pushRequest(w, r, kind)
	if err != nil {
		return err
	}
	result, err := e.service.Push(r.Context(), p)
	if err != nil {
		return err
	}
	writeResult(w, result, result.New && !p.DryRun)
	return nil
}

// pushRequest reads a push.
func pushRequest(w http.ResponseWriter, r *http.Request, kind sources.Kind) (*sources.PushRequest, error) {
	p := &sources.PushRequest{Kind: kind, From: from(w, r)}
	var err error
	if p.Cluster, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	err = readParameters(r.URL.RawQuery,
		parameter{name: "dry_run", set: func(v value) string { return v.boolean(&p.DryRun) }},
		parameter{name: "allow_empty", set: func(v value) string { return v.boolean(&p.AllowEmpty) }},
		parameter{name: "strict", set: func(v value) string { return v.strict(&p.Lenient) }},
	)
	if err != nil {
		return nil, err
	}
	if p.Precondition, err = preconditions(r.Header); err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxResourceBytes)
	return p, err
}

// readResources reads a body of resources and its format.
func readResources(w http.ResponseWriter, r *http.Request, most int64) ([]byte, sources.Format, error) {
	if _, err := formatOf(r.Header, nil); err != nil { // before the body is sent
		return nil, 0, err
	}
	body, err := readBody(w, r, most)
	if err != nil {
		return nil, 0, err
	}
	format, err := formatOf(r.Header, body)
	return body, format, err
}

func (e *resources) delete(w http.ResponseWriter, r *http.Request, kind sources.Kind) error {
	d, err := deleteRequest(w, r, kind)
	if err != nil {
		return err
	}
	result, err := e.service.Delete(r.Context(), d)
	if err != nil {
		return err
	}
	writeResult(w, result, false)
	return nil
}

// deleteRequest reads a deletion.
func deleteRequest(w http.ResponseWriter, r *http.Request, kind sources.Kind) (*sources.DeleteRequest, error) {
	d := &sources.DeleteRequest{Kind: kind, From: from(w, r)}
	var err error
	if d.Cluster, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	err = readParameters(r.URL.RawQuery, parameter{name: "dry_run", set: func(v value) string { return v.boolean(&d.DryRun) }})
	if err != nil {
		return nil, err
	}
	d.Precondition, err = preconditions(r.Header)
	return d, err
}

func writeResult(w http.ResponseWriter, result *sources.PushResult, created bool) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.(*recorder).changes = result.Changes //nolint:errcheck // handlers are called with no other
	writeJSON(w, status, PushAnswer{
		Generation: result.Generation, ETag: result.Hash,
		Changes: orEmpty(result.Changes), Warnings: orEmpty(result.Warnings), Notes: orEmpty(result.Notes),
	})
}

// orEmpty returns a list that is not null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
