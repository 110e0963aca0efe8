package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
)

// The codes of errors that the service does not have.
const (
	notFound         fault.Code = "not_found"
	methodNotAllowed fault.Code = "method_not_allowed"
	uriTooLong       fault.Code = "uri_too_long"
	overloaded       fault.Code = "overloaded"
)

// statusCallerGone is the status in metrics if the caller has disconnected. nginx uses the
// same number.
const statusCallerGone = 499

// answer describes the response for a code.
type answer struct {
	status int
	title  string
	// retries is true if the response says when to retry, where a retry can help.
	retries bool
	// means and fix are the texts of GET /problems/CODE: what happened, and what the caller
	// or the operator can do.
	means, fix string
}

// answers has a row for each code. Only this table chooses a status.
var answers = map[fault.Code]answer{
	fault.InvalidArgument: {
		status: http.StatusBadRequest, title: "Invalid argument",
		means: "A parameter, a header or the body has an invalid value, or the path does not have the parameter.",
		fix:   "detail names the parameter and its valid values. Do not retry the same request.",
	},
	listen.Unauthenticated: {
		status: http.StatusUnauthorized, title: "Unauthenticated",
		means: "The request has no valid token or client certificate, and callers without identity do not have the role that it requires.",
		fix:   "Send Authorization: Bearer TOKEN with a token of --tokens, or a client certificate. detail names the missing role, or what is wrong with the credentials.",
	},
	listen.PermissionDenied: {
		status: http.StatusForbidden, title: "Permission denied",
		means: "The caller lacks a role, may not use the cluster, or what a resource names, or is a web page of another origin.",
		fix:   "detail names the missing role, or the name. Add it to the caller's entry in --tokens, or to the listener. A web page calls lbd through its own server.",
	},
	listen.MisdirectedRequest: {
		status: http.StatusMisdirectedRequest, title: "Misdirected request",
		means: "The Host header is not an IP address, localhost or a name of --allow-host. This protects a listener without identity from web pages that use DNS rebinding.",
		fix:   "Call lbd by IP address or as localhost, or add the name with --allow-host.",
	},
	notFound: {
		status: http.StatusNotFound, title: "Not found",
		means: "The path does not exist.",
		fix:   "/openapi.yaml and /docs list all paths. Percent-encode cluster names in a path.",
	},
	fault.UnknownCluster: {
		status: http.StatusNotFound, title: "Unknown cluster",
		means: "No push, no file and no management server has the cluster, or the requested resource of the cluster.",
		fix:   "Check the name in GET /v1/clusters. Push the cluster's endpoints to /v1/clusters/NAME/endpoints, or add it to the resource directory or the management server.",
	},
	fault.UnknownTarget: {
		status: http.StatusNotFound, title: "Unknown target",
		means: "lbd does not host the target, or has no Listener or routes for it yet.",
		fix:   "Check the name in GET /v1/targets. Host it with PUT /v1/targets/NAME or --target, or push its Listener.",
	},
	fault.UnknownEndpoint: {
		status: http.StatusNotFound, title: "Unknown endpoint",
		means: "The pushed endpoints of the cluster do not include one with this address.",
		fix:   "GET /v1/clusters/NAME/endpoints lists the pushed endpoints. Write the address as host:port, and that of IPv6 in brackets. A removal that was repeated needs no action.",
	},
	fault.NoRoute: {
		status: http.StatusNotFound, title: "No route",
		means: "No route of the target matches the request, or the matching route has no cluster.",
		fix:   "Retry with explain=true, which lists the routes and why each does not match. Check path= and the header.NAME= parameters.",
	},
	fault.UnknownLease: {
		status: http.StatusNotFound, title: "Unknown lease",
		means: "The lease has ended or expired, or never existed.",
		fix:   "An ended lease needs no action. If leases expire too early, set a longer ttl= or renew them.",
	},
	fault.UnknownChange: {
		status: http.StatusNotFound, title: "Unknown change",
		means: "No held change of resource files has this hash, and no recently permitted one.",
		fix:   "GET /v1/files lists the held changes with their hashes. The hash changes when the files change again.",
	},
	fault.UnknownOverlay: {
		status: http.StatusNotFound, title: "Unknown overlay",
		means: "The cluster has no overlay of this name: it was never put, or it was deleted, or it has expired.",
		fix:   "GET /v1/overlays lists all overlays. GET /v1/history says who removed one.",
	},
	methodNotAllowed: {
		status: http.StatusMethodNotAllowed, title: "Method not allowed",
		means: "The path does not support the method.",
		fix:   "Use one of the methods in the Allow header.",
	},
	fault.Blocked: {
		status: http.StatusConflict, title: "Blocked",
		means: "The change would leave a cluster without usable endpoints, would remove TLS from its connections, or would remove more resources than allowed; or it is about one endpoint of a cluster whose endpoints do not come from a push. Nothing was changed.",
		fix:   "Check the resource: a misspelled field or a wrong health_status can leave no endpoint. If the change is intended, detail names the parameter that permits it, what to push for plain connections, or where the endpoints come from.",
	},
	fault.PreconditionFailed: {
		status: http.StatusPreconditionFailed, title: "Precondition failed",
		means: "The resource was changed after you read it: If-Match or If-None-Match does not match. Nothing was changed.",
		fix:   "Get the resource again, apply your change, and send the new ETag in If-Match.",
	},
	fault.TooLarge: {
		status: http.StatusRequestEntityTooLarge, title: "Too large",
		means: "The body, or its decoded form, is larger than the limit.",
		fix:   "Send less at a time: POST /v1/snapshot adds resources in several requests. docs/limits.md lists the limits.",
	},
	uriTooLong: {
		status: http.StatusRequestURITooLong, title: "URI too long",
		means: "The path and the query are longer than the limit.",
		fix:   "Send fewer or shorter parameters.",
	},
	fault.UnsupportedMedia: {
		status: http.StatusUnsupportedMediaType, title: "Unsupported media type",
		means: "The path does not support the type, charset or encoding of the body.",
		fix:   "Send application/json, application/yaml or application/x-protobuf, in UTF-8 and uncompressed.",
	},
	fault.InvalidResource: {
		status: http.StatusUnprocessableEntity, title: "Invalid resource",
		means: "The resource breaks rules or has unknown fields. Nothing was changed.",
		fix:   "errors lists every error with its field and, for JSON and YAML, its line and column. lbd check FILE shows the same without a daemon.",
	},
	fault.PreconditionRequired: {
		status: http.StatusPreconditionRequired, title: "Precondition required",
		means: "The daemon runs with --require-if-match: a change requires If-Match or If-None-Match.",
		fix:   "Send the ETag of the resource in If-Match, or If-None-Match: * for a new resource.",
	},
	fault.RateLimited: {
		status: http.StatusTooManyRequests, title: "Rate limited", retries: true,
		means: "A limit of lbd is reached: too many waiting picks, leases, pushes or streams (see detail). Endpoints are not affected.",
		fix:   "Retry after retry_after_ms. Without it, a retry does not help: detail says what to do. docs/overload.md lists the limits.",
	},
	overloaded: {
		status: http.StatusServiceUnavailable, title: "Overloaded", retries: true,
		means: "lbd is overloaded, or a limit of all callers together is reached (see detail). Endpoints are not affected, and picks without a lease are not rejected.",
		fix:   "Retry after retry_after_ms. Without it, a retry does not help: detail says what to do. GET /readyz?verbose names the cause; docs/overload.md lists the limits and the order in which work is rejected.",
	},
	fault.CallerGone: {
		status: statusCallerGone, title: "Caller gone",
		means: "The caller closed the connection before the response. Only metrics show this code.",
		fix:   "None, unless callers time out too early.",
	},
	fault.Internal: {
		status: http.StatusInternalServerError, title: "Internal error",
		means: "lbd failed because of an internal error.",
		fix:   "The log has the error at level ERROR. Report it with these log lines.",
	},
	fault.Dropped: {
		status: http.StatusServiceUnavailable, title: "Dropped",
		means: "A drop category of the cluster's policy.drop_overloads dropped the pick. category names it.",
		fix:   "Do not send a request. To drop less, push endpoints without the category or with a smaller drop_percentage.",
	},
	fault.CircuitBroken: {
		status: http.StatusServiceUnavailable, title: "Circuit broken",
		means: "The cluster has as many requests in flight as its circuit breaker allows.",
		fix:   "Reject the request or retry later. The limit is max_requests of circuit_breakers.thresholds (default 1024). A lease that is not ended counts until it expires. holders names the callers with the most leases; DELETE /v1/leases?cluster=NAME&owner=OWNER ends those of one.",
	},
	fault.NoReadyEndpoint: {
		status: http.StatusServiceUnavailable, title: "No ready endpoint", retries: true,
		means: "The cluster has no endpoints, or all of them are unhealthy, ejected or unreachable.",
		fix:   "detail has the last error. GET /v1/clusters/NAME shows each endpoint and why it is not used. wait_for_ready=true waits for a ready endpoint.",
	},
	fault.AllExcluded: {
		status: http.StatusServiceUnavailable, title: "All excluded",
		means: "exclude= has all endpoints that lbd could pick.",
		fix:   "Give up, or retry without exclude=.",
	},
	fault.ShuttingDown: {
		status: http.StatusServiceUnavailable, title: "Shutting down",
		means: "The daemon is shutting down and accepts no new requests.",
		fix:   "Use another instance, or retry after the restart.",
	},
	fault.PickTimeout: {
		status: http.StatusGatewayTimeout, title: "Pick timeout",
		means: "The pick waited for the time in wait= (default --pick-wait) while the cluster was connecting or its resources were not there yet.",
		fix:   "Set a longer wait=, or wait_for_ready=true. GET /v1/clusters/NAME shows what the cluster waits for.",
	},
	fault.IndexNotReached: {
		status: http.StatusGatewayTimeout, title: "Index not reached", retries: true,
		means: "Picks of this replica do not use the index of min_index= yet. Lbd-Index is the index that they use.",
		fix:   "Set wait=, or a longer one. If the replica stays behind, GET /readyz?verbose says why. An index that no push has returned is never reached.",
	},
	fault.StoreUnavailable: {
		status: http.StatusServiceUnavailable, title: "Store unavailable", retries: true,
		means: "etcd, which has the pushed resources of all replicas, cannot be reached. Picks use what is known; if that was never read, a cluster or a target that is not known may exist. A push was not applied, unless detail says that this is not known: then it is applied or not, never in part.",
		fix:   "Check etcd and the network; GET /readyz?verbose has the error. Retry after retry_after_ms, if need be after a look at what is stored.",
	},
	fault.ReplicaUnavailable: {
		status: http.StatusServiceUnavailable, title: "Replica unavailable", retries: true,
		means: "Another daemon of the fleet has granted the lease, and this one cannot forward the request to it. The lease ends by itself at its expires_at.",
		fix:   "Send the request to the daemon that has granted the lease: detail has its address. If daemons should reach each other, check --advertise, and the network between them.",
	},
	fault.StorageFailed: {
		status: http.StatusInsufficientStorage, title: "Storage failed",
		means: "The push could not be written to disk, or etcd has no space left, and the push was not applied. Resources that were pushed before stay.",
		fix:   "Check the disk of --data, or follow detail for etcd; the log and GET /readyz?verbose have the error. Then push again.",
	},
}

