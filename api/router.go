package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/api/accesslog"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/audit"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

// handler writes a response or returns an error. An error after the response has begun
// aborts the connection.
type handler func(w *recorder, r *http.Request) error

// router registers handlers for routes, each wrapped in a [route].
type router struct {
	mux     *chi.Mux
	logger  *slog.Logger
	metrics *metrics
	origins *http.CrossOriginProtection
	callers *listen.Callers
	audit   *audit.Log     // nil without
	access  *accesslog.Log // nil without
	limits  Limits
	index   *servedIndex
	// missing is that of [Index].
	missing func(error) error
	// Slots of what takes much memory.
	describing chan struct{} // of requests that describe a large cluster
	examining  chan struct{} // of the request that examines the daemon
	scrapes    chan struct{} // of those that gather metrics
	// endpointScrapes are those of /metrics/endpoints, which take longer.
	endpointScrapes chan struct{}

	routes map[string]*route // by method and pattern

	permission permission // of the routes that are added
}

// get also registers HEAD, for which the server omits the body.
func (r *router) get(pattern string, h handler) {
	r.route(http.MethodGet, pattern, h)
	r.route(http.MethodHead, pattern, h)
}

func (r *router) post(pattern string, h handler)   { r.route(http.MethodPost, pattern, h) }
func (r *router) put(pattern string, h handler)    { r.route(http.MethodPut, pattern, h) }
func (r *router) delete(pattern string, h handler) { r.route(http.MethodDelete, pattern, h) }

func (r *router) route(method, pattern string, h handler) {
	if !r.permission.set {
		panic(pattern + " requires nothing of its caller: add it to a router of as()")
	}
	e := &route{handle: h, router: r, series: r.metrics.of(pattern, method), permission: r.permission}
	r.mux.Method(method, pattern, e)
	r.routes[method+" "+pattern] = e
}

// unmatched registers the handler of requests that match no route. Its metrics have no path,
// and only methods of HTTP, so that callers cannot create series.
func (r *router) unmatched() {
	byMethod := map[string]*series{}
	for _, method := range methods {
		byMethod[method] = r.metrics.of(noRoute, method)
	}
	other := r.metrics.of(noRoute, "other")
	answer := func(w http.ResponseWriter, request *http.Request) {
		s, ok := byMethod[request.Method]
		if !ok {
			s = other
		}
		(&route{handle: r.refuseUnmatched, router: r, series: s}).ServeHTTP(w, request)
	}
	r.mux.NotFound(answer)
	r.mux.MethodNotAllowed(answer)
}

// noRoute is the route label of requests that match no route.
const noRoute = "none"

// methods are the methods of HTTP, in the order of an Allow header.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

