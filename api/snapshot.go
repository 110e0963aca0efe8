package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
)

// MaxRemoved is the largest bound of how many resources a snapshot may take
// away.
const MaxRemoved = 1_000_000

// snapshots answers /v1/snapshot.
type snapshots struct{ service *service.Service }

// get answers with all that was pushed.
//
//	@Summary		Read all that was pushed
//	@Description	To keep it, or to push it elsewhere. The snapshot is empty where nothing was pushed; what comes from files is not in it.
//	@ID				getSnapshot
//	@Tags			resources
//	@Produce		json,application/yaml,application/x-protobuf
//	@Param			If-None-Match	header		string	false	"ETags that are known already"
//	@Success		200				{object}	object	"envoy.service.discovery.v3.DiscoveryResponse"
//	@Header			200,304			{string}	ETag	"strong: a hash of the content, with a suffix for the representation"
//	@Success		304				"it is what If-None-Match knows"
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

// put replaces all that was pushed.
//
//	@Summary		Replace all that was pushed
//	@Description	A DiscoveryResponse, whose version_info may be called version, of Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments. All of it holds or none; what was pushed before and is not in it is removed. Without a Content-Type a body that begins with a brace is JSON, else YAML. The answer comes when the push is durable and picks see it.
//	@ID				putSnapshot
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			snapshot		body		object		true	"envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
//	@Param			dry_run			query		bool		false	"tell what would change, and change nothing"
//	@Param			allow_empty		query		bool		false	"clusters may be left without a usable endpoint"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings; without it they are errors. Those of protobuf are always warnings"
//	@Param			max_removed		query		int			false	"refuse to remove more resources than that; without it, any number"	minimum(0)	maximum(1000000)
//	@Param			If-Match		header		string		false	"ETags, one of which must be the snapshot's"
//	@Param			If-None-Match	header		string		false	"*: never true, for there always is a snapshot"
//	@Success		200				{object}	PushAnswer	"replaced, or what it was; or what would change"
//	@Failure		400,403,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/snapshot [put]
func (s *snapshots) put(w http.ResponseWriter, r *http.Request) error {
	return s.push(w, r, true)
}

// post adds to what was pushed.
//
//	@Summary		Add to what was pushed
//	@Description	As PUT takes it; but what is not in the body stays as it is.
//	@ID				postSnapshot
//	@Tags			resources
//	@Accept			json,application/yaml,application/x-protobuf
//	@Produce		json
//	@Param			snapshot		body		object		true	"envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
//	@Param			dry_run			query		bool		false	"tell what would change, and change nothing"
//	@Param			allow_empty		query		bool		false	"clusters may be left without a usable endpoint"
//	@Param			strict			query		bool		false	"false: unknown fields of JSON and YAML are warnings; without it they are errors. Those of protobuf are always warnings"
//	@Param			If-Match		header		string		false	"ETags, one of which must be the snapshot's"
//	@Param			If-None-Match	header		string		false	"*: never true, for there always is a snapshot"
//	@Success		200				{object}	PushAnswer	"added, or what it was; or what would change"
//	@Failure		400,403,409,412,413,414,415,422,428,500,503,507	{object}	Problem
//	@Router			/v1/snapshot [post]
func (s *snapshots) post(w http.ResponseWriter, r *http.Request) error {
	return s.push(w, r, false)
}

var snapshotParameters = []parameter{{name: "dry_run"}, {name: "allow_empty"}, {name: "strict"}, {name: "max_removed"}}

func (s *snapshots) push(w http.ResponseWriter, r *http.Request, replace bool) error {
	p, err := snapshotRequest(w, r, replace)
	if err != nil {
		return err
	}
	result, err := s.service.PushSnapshot(r.Context(), p)
	if err != nil {
		return err
	}
	writeResult(w, http.StatusOK, result)
	return nil
}

// snapshotRequest is the push of a snapshot as the request says it. max_removed
// belongs to replacing only.
func snapshotRequest(w http.ResponseWriter, r *http.Request, replace bool) (*sources.SnapshotRequest, error) {
	p := &sources.SnapshotRequest{Replace: replace, From: from(r)}
	known := snapshotParameters
	if replace {
		p.MaxRemoved = -1
	} else {
		known = known[:len(known)-1]
	}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "dry_run":
			return v.boolean(&p.DryRun)
		case "allow_empty":
			return v.boolean(&p.AllowEmpty)
		case "strict":
			return v.strict(&p.Lenient)
		default:
			return v.integer(&p.MaxRemoved, 0, MaxRemoved)
		}
	})
	if err != nil {
		return nil, err
	}
	if p.Precondition, err = preconditions(r.Header); err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxSnapshotBytes)
	return p, err
}
