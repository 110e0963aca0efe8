package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// proxyStatus is the header by which callers tell the answers of the proxy from those of endpoints (RFC 9209).
const proxyStatus = "Proxy-Status"

// problem is the body of an answer of the proxy itself (RFC 9457), like those of lbd.
type problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail"`
	Code         string `json:"code"` // of kinds
	Cluster      string `json:"cluster,omitempty"`
	Category     string `json:"category,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`

	full string // the detail with addresses; "" if it has none
}

// kinds has the status and the title of each code, and its error in the header Proxy-Status (RFC 9209).
var kinds = map[string]struct {
	status       int
	title, cause string
}{
	"dropped":            {http.StatusServiceUnavailable, "Dropped", "http_request_denied"},
	"circuit_broken":     {http.StatusServiceUnavailable, "Circuit broken", "connection_limit_reached"},
	"unavailable":        {http.StatusServiceUnavailable, "Unavailable", "destination_unavailable"},
	"unknown_cluster":    {http.StatusBadGateway, "Unknown cluster", "destination_not_found"},
	"permission_denied":  {http.StatusBadGateway, "Permission denied by lbd", "proxy_configuration_error"},
	"connection":         {http.StatusBadGateway, "Connection failed", "connection_terminated"},
	"timeout":            {http.StatusGatewayTimeout, "Timeout", "http_response_timeout"},
	"overloaded":         {http.StatusServiceUnavailable, "Overloaded", "connection_limit_reached"},
	"shutting_down":      {http.StatusServiceUnavailable, "Shutting down", "proxy_internal_response"},
	"forbidden_host":     {http.StatusForbidden, "Forbidden host", "http_request_denied"},
	"forbidden_cluster":  {http.StatusForbidden, "Forbidden cluster", "http_request_denied"},
	"method_not_allowed": {http.StatusMethodNotAllowed, "Method not allowed", "http_request_error"},
	"invalid_argument":   {http.StatusBadRequest, "Invalid argument", "http_request_error"},
	"invalid_body":       {http.StatusBadRequest, "Invalid body", "http_request_error"},
	"body_timeout":       {http.StatusRequestTimeout, "Body timeout", "http_request_error"},
	"loop":               {http.StatusLoopDetected, "Loop", "proxy_loop_detected"},
}

// errTunnels is why a tunnel is refused.
var errTunnels = errors.New("too many tunnels are open, see --max-tunnels")

// problemOf returns the problem of a request without an answer. Its code is "cancelled" if the caller has gone. The
// detail has neither addresses nor what lbd says of endpoints, as RFC 9209 recommends of proxies.
func (x *exchange) problemOf(err error) problem {
	p := problem{Cluster: x.route.cluster}
	var (
		rejection *lbdclient.Error
		bodyErr   = x.bodyErr.Load()
	)
	switch _, expired := x.deadline(); {
	case expired:
		p.Code, p.Detail = "timeout", fmt.Sprintf("no answer within %v", x.timeout)
		p.full = p.Detail + ": " + x.endpoint() + err.Error()
	case x.proxy.stopped.Err() != nil:
		p.Code, p.Detail = "shutting_down", "the proxy is shutting down"
	case bodyErr != nil && errors.Is(*bodyErr, os.ErrDeadlineExceeded):
		p.Code, p.Detail = "body_timeout", "the body of the request did not arrive in time"
	case x.request.Context().Err() != nil:
		p.Code = "cancelled"
	case bodyErr != nil:
		p.Code, p.Detail = "invalid_body", (*bodyErr).Error()
	case errors.Is(err, errTunnels):
		p.Code, p.Detail = "overloaded", err.Error()
	case errors.As(err, &rejection):
		p.Code, p.Category = strings.ReplaceAll(rejection.Kind.Error(), " ", "_"), rejection.Category
		p.Detail, p.full = rejection.Detail, rejection.Error()
		if rejection.Code != "" {
			p.Detail = "lbd answered " + rejection.Code
		}
		if p.Code == "unavailable" {
			p.RetryAfterMS = max(time.Second, rejection.RetryAfter).Milliseconds()
		}
	default:
		p.Code, p.Detail = "connection", fmt.Sprintf("no valid answer of an endpoint (%d tried)", x.attempts.Load())
		p.full = x.endpoint() + err.Error()
	}
	return p
}

// endpoint names the endpoint of the last try for messages.
func (x *exchange) endpoint() string {
	if address := x.address.Load(); address != nil {
		return fmt.Sprintf("endpoint %s (%d tried): ", *address, x.attempts.Load())
	}
	return ""
}

// refuse answers with a problem. It returns false.
func (x *exchange) refuse(p problem) bool {
	x.outcome = p.Code
	if p.Code == "cancelled" {
		panic(http.ErrAbortHandler) // a gone caller gets no answer, least of all an empty 200
	}
	kind, full := kinds[p.Code], cmp.Or(p.full, p.Detail)
	if x.proxy.showAddresses {
		p.Detail = full
	}
	p.Type, p.Title, p.Status = "/problems/"+p.Code, kind.title, kind.status
	header := x.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	header.Set(proxyStatus, "lbd-proxy; error="+kind.cause)
	if p.RetryAfterMS > 0 {
		header.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	if p.Code == "body_timeout" || p.Code == "invalid_body" {
		header.Set("Connection", "close")
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // it has only strings and numbers
	}
	x.WriteHeader(p.Status)
	_, _ = x.Write(append(body, '\n')) // the caller may have gone
	x.proxy.warn("request failed", "cluster", p.Cluster, "method", x.request.Method, "code", p.Code, "status", p.Status, "detail", full)
	return false
}
