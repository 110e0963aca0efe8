package api

import (
	"io/fs"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/audit"
)

// Options configure the handler. All fields but Dashboard are required.
type Options struct {
	Service *service.Service
	// Callers identifies who makes a request. If nil, every caller has all roles.
	Callers *listen.Callers
	// Audit gets one record for each request that requires the role push or admin; nil
	// without an audit log.
	Audit *audit.Log
	// Logger gets one record for each internal error. Requests are not logged otherwise.
	Logger *slog.Logger
	// OpenAPI is the contract that GET /openapi.yaml returns.
	OpenAPI []byte
	// Dashboard has index.html, which GET / returns, and its files in assets, whose names
	// change with their content. Without index.html, or if nil, GET / returns a page that
	// says that the dashboard was not built.
	Dashboard fs.FS
}

// New returns the handler of the API. It registers its metrics in the registry of the
// service, so there can be one handler per service. It starts no goroutines.
//
// A server for it should accept request lines of [MaxURLBytes]. Its WriteTimeout should
// allow picks that wait for 10 s; handlers that wait longer remove the deadline.
//
//	@title			lbd
//	@version		1
//	@description	Load balancing decisions of gRPC's xDS client, over HTTP. Durations are Go durations (250ms, 5s), times are RFC 3339 in UTC. Cluster names are percent-encoded in paths. Errors are RFC 9457 problems.
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
func New(o Options) http.Handler {
	r := &router{
		mux:     chi.NewRouter(),
		logger:  o.Logger,
		metrics: newMetrics(o.Service.Registry()),
		origins: http.NewCrossOriginProtection(),
		callers: o.Callers,
		audit:   o.Audit,
	}
	pick, read, push, admin, pages, public := r.as(access.Pick), r.as(access.Read), r.as(access.Push), r.as(access.Admin), r.as(access.Dashboard), r.as(0)

	p := &pickHandlers{service: o.Service}
	pick.of(filtered).get("/pick", p.get)
	pick.of(filtered).get("/v1/pick", p.get)
	pick.of(filtered).post("/pick", p.post)
	pick.of(filtered).post("/v1/pick", p.post)

	l := &leases{service: o.Service}
	pick.of(filtered).get("/v1/leases/{id}", l.get)
	pick.of(filtered).post("/v1/leases/{id}/done", l.done)
	pick.of(filtered).post("/v1/leases/{id}/renew", l.renew)
	pick.of(filtered).post("/v1/leases/done", l.doneMany)

	c := &clusters{service: o.Service}
	read.of(filtered).get("/v1/clusters", c.list)
	read.get("/v1/clusters/watch", c.watchAll) // a cluster of that name is at /v1/clusters/%77atch
	read.of(named).get("/v1/clusters/{name}", c.get)
	read.of(named).get("/v1/clusters/{name}/watch", c.watch)
	read.of(named).get("/v1/clusters/{name}/history", c.history)

	t := &targets{service: o.Service}
	read.of(filtered).get("/v1/targets", t.list)
	read.of(namedTarget).get("/v1/targets/{name}", t.get)
	push.of(namedTarget).put("/v1/targets/{name}", t.put)
	push.of(namedTarget).delete("/v1/targets/{name}", t.delete)
	x := &xds{service: o.Service}
	read.get("/v1/xds", x.get)

	e := &resources{service: o.Service}
	read.of(named).get("/v1/clusters/{name}/endpoints", e.getEndpoints)
	push.of(named).put("/v1/clusters/{name}/endpoints", e.putEndpoints)
	push.of(named).delete("/v1/clusters/{name}/endpoints", e.deleteEndpoints)
	read.of(named).get("/v1/clusters/{name}/config", e.getConfig)
	push.of(named).put("/v1/clusters/{name}/config", e.putConfig)
	push.of(named).delete("/v1/clusters/{name}/config", e.deleteConfig)

	s := &snapshots{service: o.Service}
	read.get("/v1/snapshot", s.get)
	push.put("/v1/snapshot", s.put)
	push.post("/v1/snapshot", s.post)
	f := &resourceFiles{service: o.Service}
	read.get("/v1/files", f.list)
	admin.post("/v1/files/held/{hash}/permit", f.permit)

	g := &daemon{service: o.Service}
	read.get("/v1/daemon", g.get)
	read.get("/v1/daemon/watch", g.watch)
	v := &events{service: o.Service}
	read.get("/v1/events", v.list)
	read.get("/v1/events/watch", v.watch)
	h := &health{service: o.Service}
	public.get("/livez", h.live)
	public.get("/readyz", h.ready)
	m := newExposition(o.Service.Registry(), o.Service, o.Logger)
	r.as(access.Metrics).get("/metrics", m.get)
	r.as(access.Metrics).get("/metrics/endpoints", m.getEndpoints)
	d := contract(o.OpenAPI)
	public.get("/openapi.yaml", d.get)
	b := newDashboard(o.Dashboard)
	pages.get("/", b.getHome)
	pages.get("/assets/{file}", b.getAsset)
	n := newProblemTypes()
	public.get("/problems/{code}", n.get)
	i := newPages()
	pages.get("/docs", i.getDocs)
	pages.get("/docs/{file}", i.getFile)

	r.unmatched()
	return r.mux
}
