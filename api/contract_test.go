package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// spec is openapi.yaml, made strict: an answer may have no field that it does
// not name.
var spec = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(lbd.OpenAPI)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	no := false
	for _, schema := range doc.Components.Schemas {
		if len(schema.Value.Properties) > 0 {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
		}
	}
	doc.Servers = nil // any host
	for _, body := range []string{"application/yaml", "application/x-protobuf", "text/html", "text/css", "text/javascript", "image/png"} {
		openapi3filter.RegisterBodyDecoder(body, openapi3filter.FileBodyDecoder)
	}
	openapi3filter.RegisterBodyDecoder("text/event-stream", decodeStream)
	return doc, nil
})

// decodeStream reads server-sent events as the contract has them: what data is, by
// event. Of several of one kind the last one counts.
func decodeStream(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	stream := map[string]any{}
	for _, e := range parseEvents(string(text)) {
		var data any
		if err := json.Unmarshal([]byte(e.data), &data); err != nil {
			return nil, err
		}
		stream[e.kind] = data
	}
	return stream, nil
}

var router = sync.OnceValues(func() (routers.Router, error) {
	doc, err := spec()
	if err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// agrees checks an answer against openapi.yaml. What no route takes must be a
// problem; HEAD answers as GET does.
func agrees(r *http.Request, w *httptest.ResponseRecorder) error {
	table, err := router()
	if err != nil {
		return err
	}
	asked := r.Clone(context.Background())
	if asked.Method == http.MethodHead {
		asked.Method = http.MethodGet
	}
	route, params, err := table.FindRoute(asked)
	if err != nil {
		if w.Code < 400 {
			return err
		}
		return isProblem(w)
	}
	if r.Method == http.MethodHead && w.Body.Len() == 0 {
		return nil
	}
	if media := w.Header().Get("Content-Type"); strings.HasPrefix(media, "application/yaml") {
		return nil // kin-openapi's decoder of YAML is not asked: the tests of the resources read it
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route},
		Status:                 w.Code,
		Header:                 w.Header(),
		Body:                   io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

func isProblem(w *httptest.ResponseRecorder) error {
	if media := w.Header().Get("Content-Type"); media != "application/problem+json" {
		return errors.New("Content-Type is " + media)
	}
	doc, err := spec()
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		return err
	}
	return doc.Components.Schemas["Problem"].Value.VisitJSON(v)
}

// Every route is in the contract, and every operation of it has a route.
func TestRoutesAreTheContracts(t *testing.T) {
	d := start(t, nil)
	routes, ok := d.handler.(chi.Routes)
	if !ok {
		t.Fatal("the handler is no chi router")
	}
	var served []string
	err := chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodHead {
			served = append(served, method+" "+route)
		}
		return nil
	})
	servicetest.Must(t, err)
	doc, err := spec()
	servicetest.Must(t, err)
	var written []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			written = append(written, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(written)
	if !slices.Equal(served, written) {
		t.Errorf("routes:\n%s\ncontract:\n%s", strings.Join(served, "\n"), strings.Join(written, "\n"))
	}
}
