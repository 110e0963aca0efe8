package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service/sources"
)

// MaxRemoved is the maximum of max_removed.
const MaxRemoved = 1_000_000

// @Summary     Get all pushed resources
// @Description For a backup, or for another daemon. Resources of files and of management servers are not in the snapshot. A caller with clusters gets the resources of these names, with an ETag of their own; it cannot PUT or POST a snapshot.
// @Produce     json,application/yaml,application/x-protobuf
// @Success     200     {object} object "envoy.service.discovery.v3.DiscoveryResponse"
// @Header      200,304 {string} ETag   "strong: a hash of the content, with a suffix for the representation"
// @Success     304     "unchanged: If-None-Match has the ETag"
// @Router      /v1/snapshot [get]
func (h *handlers) getSnapshot(w *recorder, r *http.Request) error {
	as := accepted(r.Header)
	stored, err := h.Resources.Snapshot(reserving(w, r), turnName(w, r), scopeOf(w), as.format)
	return writeStored(w, r, as, stored, err)
}

// @Summary     Replace all pushed resources
// @Description A DiscoveryResponse (version is accepted for version_info) with Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments. It is applied as a whole or not at all; pushed resources that it does not have are removed. Without Content-Type, a body that begins with a brace is JSON, any other is YAML. lbd answers when the push is on disk and picks use it.
// @Accept      json,application/yaml,application/x-protobuf
// @Param       snapshot      body   object true  "envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
// @Param       allow_empty   query  bool   false "allow clusters without usable endpoints"
// @Param       strict        query  bool   false "false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
// @Param       max_removed   query  int    false "maximum number of resources to remove; default: no limit" minimum(0) maximum(1000000)
// @Param       If-Match      header string false "ETags, one of which must match"
// @Param       If-None-Match header string false "* never matches, because a snapshot always exists"
// @Success     200     {object} PushAnswer "replaced or unchanged; with dry_run, what would change"
// @Failure     409,422 {object} Problem
// @Router      /v1/snapshot [put]
func (h *handlers) putSnapshot(w *recorder, r *http.Request) error {
	return h.pushSnapshot(w, r, true)
}

// @Summary     Add pushed resources
// @Description As PUT, but pushed resources that are not in the body stay.
// @Accept      json,application/yaml,application/x-protobuf
// @Param       snapshot      body   object true  "envoy.service.discovery.v3.DiscoveryResponse, at most 64 MiB"
// @Param       allow_empty   query  bool   false "allow clusters without usable endpoints"
// @Param       strict        query  bool   false "false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
// @Param       If-Match      header string false "ETags, one of which must match"
// @Param       If-None-Match header string false "* never matches, because a snapshot always exists"
// @Success     200     {object} PushAnswer "added or unchanged; with dry_run, what would change"
// @Failure     409,422 {object} Problem
// @Router      /v1/snapshot [post]
func (h *handlers) postSnapshot(w *recorder, r *http.Request) error {
	return h.pushSnapshot(w, r, false)
}

func (h *handlers) pushSnapshot(w *recorder, r *http.Request, replace bool) error {
	p, err := snapshotRequest(w, r, replace)
	if err != nil {
		return err
	}
	result, err := h.Changes.PushSnapshot(reserving(w, r), p)
	return writeResult(w, result, p.Options.DryRun, err)
}

// snapshotRequest reads the push of a snapshot. max_removed is only valid for replacing.
func snapshotRequest(w *recorder, r *http.Request, replace bool) (*sources.SnapshotRequest, error) {
	p := &sources.SnapshotRequest{Replace: replace}
	more := pushParameters(&p.Options, &p.Lenient)
	if replace {
		p.MaxRemoved = -1
		more = append(more, parameter{name: "max_removed", set: func(v value) string { return v.integer(&p.MaxRemoved, 0, MaxRemoved) }})
	}
	err := readChange(w, r, &p.Options, more...)
	if err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxSnapshotBytes)
	return p, err
}
