package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service"
)

// DefaultXDS is how many resources GET /v1/xds lists that does not say.
const DefaultXDS = 1000

// xds answers /v1/xds.
type xds struct{ service *service.Service }

// get answers with how lbd stands with its management servers.
//
//	@Summary		Look at the management servers
//	@Description	Which are connected, and how far each resource is that they are asked for: with the reason where it was refused (NACK), does not exist, or did not come.
//	@ID				getXDS
//	@Tags			targets
//	@Produce		json
//	@Param			type		query		string		false	"only resources of this type"			Enums(Listener,RouteConfiguration,Cluster,ClusterLoadAssignment)
//	@Param			state		query		string		false	"only resources in this state"			Enums(requested,acked,nacked,nacked_but_cached,does_not_exist,timeout)
//	@Param			prefix		query		string		false	"only resources whose name begins so"	minlength(1)	maxlength(512)
//	@Param			limit		query		int			false	"at most so many resources"				minimum(1)		maximum(10000)	default(1000)
//	@Success		200			{object}	service.XDSState	"servers and resources"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/xds [get]
func (x *xds) get(w http.ResponseWriter, r *http.Request) error {
	f := service.XDSFilter{Limit: DefaultXDS}
	known := []parameter{{name: "type"}, {name: "state"}, {name: "prefix"}, {name: "limit"}}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "type":
			return v.oneOf(&f.Type, service.XDSTypes)
		case "state":
			return v.oneOf(&f.State, service.XDSStates)
		case "prefix":
			return v.name(&f.Prefix)
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
