package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

// The codes of what fails before the service is asked.
const (
	notFound         fault.Code = "not_found"
	methodNotAllowed fault.Code = "method_not_allowed"
	permissionDenied fault.Code = "permission_denied"
	uriTooLong       fault.Code = "uri_too_long"
)

// statusCallerGone is what metrics count for a caller that is gone; nobody
// reads it. It is nginx's number for the same.
const statusCallerGone = 499

// answer is what HTTP says for a code.
type answer struct {
	status int
	title  string
	// retries is true where it helps to be told when to try again.
	retries bool
	// means and fix are what GET /problems/CODE says: what happened, and what the
	// caller or the operator can do.
	means, fix string
}

// answers is the only place where a status is chosen, and has a row for each code.
var answers = map[fault.Code]answer{
	fault.InvalidArgument: {
		status: http.StatusBadRequest, title: "Invalid argument",
		means: "The request cannot be understood: a parameter, a header or the body has a wrong value, or a parameter that this path does not know.",
		fix:   "Read detail: it names the parameter and says what it may be. The same request fails again.",
	},
	permissionDenied: {
		status: http.StatusForbidden, title: "Permission denied",
		means: "A web page of another origin called the API. Browsers are not let in from other origins.",
		fix:   "Call lbd from the server of your page, or open the dashboard of lbd itself.",
	},
	notFound: {
		status: http.StatusNotFound, title: "Not found",
		means: "lbd has nothing at this path.",
		fix:   "Check the path: /openapi.yaml and /docs list all of them. Names of clusters in a path are percent-encoded.",
	},
	fault.UnknownCluster: {
		status: http.StatusNotFound, title: "Unknown cluster",
		means: "No push, no file and no management server has the cluster, or the resource of it that was asked for.",
		fix:   "Check the name in GET /v1/clusters. Push the cluster's endpoints to /v1/clusters/NAME/endpoints, or add it to the resource directory or the management server.",
	},
	fault.UnknownTarget: {
		status: http.StatusNotFound, title: "Unknown target",
		means: "lbd does not host the target, or has no Listener or routes for it yet.",
		fix:   "Check the name in GET /v1/targets. Host it with PUT /v1/targets/NAME or --target, or push its Listener.",
	},
	fault.NoRoute: {
		status: http.StatusNotFound, title: "No route",
		means: "No route of the target takes the request, or the route that takes it leads to no cluster.",
		fix:   "Ask again with explain=true: it lists the routes that were tried and why each does not match. Check path= and the header.NAME= parameters.",
	},
	fault.UnknownLease: {
		status: http.StatusNotFound, title: "Unknown lease",
		means: "The lease ended, expired, or was never given.",
		fix:   "Nothing is to be done for a lease that is over. If leases expire too early, ask for a longer ttl= or renew them.",
	},
	fault.UnknownChange: {
		status: http.StatusNotFound, title: "Unknown change",
		means: "No change of resource files with this hash is held, nor was one permitted lately.",
		fix:   "GET /v1/files lists the changes that are held, each with its hash. The hash is another one once the files change again.",
	},
	methodNotAllowed: {
		status: http.StatusMethodNotAllowed, title: "Method not allowed",
		means: "The path does not take the method.",
		fix:   "Use one of the methods in the Allow header.",
	},
	fault.Blocked: {
		status: http.StatusConflict, title: "Blocked",
		means: "The change would leave a cluster without an endpoint that picks can use, would take TLS from its connections, or would remove more resources than allowed. Nothing was changed.",
		fix:   "Check that the resource says what you mean: a misspelled field or a wrong health_status leaves no endpoint. If it is meant, detail says which parameter permits it, or what to push for plain connections.",
	},
	fault.PreconditionFailed: {
		status: http.StatusPreconditionFailed, title: "Precondition failed",
		means: "Somebody else changed the resource since you read it: If-Match or If-None-Match does not hold. Nothing was changed.",
		fix:   "Read the resource again, apply your change to it, and send the new ETag in If-Match.",
	},
	fault.TooLarge: {
		status: http.StatusRequestEntityTooLarge, title: "Too large",
		means: "The body, or what it expands to, is larger than lbd takes.",
		fix:   "Send less at a time: a snapshot can be added to in parts with POST /v1/snapshot. docs/operations.md lists the limits.",
	},
	uriTooLong: {
		status: http.StatusRequestURITooLong, title: "URI too long",
		means: "The path and the query are longer than lbd takes.",
		fix:   "Send fewer or shorter parameters.",
	},
	fault.UnsupportedMedia: {
		status: http.StatusUnsupportedMediaType, title: "Unsupported media type",
		means: "The body is of a type, a charset or an encoding that this path does not take.",
		fix:   "Send application/json, application/yaml or application/x-protobuf, in UTF-8 and uncompressed.",
	},
	fault.InvalidResource: {
		status: http.StatusUnprocessableEntity, title: "Invalid resource",
		means: "The resource can be read and breaks rules, or has fields that do not exist. Nothing was changed.",
		fix:   "errors lists every broken rule with its field and, for JSON and YAML, its line and column. Correct them all; lbd check FILE shows the same without a daemon.",
	},
	fault.PreconditionRequired: {
		status: http.StatusPreconditionRequired, title: "Precondition required",
		means: "The daemon runs with --require-if-match: changes have to say what they replace.",
		fix:   "Send the ETag of what you read in If-Match, or If-None-Match: * for something new.",
	},
	fault.RateLimited: {
		status: http.StatusTooManyRequests, title: "Rate limited", retries: true,
		means: "A limit of lbd is reached: too many waiting picks, leases, pushes or streams, as detail says. Endpoints are not affected.",
		fix:   "Try again after retry_after_ms. If it happens often, docs/operations.md lists the limits.",
	},
	fault.CallerGone: {
		status: statusCallerGone, title: "Caller gone",
		means: "The caller closed the connection before the answer. Only metrics and logs show this code.",
		fix:   "Nothing, unless callers time out earlier than they should.",
	},
	fault.Internal: {
		status: http.StatusInternalServerError, title: "Internal error",
		means: "lbd failed to answer, which is a fault of lbd.",
		fix:   "The log has the error at level ERROR. Report it with the log lines.",
	},
	fault.Dropped: {
		status: http.StatusServiceUnavailable, title: "Dropped",
		means: "A drop category of the cluster's policy.drop_overloads drops this share of the requests on purpose. category names it.",
		fix:   "Send no request for this pick. To stop dropping, push endpoints without the category, or with a smaller drop_percentage.",
	},
	fault.CircuitBroken: {
		status: http.StatusServiceUnavailable, title: "Circuit broken",
		means: "The cluster has as many requests in flight as its circuit breaker permits.",
		fix:   "Shed the request or try again later. The limit is max_requests of circuit_breakers.thresholds (1024 by default); leases that are never ended count until they expire.",
	},
	fault.NoReadyEndpoint: {
		status: http.StatusServiceUnavailable, title: "No ready endpoint", retries: true,
		means: "Every endpoint of the cluster is unhealthy, ejected, or cannot be connected to, or there is none.",
		fix:   "detail has the last error. GET /v1/clusters/NAME shows each endpoint and why it is not used. wait_for_ready=true waits until one is ready.",
	},
	fault.AllExcluded: {
		status: http.StatusServiceUnavailable, title: "All excluded",
		means: "exclude= names every endpoint that could be picked.",
		fix:   "Give up, or pick again without exclude=.",
	},
	fault.ShuttingDown: {
		status: http.StatusServiceUnavailable, title: "Shutting down",
		means: "The daemon is shutting down and takes no new requests.",
		fix:   "Ask another instance, or try again after the restart.",
	},
	fault.PickTimeout: {
		status: http.StatusGatewayTimeout, title: "Pick timeout",
		means: "The pick waited as long as wait= permits (--pick-wait by default), while the cluster was still connecting or its resources were still on their way.",
		fix:   "Ask with a longer wait=, or wait_for_ready=true. GET /v1/clusters/NAME shows what the cluster waits for.",
	},
	fault.StorageFailed: {
		status: http.StatusInsufficientStorage, title: "Storage failed",
		means: "The push could not be written to disk, so nothing of it is in force. What was pushed before stays.",
		fix:   "Check the disk of --data: the log and GET /readyz?verbose say what failed. Then push again.",
	},
}

