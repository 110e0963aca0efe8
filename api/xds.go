package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
)

// DefaultXDS is how many targets, and how many resources, GET /v1/xds lists without
// limit.
const DefaultXDS = 1000

// xds answers /v1/xds.
type xds struct{ service *service.Service }

// get answers with how lbd stands with its management servers.
//
//	@Summary		Look at the management servers
//	@Description	Which servers are connected, which of them each target uses, and the state of each resource that a target needs: with the reason where it was rejected (NACK), does not exist, or did not come. Each target, and each cluster on demand, falls back to another server by itself (gRFC A71).
//	@ID				getXDS
//	@Tags			targets
//	@Produce		json
//	@Param			type		query		string		false	"only resources of this type"			Enums(Listener,RouteConfiguration,Cluster,ClusterLoadAssignment)
//	@Param			state		query		string		false	"only resources in this state"			Enums(requested,acked,nacked,nacked_but_cached,does_not_exist,does_not_exist_but_cached,received_error,received_error_but_cached,timeout)
//	@Param			prefix		query		string		false	"only resources whose name begins so"	minlength(1)	maxlength(512)
//	@Param			target		query		string		false	"only this target and its resources: xds:///NAME, or cluster:NAME for a cluster that picks name"	minlength(1)	maxlength(520)
//	@Param			limit		query		int			false	"at most so many targets, and so many resources"	minimum(1)		maximum(10000)	default(1000)
//	@Success		200			{object}	sources.XDSState	"servers and resources"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/xds [get]
func (x *xds) get(w http.ResponseWriter, r *http.Request) error {
	f := sources.XDSFilter{Limit: DefaultXDS}
	known := []parameter{{name: "type"}, {name: "state"}, {name: "prefix"}, {name: "target"}, {name: "limit"}}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "type":
			return v.oneOf(&f.Type, sources.XDSTypes)
		case "state":
			return v.oneOf(&f.State, sources.XDSStates)
		case "prefix":
			return v.name(&f.Prefix)
		case "target":
			return v.limited(&f.Target, len("cluster:")+MaxNameBytes)
		default:
			return v.integer(&f.Limit, 1, MaxList)
		}
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, x.service.XDS(f))
	return nil
}

// oneOf takes one of some words.
func (v value) oneOf(to *string, words []string) string {
	if !slices.Contains(words, v.text) {
		return "one of " + strings.Join(words, ", ")
	}
	*to = v.text
	return ""
}
