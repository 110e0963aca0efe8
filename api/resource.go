package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// PushAnswer tells what a push or a deletion did.
type PushAnswer struct {
	Generation int64 `json:"generation"`
	// ETag is the content's hash, for If-Match; empty after a deletion. The
	// ETag header of GET adds a suffix for the representation, which If-Match
	// does not look at.
	ETag string `json:"etag"`
	// Changes is empty where the content is what it was.
	Changes []difference.Change `json:"changes"`
	// Warnings are what probably does not do what its author expects, such as a
	// field that lbd does not apply.
	Warnings []fault.Problem `json:"warnings"`
	// Notes are what lbd filled in because it is absent: a name, a locality, the
	// weights of localities.
	Notes []fault.Problem `json:"notes"`
}

// resources answers /v1/clusters/{name}/endpoints and config.
type resources struct{ service *service.Service }

// getEndpoints answers with a pushed ClusterLoadAssignment.
//
//	@Summary	Read the endpoints that were pushed
//	@ID			getEndpoints
//	@Tags		resources
//	@Produce	json,application/yaml,application/x-protobuf
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		If-None-Match	header		string	false	"ETags that are known already"
//	@Success	200				{object}	object	"envoy.config.endpoint.v3.ClusterLoadAssignment"
//	@Header		200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success	304				"it is what If-None-Match knows"
//	@Failure	400,404,414,500,503	{object}	Problem
//	@Router		/v1/clusters/{name}/endpoints [get]
func (e *resources) getEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.get(w, r, sources.Endpoints)
}

// putEndpoints takes a ClusterLoadAssignment.
//
//	@Summary		Push the endpoints of a cluster
//	@Description	A ClusterLoadAssignment, or a DiscoveryResponse that holds just one. Without a Content-Type a body that begins with a brace is JSON, else YAML. The answer comes when the push is durable and picks see it.
//	@ID				putEndpoints
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			name			path		string					true	"the cluster's name, percent-encoded"
//	@Param			resource		body		object	true	"envoy.config.endpoint.v3.ClusterLoadAssignment, at most 32 MiB"
//	@Param			dry_run			query		bool					false	"tell what would change, and change nothing"
//	@Param			allow_empty		query		bool					false	"the cluster may be left without a usable endpoint"
//	@Param			strict			query		bool					false	"false: unknown fields of JSON and YAML are warnings; without it they are errors. Those of protobuf are always warnings"
//	@Param			If-Match		header		string					false	"ETags, one of which must be the resource's; * asks that it exists"
//	@Param			If-None-Match	header		string					false	"*: only if there is none"
//	@Success		200				{object}	PushAnswer				"replaced, or what it was; or what would change"
//	@Success		201				{object}	PushAnswer				"new"
//	@Failure		400,403,404,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/clusters/{name}/endpoints [put]
func (e *resources) putEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.put(w, r, sources.Endpoints)
}

// deleteEndpoints takes a pushed ClusterLoadAssignment away.
//
//	@Summary	Delete the endpoints that were pushed
//	@ID			deleteEndpoints
//	@Tags		resources
//	@Produce	json
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		dry_run			query		bool	false	"tell what would change, and change nothing"
//	@Param		If-Match		header		string	false	"ETags, one of which must be the resource's; * asks that it exists"
//	@Success	200				{object}	PushAnswer	"what changed"
//	@Failure	400,403,404,412,414,428,500,503,507	{object}	Problem
//	@Router		/v1/clusters/{name}/endpoints [delete]
func (e *resources) deleteEndpoints(w http.ResponseWriter, r *http.Request) error {
	return e.delete(w, r, sources.Endpoints)
}

// getConfig answers with a pushed Cluster.
//
//	@Summary	Read the config that was pushed
//	@ID			getConfig
//	@Tags		resources
//	@Produce	json,application/yaml,application/x-protobuf
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		If-None-Match	header		string	false	"ETags that are known already"
//	@Success	200				{object}	object	"envoy.config.cluster.v3.Cluster"
//	@Header		200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success	304				"it is what If-None-Match knows"
//	@Failure	400,404,414,500,503	{object}	Problem
//	@Router		/v1/clusters/{name}/config [get]
func (e *resources) getConfig(w http.ResponseWriter, r *http.Request) error {
	return e.get(w, r, sources.Config)
}

