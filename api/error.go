package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/service"
)

// The codes of what fails before the service is asked.
const (
	notFound         service.Code = "not_found"
	methodNotAllowed service.Code = "method_not_allowed"
	permissionDenied service.Code = "permission_denied"
	uriTooLong       service.Code = "uri_too_long"
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
}

// answers is the only place where a status is chosen.
var answers = map[service.Code]answer{
	service.InvalidArgument:      {status: http.StatusBadRequest, title: "Invalid argument"},
	permissionDenied:             {status: http.StatusForbidden, title: "Permission denied"},
	notFound:                     {status: http.StatusNotFound, title: "Not found"},
	service.UnknownCluster:       {status: http.StatusNotFound, title: "Unknown cluster"},
	service.UnknownTarget:        {status: http.StatusNotFound, title: "Unknown target"},
	service.NoRoute:              {status: http.StatusNotFound, title: "No route"},
	service.UnknownLease:         {status: http.StatusNotFound, title: "Unknown lease"},
	methodNotAllowed:             {status: http.StatusMethodNotAllowed, title: "Method not allowed"},
	service.Blocked:              {status: http.StatusConflict, title: "Blocked"},
	service.PreconditionFailed:   {status: http.StatusPreconditionFailed, title: "Precondition failed"},
	service.TooLarge:             {status: http.StatusRequestEntityTooLarge, title: "Too large"},
	uriTooLong:                   {status: http.StatusRequestURITooLong, title: "URI too long"},
	service.UnsupportedMedia:     {status: http.StatusUnsupportedMediaType, title: "Unsupported media type"},
	service.InvalidResource:      {status: http.StatusUnprocessableEntity, title: "Invalid resource"},
	service.PreconditionRequired: {status: http.StatusPreconditionRequired, title: "Precondition required"},
	service.RateLimited:          {status: http.StatusTooManyRequests, title: "Rate limited", retries: true},
	service.CallerGone:           {status: statusCallerGone, title: "Caller gone"},
	service.Internal:             {status: http.StatusInternalServerError, title: "Internal error"},
	service.Dropped:              {status: http.StatusServiceUnavailable, title: "Dropped"},
	service.CircuitBroken:        {status: http.StatusServiceUnavailable, title: "Circuit broken"},
	service.NoReadyEndpoint:      {status: http.StatusServiceUnavailable, title: "No ready endpoint", retries: true},
	service.AllExcluded:          {status: http.StatusServiceUnavailable, title: "All excluded"},
	service.ShuttingDown:         {status: http.StatusServiceUnavailable, title: "Shutting down"},
	service.PickTimeout:          {status: http.StatusGatewayTimeout, title: "Pick timeout"},
	service.StorageFailed:        {status: http.StatusInsufficientStorage, title: "Storage failed"},
}

// Problem is a refusal: RFC 9457's members and lbd's extensions.
type Problem struct {
	// Type is /problems/ and the code.
	Type   string `json:"type" example:"/problems/no_ready_endpoint"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says which and why, for people.
	Detail string `json:"detail"`
	// Code is stable.
	Code service.Code `json:"code" swaggertype:"string" enums:"invalid_argument,permission_denied,not_found,unknown_cluster,unknown_target,unknown_lease,no_route,method_not_allowed,blocked,precondition_failed,precondition_required,too_large,uri_too_long,unsupported_media_type,invalid_resource,rate_limited,internal,dropped,circuit_broken,no_ready_endpoint,all_excluded,shutting_down,pick_timeout,storage_failed" example:"no_ready_endpoint"`
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
	Errors []service.Problem `json:"errors,omitempty"`
	// Explain is the decision, where explain=true asked for it.
	Explain []service.Step `json:"explain,omitempty"`
}

// problemOf returns e, whose code has an answer, as it is answered.
func problemOf(e *service.Error) Problem {
	a := answers[e.Code]
	p := Problem{
		Type: "/problems/" + string(e.Code), Title: a.title, Status: a.status, Detail: e.Detail,
		Code: e.Code, GRPCCode: grpcName(e.Code),
		Cluster: e.Cluster, Target: e.Target, Category: e.Category, Errors: e.Problems, Explain: e.Explain,
	}
	if a.retries && e.RetryAfter > 0 {
		p.RetryAfterMS = int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)
	}
	return p
}

// writeProblem answers with e.
func writeProblem(w http.ResponseWriter, e *service.Error) {
	p := problemOf(e)
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = problemType
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	switch p.Code {
	case service.Dropped:
		h.Set("Lbd-Drop", headerText(e.Category))
	case service.CircuitBroken:
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
func refusal(code service.Code, format string, args ...any) *service.Error {
	return &service.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func grpcName(c service.Code) string {
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
