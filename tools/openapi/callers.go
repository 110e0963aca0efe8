package main

import (
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// bearer is the name of the security scheme of tokens.
const bearer = "token"

// addCallers adds what the operations have in common that require something of
// their caller: tokens, and the rejections of callers who may not call.
func addCallers(doc *openapi3.T) {
	doc.Components.SecuritySchemes = openapi3.SecuritySchemes{bearer: &openapi3.SecuritySchemeRef{
		Value: openapi3.NewSecurityScheme().WithType("http").WithScheme("bearer").
			WithDescription("A token of the identity file (--tokens). A client certificate or the user of a unix socket can take its place."),
	}}
	for path, item := range doc.Paths.Map() {
		switch {
		case path == "/livez" || path == "/readyz" || path == "/openapi.yaml" || strings.HasPrefix(path, "/problems/"):
			continue // anybody may call these
		case path == "/" || strings.HasPrefix(path, "/assets/") || strings.HasPrefix(path, "/docs"):
			addRejections(item, http.StatusForbidden, http.StatusMisdirectedRequest)
			continue // browsers load pages without credentials
		}
		addRejections(item, http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest)
		for _, op := range item.Operations() {
			op.Security = openapi3.NewSecurityRequirements().
				With(openapi3.NewSecurityRequirement()). // where callers without identity have the role
				With(openapi3.NewSecurityRequirement().Authenticate(bearer))
		}
	}
}

func addRejections(item *openapi3.PathItem, statuses ...int) {
	for _, op := range item.Operations() {
		addProblems(op, statuses...)
	}
}
