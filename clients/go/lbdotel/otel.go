// Package lbdotel makes spans of the tries of a client of lbd, with the semantic conventions of OpenTelemetry for HTTP.
package lbdotel

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// OnAttempt returns a hook for [lbdclient.Config]. Each try of a request of [lbdclient.Transport] becomes a span, which is
// a child of that in the context of the request. The span has ended by then, so headers do not name it: an
// instrumentation around Transport adds those of its own span.
func OnAttempt(provider trace.TracerProvider) func(lbdclient.Attempt) {
	tracer := provider.Tracer("github.com/lbd-dev/lbd/clients/go/lbdotel")
	return func(a lbdclient.Attempt) {
		if a.Request == nil {
			return
		}
		end := time.Now()
		method := cmp.Or(a.Request.Method, http.MethodGet)
		_, span := tracer.Start(context.WithoutCancel(a.Request.Context()), method, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithTimestamp(end.Add(-a.Duration)), trace.WithAttributes(attributes(&a, method)...))
		if a.Status >= http.StatusBadRequest || a.Err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End(trace.WithTimestamp(end))
	}
}

func attributes(a *lbdclient.Attempt, method string) []attribute.KeyValue {
	target := a.Request.URL
	all := []attribute.KeyValue{
		attribute.String("http.request.method", method),
		attribute.String("server.address", target.Hostname()),
		attribute.Int("server.port", port(target.Port(), target.Scheme)),
		attribute.String("lbd.cluster", a.Cluster),
	}
	if host, number, err := net.SplitHostPort(a.Address); err == nil {
		all = append(all, attribute.String("network.peer.address", host), attribute.Int("network.peer.port", port(number, "")))
	}
	if n := a.Choice.Attempt; n > 1 {
		all = append(all, attribute.Int("http.request.resend_count", n-1))
	}
	if a.Status > 0 {
		all = append(all, attribute.Int("http.response.status_code", a.Status))
	}
	switch {
	case a.Status >= http.StatusBadRequest:
		all = append(all, attribute.String("error.type", strconv.Itoa(a.Status)))
	case a.Err != nil:
		all = append(all, attribute.String("error.type", string(a.Outcome)))
	}
	return all
}

// port returns a port, by default that of a scheme.
func port(text, scheme string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	if scheme == "https" {
		return 443
	}
	return 80
}
