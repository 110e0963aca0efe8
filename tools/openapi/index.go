package main

import (
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// indexHeader is the name of the header that each response has.
const indexHeader = "Lbd-Index"

// deriveIndex adds the parameters of reads and picks that wait for an index of the store.
func deriveIndex(method, path string, op *openapi3.Operation) {
	pick := strings.HasSuffix(path, "/pick")
	if !pick && (method != http.MethodGet || !strings.HasPrefix(path, "/v1/")) {
		return
	}
	op.AddParameter(openapi3.NewQueryParameter("min_index").WithSchema(openapi3.NewInt64Schema().WithMin(0)).
		WithDescription("an index of the store that picks of this replica have to use: that of a push, of this replica or of another one. Without wait, the request fails at once if they do not"))
	if op.Parameters.GetByInAndName("query", "wait") == nil {
		op.AddParameter(openapi3.NewQueryParameter("wait").WithSchema(openapi3.NewStringSchema()).
			WithDescription("maximum time to wait for min_index, at most 5m; only with min_index"))
	}
	addProblems(op, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
}

// addIndexHeader adds the header to the responses of all operations.
func addIndexHeader(doc *openapi3.T) {
	index := openapi3.Header{Parameter: openapi3.Parameter{
		Description: "the index of the store that picks used when lbd began to compute the response, or after the change that it made",
		Schema:      openapi3.NewInt64Schema().WithMin(0).NewRef(),
	}}
	doc.Components.Headers = openapi3.Headers{indexHeader: &openapi3.HeaderRef{Value: &index}}
	add := func(r *openapi3.Response) {
		if r.Headers == nil {
			r.Headers = openapi3.Headers{}
		}
		r.Headers[indexHeader] = &openapi3.HeaderRef{Ref: "#/components/headers/" + indexHeader}
	}
	for _, r := range doc.Components.Responses {
		add(r.Value)
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, r := range op.Responses.Map() {
				if r.Ref == "" {
					add(r.Value)
				}
			}
		}
	}
}
