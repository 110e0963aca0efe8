package api

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/picks"
)

// New returns the handler of the API. It registers metrics in Metrics, so there can be one handler
// for these. It starts no goroutines.
//
// A server for it should accept request lines of [MaxURLBytes]. Its WriteTimeout should
// allow picks that wait for 10 s; handlers that wait longer extend the deadline.
//
//	@title			lbd
//	@version		1
//	@description	Load balancing decisions of gRPC's xDS client, over HTTP. Durations are Go durations (250ms, 5s), times are RFC 3339 in UTC. Cluster names are percent-encoded in paths. Errors are RFC 9457 problems. Each response has the index of the store that picks use, in Lbd-Index.
//	@accept			json
//	@license.name	Apache-2.0
//	@license.url	https://www.apache.org/licenses/LICENSE-2.0
//	@tag.name			picks
//	@tag.description	Load balancing decisions
//	@tag.name			leases
//	@tag.description	Picks that count as in flight until their request is done
//	@tag.name			clusters
//	@tag.description	Clusters and their state
//	@tag.name			targets
//	@tag.description	Targets whose routes choose the cluster of a pick
//	@tag.name			resources
//	@tag.description	Pushing xDS resources
//	@tag.name			daemon
//	@tag.description	Events, health, metrics and this contract
func New(o Options) *Handler {
	r := &router{
		mux:        chi.NewRouter(),
		logger:     o.Logger,
		metrics:    newMetrics(o.Metrics),
		origins:    http.NewCrossOriginProtection(),
		callers:    o.Callers,
		audit:      o.Audit,
		access:     o.AccessLog,
		limits:     o.Limits,
		index:      &servedIndex{index: o.Index.Index},
		missing:    o.Index.Missing,
		describing: make(chan struct{}, max(1, overload.CPUs()/2)), examining: make(chan struct{}, 1),
		scrapes: make(chan struct{}, 1), endpointScrapes: make(chan struct{}, 1),

		routes: make(map[string]*route),
	}
	pick, read, push, admin, pages, public := r.as(access.Pick), r.as(access.Read), r.as(access.Push), r.as(access.Admin), r.as(access.Dashboard), r.as(0)

	o.Limits.MaxTTL = cmp.Or(o.Limits.MaxTTL, picks.MaxTTL)
	h := (*handlers)(&o)
	pick.of(filtered).get("/pick", h.getPick)
	pick.of(filtered).get("/v1/pick", h.getPick)
	pick.of(filtered).post("/pick", h.postPick)
	pick.of(filtered).post("/v1/pick", h.postPick)

	pick.orAs(access.Read).of(filtered).doing(reading).get("/v1/leases", h.listLeases)
	pick.orAs(access.Admin).of(filtered).delete("/v1/leases", h.deleteLeases)
	pick.of(filtered).get("/v1/leases/{id}", h.getLease)
	pick.of(filtered).post("/v1/leases/{id}/done", h.endLease)
	pick.of(filtered).post("/v1/leases/{id}/renew", h.renewLease)
	pick.of(filtered).post("/v1/leases/done", h.endLeases)
	pick.of(filtered).post("/v1/reports", h.postReport)

	read.of(filtered).doing(reading).get("/v1/clusters", h.listClusters)
	read.of(filtered).doing(streaming).get("/v1/clusters/watch", h.watchClusters) // a cluster of that name is at /v1/clusters/%77atch
	read.of(named).doing(reading).get("/v1/clusters/{name}", h.getCluster)
	read.of(named).doing(streaming).get("/v1/clusters/{name}/watch", h.watchCluster)
	read.of(named).doing(reading).get("/v1/clusters/{name}/history", h.getClusterHistory)
	push.of(named).post("/v1/clusters/{name}/reconnect", h.reconnectCluster)

	read.of(filtered).doing(reading).get("/v1/targets", h.listTargets)
	read.of(namedTarget).get("/v1/targets/{name}", h.getTarget)
	push.of(namedTarget).doing(pushing).put("/v1/targets/{name}", h.putTarget)
	push.of(namedTarget).doing(pushing).delete("/v1/targets/{name}", h.deleteTarget)
	read.of(filtered).doing(reading).get("/v1/xds", h.getXDS)

	read.of(named).doing(reading).get("/v1/clusters/{name}/endpoints", h.getEndpoints)
	push.of(named).doing(pushing).put("/v1/clusters/{name}/endpoints", h.putEndpoints)
	push.of(named).doing(pushing).delete("/v1/clusters/{name}/endpoints", h.deleteEndpoints)
	push.of(named).doing(pushing).put("/v1/clusters/{name}/endpoints/{address}", h.putEndpoint)
	push.of(named).doing(pushing).delete("/v1/clusters/{name}/endpoints/{address}", h.deleteEndpoint)
	push.of(filtered).post("/v1/renewals", h.renewEndpoints)
	read.of(named).get("/v1/clusters/{name}/config", h.getConfig)
	push.of(named).doing(pushing).put("/v1/clusters/{name}/config", h.putConfig)
	push.of(named).doing(pushing).delete("/v1/clusters/{name}/config", h.deleteConfig)

	read.of(named).doing(reading).get("/v1/clusters/{name}/overlays", h.listClusterOverlays)
	read.of(named).doing(reading).get("/v1/clusters/{name}/overlays/{id}", h.getOverlay)
	push.of(named).doing(pushing).put("/v1/clusters/{name}/overlays/{id}", h.putOverlay)
	push.of(named).doing(pushing).delete("/v1/clusters/{name}/overlays/{id}", h.deleteOverlay)
	read.of(filtered).doing(reading).get("/v1/overlays", h.served(h.listOverlays))

	read.of(filtered).doing(snapshotting).get("/v1/snapshot", h.served(h.getSnapshot))
	push.doing(snapshotting).put("/v1/snapshot", h.putSnapshot)
	push.doing(snapshotting).post("/v1/snapshot", h.postSnapshot)
	read.of(filtered).doing(reading).get("/v1/history", h.listChanges)
	read.of(filtered).doing(reading).get("/v1/history/{index}", h.getChange)
	read.of(filtered).doing(snapshotting).get("/v1/history/{index}/diff", h.getDifference)
	push.of(filtered).doing(snapshotting).post("/v1/history/{index}/restore", h.restore)
	read.of(filtered).doing(reading).get("/v1/files", h.served(h.listFiles))
	admin.post("/v1/files/held/{hash}/permit", h.permitFiles)

	read.of(filtered).get("/v1/store", h.served(h.getStore))
	read.of(filtered).get("/v1/daemon", h.served(h.getDaemon))
	read.of(filtered).doing(streaming).get("/v1/daemon/watch", h.served(h.watchDaemon))
	read.of(filtered).doing(reading).get("/v1/fleet", h.served(h.getFleet))
	read.of(filtered).doing(reading).get("/v1/doctor", h.getDoctor)
	read.of(filtered).doing(reading).get("/v1/events", h.listEvents)
	read.of(filtered).doing(streaming).get("/v1/events/watch", h.watchEvents)
	public.get("/livez", h.livez)
	public.get("/readyz", h.readyz)
	r.as(access.Metrics).of(filtered).get("/metrics", h.getMetrics)
	r.as(access.Metrics).of(filtered).get("/metrics/endpoints", h.getEndpointMetrics)
	public.get("/openapi.yaml", contract(o.OpenAPI).getContract)
	b := newDashboard(o.Dashboard)
	pages.get("/", b.getHome)
	pages.get("/assets/{file}", b.getAsset)
	public.get("/problems/{code}", getProblemType)
	i := newPages()
	pages.get("/docs", i.getDocs)
	pages.get("/docs/{file}", i.getDocsFile)

	r.unmatched()
	return &Handler{Mux: r.mux, routes: r.routes}
}

// Handler serves the API.
type Handler struct {
	*chi.Mux

	routes map[string]*route
}

// Route returns the handler of one route, such as "GET /v1/leases/{id}", for a server that chooses
// the route itself; nil if there is none. The parameters in the path are those of the chi.Context of
// the request.
func (h *Handler) Route(pattern string) http.Handler {
	if e, ok := h.routes[pattern]; ok {
		return e
	}
	return nil
}
