package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/sources"
)

// DefaultXDS is the default limit of the targets, and of the resources, of GET /v1/xds.
const DefaultXDS = 1000

// @Summary     Get the state of the management servers
// @Description Which servers are connected, which server each target uses, and the state of each resource that a target needs, with the reason if it was rejected (NACK), does not exist, or was not received. Each target and each on-demand cluster falls back to another server independently (gRFC A71). A caller with clusters gets its own targets and their resources, without those of other clusters; counts are of these, and there are no load reports, unapplied fields and counts of on-demand clusters.
// @Param       type   query string false "only resources of this type" Enums(Listener,RouteConfiguration,Cluster,ClusterLoadAssignment)
// @Param       state  query string false "only resources in this state" Enums(requested,acked,nacked,nacked_but_cached,does_not_exist,does_not_exist_but_cached,received_error,received_error_but_cached,timeout)
// @Param       prefix query string false "only resources whose name begins with this" minlength(1) maxlength(512)
// @Param       target query string false "only this target and its resources: xds:///NAME, or cluster:NAME for an on-demand cluster" minlength(1) maxlength(520)
// @Param       limit  query int    false "maximum number of targets, and of resources" minimum(1) maximum(10000) default(1000)
// @Success     200 {object} sources.XDSState "servers and resources"
// @Router      /v1/xds [get]
func (h *handlers) getXDS(w *recorder, r *http.Request) error {
	f := sources.XDSFilter{Limit: DefaultXDS, Scope: scopeOf(w)}
	err := h.readServed(w, r,
		parameter{name: "type", set: func(v value) string { return v.oneOf(&f.Type, sources.XDSTypes) }},
		parameter{name: "state", set: func(v value) string { return v.oneOf(&f.State, sources.XDSStates) }},
		parameter{name: "prefix", set: func(v value) string { return v.name(&f.Prefix) }},
		parameter{name: "target", set: func(v value) string { return v.limited(&f.Target, len("cluster:")+MaxNameBytes) }},
		parameter{name: "limit", set: func(v value) string { return v.integer(&f.Limit, 1, MaxList) }},
	)
	if err != nil {
		return err
	}
	if err := takeTurnOf(w, r, h.State.CountClusters(), clusterBytes); err != nil {
		return err
	}
	return reply(w, h.Resources.XDS(f), nil)
}

// oneOf stores one of the given words.
func (v value) oneOf(to *string, words []string) string {
	if !slices.Contains(words, v.text) {
		return "one of " + strings.Join(words, ", ")
	}
	*to = v.text
	return ""
}