func (r *router) refuseUnmatched(w *recorder, request *http.Request) error {
	path := request.URL.RawPath
	if path == "" {
		path = request.URL.Path
	}
	allowed := r.allowed(path)
	if len(allowed) == 0 {
		return fault.Errorf(notFound, "%s not found; see GET /openapi.yaml", fault.Clip(path))
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return fault.Errorf(methodNotAllowed, "%s supports %s, not %s", fault.Clip(path), strings.Join(allowed, ", "), fault.Clip(request.Method))
}

// allowed returns the methods of the resource at a path. A resource with a name of its own, such as
// /v1/leases/done, has none of those of /v1/leases/{id}.
func (r *router) allowed(path string) []string {
	var all, own []string
	for _, method := range methods {
		switch r.mux.Find(chi.NewRouteContext(), method, path) {
		case "":
			continue
		case path:
			own = append(own, method)
		}
		all = append(all, method)
	}
	if own != nil {
		return own
	}
	return all
}

// route wraps a handler: limits, metrics, errors and panics.
type route struct {
	handle     handler
	router     *router
	series     *series
	permission permission
}

// MaxURLBytes is the maximum length of the encoded path and query.
const MaxURLBytes = 32 << 10

var nosniff = []string{"nosniff"}

func (e *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rec := recorders.Get().(*recorder) //nolint:errcheck // the pool holds nothing else
	rec.ResponseWriter, rec.status, rec.bytes, rec.router = w, 0, 0, e.router
	rec.loop, _ = w.(NonBlocking)
	handedOver := false
	defer func() {
		switch {
		case handedOver:
			rec.loop.HandOver()
			rec.free()
		case rec.stream != nil:
			e.lasts(rec, r, start)
		default:
			e.record(rec, r, start)
			e.done(rec, e.accessEntry(rec, r, start), start)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			e.panicked(rec, r, v)
		}
	}()
	h := w.Header()
	h["X-Content-Type-Options"] = nosniff
	h[indexHeader] = e.router.index.value()
	err := e.answer(rec, r, start)
	if handedOver = rec.loop != nil && (err == errHandOver || err == picks.ErrWouldWait); handedOver { //nolint:errorlint // the handlers of picks return them bare
		if rec.account != nil {
			rec.account.Refund(1) // what admit has counted
		}
		return
	}
	if err != nil {
		e.refuse(rec, r, err)
	}
	if rec.status == 0 { // the implicit status of the server
		rec.status = http.StatusOK
	}
}

// lasts leaves the end of a request to its response.
func (e *route) lasts(w *recorder, r *http.Request, start time.Time) {
	entry := e.accessEntry(w, r, start)
	w.stream.Last(w.caller, func() { e.done(w, entry, start) })
	w.ResponseWriter, w.loop = nil, nil
}

func (e *route) answer(w *recorder, r *http.Request, now time.Time) error {
	if len(r.URL.Path)+len(r.URL.RawQuery) > MaxURLBytes {
		return fault.Errorf(uriTooLong, "path and query are longer than %d bytes", MaxURLBytes)
	}
	if err := e.authorize(w, r, now); err != nil {
		return err
	}
	if err := e.router.origins.Check(r); err != nil {
		return fault.Errorf(listen.PermissionDenied, "requests of web pages of other origins are not allowed: %v", err)
	}
	if err := e.admit(w, r, now); err != nil {
		return err
	}
	if err := e.handle(w, r); err != nil {
		return whileWaiting(w, r, e.router.missing(err))
	}
	return nil
}

// refuse writes err as a problem. It logs internal errors.
func (e *route) refuse(w *recorder, r *http.Request, err error) {
	refused := refusalOf(r.Context(), err)
	w.code = refused.Code
	switch refused.Code {
	case fault.Internal:
		e.log(w, r, "request failed", slog.Any("error", err))
		refused = &fault.Error{Code: fault.Internal, Detail: "internal error; see the log of lbd"}
	case fault.StorageFailed:
		e.log(w, r, "push was not stored", slog.Any("error", err))
	case fault.CallerGone:
		if w.status == 0 {
			w.WriteHeader(statusCallerGone)
		}
		return
	default:
	}
	if w.status != 0 {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	p := problemOf(refused)
	if e, ok := errors.AsType[*picks.ExplainedError](err); ok {
		p.Explain, p.Holders = e.Explain, e.Holders
	}
	writeProblem(w, p)
}

// panicked ends a request whose handler panicked with v. It aborts the connection if the
// response has begun, or if the handler asked for that.
func (e *route) panicked(w *recorder, r *http.Request, v any) {
	if v != http.ErrAbortHandler { //nolint:errorlint // net/http panics with it bare
		e.log(w, r, "handler panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		if w.status == 0 {
			writeProblem(w, problemOf(fault.Errorf(fault.Internal, "internal error; see the log of lbd")))
			return
		}
	}
	panic(http.ErrAbortHandler)
}

func (e *route) log(w *recorder, r *http.Request, message string, attrs ...slog.Attr) {
	attrs = append(attrs,
		slog.String("method", r.Method), slog.String("path", fault.Clip(r.URL.Path)), slog.String("from", from(w, r)))
	//nolint:sloglint // callers pass constants
	e.router.logger.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelError, message, attrs...)
}

// refusalOf returns err as an error of the service. Any other error, or one with an unknown
// code, is CallerGone if the caller has disconnected, else Internal.
func refusalOf(ctx context.Context, err error) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok && answers[e.Code].status != 0 {
		return e
	}
	if ctx.Err() != nil {
		return &fault.Error{Code: fault.CallerGone, Detail: err.Error()}
	}
	return &fault.Error{Code: fault.Internal, Detail: err.Error()}
}

// from returns who makes a request, for events: the name of the caller, or the address of
// one without identity.
func from(w *recorder, r *http.Request) string {
	if c := w.caller; c != nil && c.Name != "" {
		return c.Name
	}
	return addressOf(r)
}

// addressOf returns the address of the peer, or unix.
func addressOf(r *http.Request) string {
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return "unix"
	}
	return r.RemoteAddr
}