// problemsPath begins the type of every Problem.
const problemsPath = "/problems/"

// Problem is an error response: the members of RFC 9457 and extensions of lbd.
type Problem struct {
	// Type is /problems/CODE, a page that describes the code.
	Type   string `json:"type" example:"/problems/no_ready_endpoint"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail explains the error, for people.
	Detail string `json:"detail"`
	// Code is stable, for programs.
	Code fault.Code `json:"code" swaggertype:"string" enums:"invalid_argument,unauthenticated,permission_denied,misdirected_request,not_found,unknown_cluster,unknown_target,unknown_endpoint,unknown_lease,unknown_change,unknown_overlay,no_route,method_not_allowed,blocked,precondition_failed,precondition_required,too_large,uri_too_long,unsupported_media_type,invalid_resource,rate_limited,overloaded,internal,dropped,circuit_broken,no_ready_endpoint,all_excluded,shutting_down,pick_timeout,index_not_reached,storage_failed,store_unavailable,replica_unavailable" example:"no_ready_endpoint"`
	// GRPCCode is the gRPC status code of the same meaning.
	GRPCCode string `json:"grpc_code" example:"UNAVAILABLE"`
	Cluster  string `json:"cluster,omitempty"`
	Target   string `json:"target,omitempty"`
	// Category is the drop category, for dropped.
	Category string `json:"category,omitempty"`
	// Role is the role that the caller lacks, for unauthenticated and permission_denied.
	Role string `json:"role,omitempty" example:"read"`
	// RetryAfterMS is the time after which to retry. The Retry-After header has it in seconds.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Errors lists the errors of invalid_resource, or the position at which a body is invalid.
	Errors []fault.Problem `json:"errors,omitempty"`
	// Explain has the steps of the decision, with explain=true.
	Explain []picks.Step `json:"explain,omitempty"`
	// Holders are the owners with the most leases of the cluster, for circuit_broken.
	Holders []ledger.Holder `json:"holders,omitempty"`
}

// problemOf returns the response for e, whose code must be in answers.
func problemOf(e *fault.Error) Problem {
	a := answers[e.Code]
	p := Problem{
		Type: problemsPath + string(e.Code), Title: a.title, Status: a.status, Detail: e.Detail,
		Code: e.Code, GRPCCode: grpcName(e.Code),
		Cluster: e.Cluster, Target: e.Target, Category: e.Category, Role: e.Role, Errors: e.Problems,
	}
	if a.retries && e.RetryAfter > 0 {
		p.RetryAfterMS = int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)
	}
	return p
}

// problemFor returns the problem of a part of a request that failed.
func problemFor(r *http.Request, err error) Problem { return problemOf(refusalOf(r.Context(), err)) }

// writeProblem writes p.
func writeProblem(w *recorder, p Problem) {
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = problemType
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	switch p.Code {
	case listen.Unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="lbd"`)
	case fault.Dropped:
		h.Set("Lbd-Drop", headerText(p.Category))
	case fault.CircuitBroken:
		h.Set("Lbd-Drop", "circuit-breaker")
	default:
	}
	writeBody(w, p.Status, encode(p))
}

// headerText returns s as a header value, with ? for other characters than printable ASCII.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// grpcName returns the name of the gRPC status code in gRPC's specification.
func grpcName(c fault.Code) string {
	g, ok := grpcCodes[c]
	if !ok {
		g = c.GRPC()
	}
	return code.Code(g).String()
}

// grpcCodes has the gRPC status codes of errors that the service does not have.
var grpcCodes = map[fault.Code]codes.Code{
	notFound: codes.NotFound, methodNotAllowed: codes.Unimplemented, uriTooLong: codes.InvalidArgument,
	listen.Unauthenticated: codes.Unauthenticated, listen.PermissionDenied: codes.PermissionDenied,
	listen.MisdirectedRequest: codes.PermissionDenied,
}
