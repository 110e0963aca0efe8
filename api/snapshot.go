package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
)

// MaxRemoved is the maximum of max_removed.
const MaxRemoved = 1_000_000

// snapshots serves /v1/snapshot.
type snapshots struct{ service *service.Service }

// get returns all pushed resources.
//
//	@Summary		Get all pushed resources
//	@Description	For a backup, or for another daemon. Resources of files and of management servers are not in the snapshot.
//	@ID				getSnapshot
//	@Tags			resources
//	@Produce		json,application/yaml,application/x-protobuf
//	@Param			If-None-Match	header		string	false	"ETags that the caller has"
//	@Success		200				{object}	object	"envoy.service.discovery.v3.DiscoveryResponse"
//	@Header			200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success		304				"unchanged: If-None-Match has the ETag"
//	@Failure		400,414,500,503	{object}	Problem
//	@Router			/v1/snapshot [get]
func (s *snapshots) get(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	as := accepted(r.Header)
	stored, err := s.service.Snapshot(as.format)
	if err != nil {
		return err
	}
	return writeStored(w, r, as, stored)
}

// put replaces all pushed resources.
//
//	@Summary		Replace all pushed resources
//	@Description	A DiscoveryResponse (version is accepted for version_info) with Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments. It is applied as a whole or not at all; pushed resources that it does not have are removed. Without Content-Type, a body that begins with a brace is JSON, any other is YAML. lbd answers when the push is on disk and picks use it.
//	@ID				putSnapshot
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			snapshot		body		object		true	"envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
//	@Param			dry_run			query		bool		false	"return what would change, without changing it"
//	@Param			allow_empty		query		bool		false	"allow clusters without usable endpoints"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
//	@Param			max_removed		query		int			false	"maximum number of resources to remove; default: no limit"	minimum(0)	maximum(1000000)
//	@Param			If-Match		header		string		false	"ETags, one of which must match"
//	@Param			If-None-Match	header		string		false	"* never matches, because a snapshot always exists"
//	@Success		200				{object}	PushAnswer	"replaced or unchanged; with dry_run, what would change"
//	@Failure		400,403,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/snapshot [put]
func (s *snapshots) put(w http.ResponseWriter, r *http.Request) error {
	return s.push(w, r, true)
}

// post adds resources.
//
//	@Summary		Add pushed resources
//	@Description	As PUT, but pushed resources that are not in the body stay.
//	@ID				postSnapshot
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			snapshot		body		object		true	"envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
//	@Param			dry_run			query		bool		false	"return what would change, without changing it"
//	@Param			allow_empty		query		bool		false	"allow clusters without usable endpoints"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
//	@Param			If-Match		header		string		false	"ETags, one of which must match"
//	@Param			If-None-Match	header		string		false	"* never matches, because a snapshot always exists"
//	@Success		200				{object}	PushAnswer	"added or unchanged; with dry_run, what would change"
//	@Failure		400,403,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/snapshot [post]
func (s *snapshots) post(w http.ResponseWriter, r *http.Request) error {
	return s.push(w, r, false)
}

func (s *snapshots) push(w http.ResponseWriter, r *http.Request, replace bool) error {
	p, err := snapshotRequest(w, r, replace)
	if err != nil {
		return err
	}
	result, err := s.service.PushSnapshot(r.Context(), p)
	if err != nil {
		return err
	}
	writeResult(w, result, false)
	return nil
}

// snapshotRequest reads the push of a snapshot. max_removed is only valid for replacing.
func snapshotRequest(w http.ResponseWriter, r *http.Request, replace bool) (*sources.SnapshotRequest, error) {
	p := &sources.SnapshotRequest{Replace: replace, From: from(w, r)}
	known := []parameter{
		{name: "dry_run", set: func(v value) string { return v.boolean(&p.DryRun) }},
		{name: "allow_empty", set: func(v value) string { return v.boolean(&p.AllowEmpty) }},
		{name: "strict", set: func(v value) string { return v.strict(&p.Lenient) }},
	}
	if replace {
		p.MaxRemoved = -1
		known = append(known, parameter{name: "max_removed", set: func(v value) string { return v.integer(&p.MaxRemoved, 0, MaxRemoved) }})
	}
	err := readParameters(r.URL.RawQuery, known...)
	if err != nil {
		return nil, err
	}
	if p.Precondition, err = preconditions(r.Header); err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxSnapshotBytes)
	return p, err
}