// problemsPath begins the type of every Problem.
const problemsPath = "/problems/"

// Problem is a refusal: RFC 9457's members and lbd's extensions.
type Problem struct {
	// Type is /problems/ and the code: what the code means is served there.
	Type   string `json:"type" example:"/problems/no_ready_endpoint"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says which and why, for people.
	Detail string `json:"detail"`
	// Code is stable.
	Code fault.Code `json:"code" swaggertype:"string" enums:"invalid_argument,permission_denied,not_found,unknown_cluster,unknown_target,unknown_lease,unknown_change,no_route,method_not_allowed,blocked,precondition_failed,precondition_required,too_large,uri_too_long,unsupported_media_type,invalid_resource,rate_limited,internal,dropped,circuit_broken,no_ready_endpoint,all_excluded,shutting_down,pick_timeout,storage_failed" example:"no_ready_endpoint"`
	// GRPCCode is the gRPC status code of the same meaning.
	GRPCCode string `json:"grpc_code" example:"UNAVAILABLE"`
	Cluster  string `json:"cluster,omitempty"`
	Target   string `json:"target,omitempty"`
	// Category is the drop category of dropped.
	Category string `json:"category,omitempty"`
	// RetryAfterMS is when it is worth trying again; Retry-After says the same
	// in whole seconds.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Errors are the broken rules of invalid_resource; of a body that cannot be
	// read, where it breaks.
	Errors []fault.Problem `json:"errors,omitempty"`
	// Explain is the decision, where explain=true asked for it.
	Explain []picks.Step `json:"explain,omitempty"`
}

// problemOf returns e, whose code has an answer, as it is answered.
func problemOf(e *fault.Error) Problem {
	a := answers[e.Code]
	p := Problem{
		Type: problemsPath + string(e.Code), Title: a.title, Status: a.status, Detail: e.Detail,
		Code: e.Code, GRPCCode: grpcName(e.Code),
		Cluster: e.Cluster, Target: e.Target, Category: e.Category, Errors: e.Problems,
	}
	if a.retries && e.RetryAfter > 0 {
		p.RetryAfterMS = int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)
	}
	return p
}

// writeProblem answers with p.
func writeProblem(w http.ResponseWriter, p Problem) {
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = problemType
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	switch p.Code {
	case fault.Dropped:
		h.Set("Lbd-Drop", headerText(p.Category))
	case fault.CircuitBroken:
		h.Set("Lbd-Drop", "circuit-breaker")
	default:
	}
	writeBody(w, p.Status, encode(p))
}

// headerText is s as a header's value can hold it: what is not printable ASCII
// becomes a question mark.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// refusal makes an error of what fails before the service is asked.
func refusal(code fault.Code, format string, args ...any) *fault.Error {
	return &fault.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// clip shortens what a caller sent to what a message can quote.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

func grpcName(c fault.Code) string {
	switch c {
	case notFound:
		return grpcNames[codes.NotFound]
	case methodNotAllowed:
		return grpcNames[codes.Unimplemented]
	case permissionDenied:
		return grpcNames[codes.PermissionDenied]
	case uriTooLong:
		return grpcNames[codes.InvalidArgument]
	default:
		return grpcNames[c.GRPC()]
	}
}

// grpcNames are the codes as gRPC's specification writes them.
var grpcNames = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN",
	codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}