// putConfig takes a Cluster.
//
//	@Summary		Push the config of a cluster
//	@Description	A Cluster, or a DiscoveryResponse that holds just one. Without a Content-Type a body that begins with a brace is JSON, else YAML. The answer comes when the push is durable and picks see it.
//	@ID				putConfig
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			name			path		string		true	"the cluster's name, percent-encoded"
//	@Param			resource		body		object		true	"envoy.config.cluster.v3.Cluster, at most 32 MiB"
//	@Param			dry_run			query		bool		false	"tell what would change, and change nothing"
//	@Param			allow_empty		query		bool		false	"the cluster may be left without a usable endpoint"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings; without it they are errors. Those of protobuf are always warnings"
//	@Param			If-Match		header		string		false	"ETags, one of which must be the resource's; * asks that it exists"
//	@Param			If-None-Match	header		string		false	"*: only if there is none"
//	@Success		200				{object}	PushAnswer	"replaced, or what it was; or what would change"
//	@Success		201				{object}	PushAnswer	"new"
//	@Failure		400,403,404,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/clusters/{name}/config [put]
func (e *resources) putConfig(w http.ResponseWriter, r *http.Request) error {
	return e.put(w, r, sources.Config)
}

// deleteConfig takes a pushed Cluster away.
//
//	@Summary		Delete the config that was pushed
//	@Description	Refused as blocked if it secures the connections to endpoints that stay: they would be plain.
//	@ID			deleteConfig
//	@Tags		resources
//	@Produce	json
//	@Param		name			path		string	true	"the cluster's name, percent-encoded"
//	@Param		dry_run			query		bool	false	"tell what would change, and change nothing"
//	@Param		If-Match		header		string	false	"ETags, one of which must be the resource's; * asks that it exists"
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

// writeStored answers with what was pushed, or that the caller knows it.
func writeStored(w http.ResponseWriter, r *http.Request, as *representation, stored *sources.Stored) error {
	same, err := unchanged(r.Header, stored.Hash, as.suffix)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", strongTag(stored.Hash, as.suffix))
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-cache") // to be kept, and asked again about
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
	status := http.StatusOK
	if result.New && !p.DryRun {
		status = http.StatusCreated
	}
	writeResult(w, status, result)
	return nil
}

// pushRequest is a push as the request says it.
func pushRequest(w http.ResponseWriter, r *http.Request, kind sources.Kind) (*sources.PushRequest, error) {
	p := &sources.PushRequest{Kind: kind, From: from(r)}
	var err error
	if p.Cluster, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	known := []parameter{{name: "dry_run"}, {name: "allow_empty"}, {name: "strict"}}
	err = readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "dry_run":
			return v.boolean(&p.DryRun)
		case "allow_empty":
			return v.boolean(&p.AllowEmpty)
		default:
			return v.strict(&p.Lenient)
		}
	})
	if err != nil {
		return nil, err
	}
	if p.Precondition, err = preconditions(r.Header); err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxResourceBytes)
	return p, err
}

// readResources reads a body of resources, and how it is written.
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
	d, err := deleteRequest(r, kind)
	if err != nil {
		return err
	}
	result, err := e.service.Delete(r.Context(), d)
	if err != nil {
		return err
	}
	writeResult(w, http.StatusOK, result)
	return nil
}

// deleteRequest is a deletion as the request says it.
func deleteRequest(r *http.Request, kind sources.Kind) (*sources.DeleteRequest, error) {
	d := &sources.DeleteRequest{Kind: kind, From: from(r)}
	var err error
	if d.Cluster, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	err = readQuery(r.URL.RawQuery, []parameter{{name: "dry_run"}}, func(_ string, v value) string {
		return v.boolean(&d.DryRun)
	})
	if err != nil {
		return nil, err
	}
	d.Precondition, err = preconditions(r.Header)
	return d, err
}

func writeResult(w http.ResponseWriter, status int, result *sources.PushResult) {
	answer := PushAnswer{
		Generation: result.Generation, ETag: result.Hash,
		Changes: result.Changes, Warnings: result.Warnings, Notes: result.Notes,
	}
	if answer.Changes == nil {
		answer.Changes = []difference.Change{}
	}
	if answer.Warnings == nil {
		answer.Warnings = []fault.Problem{}
	}
	if answer.Notes == nil {
		answer.Notes = []fault.Problem{}
	}
	writeJSON(w, status, answer)
}
