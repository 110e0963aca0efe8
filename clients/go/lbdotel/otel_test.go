package lbdotel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
	"github.com/lbd-dev/lbd/clients/go/lbdotel"
)

// TestSpans: a request that fails at two endpoints is two spans, children of that of the program.
func TestSpans(t *testing.T) {
	d := lbdtest.Start(t)
	var addresses []string
	for range 2 {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
		defer server.Close()
		addresses = append(addresses, server.Listener.Addr().String())
	}
	d.Push(t, "orders", "", addresses...)
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	client, err := lbdclient.New(lbdclient.Config{Address: d.Address, OnAttempt: lbdotel.OnAttempt(provider)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, parent := provider.Tracer("test").Start(t.Context(), "parent")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://orders.lbd/items?key=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&lbdclient.Transport{Client: client}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, span := range spans {
		got := map[string]string{}
		for _, a := range span.Attributes {
			got[string(a.Key)] = a.Value.String()
		}
		address := got["network.peer.address"] + ":" + got["network.peer.port"]
		delete(got, "network.peer.address")
		delete(got, "network.peer.port")
		want := "map[error.type:503 http.request.method:GET http.response.status_code:503 lbd.cluster:orders server.address:orders.lbd server.port:80]"
		if i == 1 {
			want = strings.Replace(want, "http.response", "http.request.resend_count:1 http.response", 1)
		}
		if text := fmt.Sprint(got); text != want || !slices.Contains(addresses, address) {
			t.Errorf("span %d: %s, want %s", i, text, want)
		}
		if span.Parent.SpanID() != parent.SpanContext().SpanID() || span.Name != "GET" || !span.StartTime.Before(span.EndTime) {
			t.Errorf("span %d: %+v", i, span)
		}
	}
}
