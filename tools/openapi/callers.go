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
		if path == "/livez" || path == "/readyz" || path == "/openapi.yaml" || strings.HasPrefix(path, "/problems/") {
			continue // anybody may call these
		}
		page := path == "/" || strings.HasPrefix(path, "/assets/") || strings.HasPrefix(path, "/docs")
		for _, op := range item.Operations() {
			addProblems(op, http.StatusForbidden, http.StatusMisdirectedRequest)
			if page {
				continue // browsers load pages without credentials
			}
			addProblems(op, http.StatusUnauthorized)
			op.Security = openapi3.NewSecurityRequirements().
				With(openapi3.NewSecurityRequirement()). // where callers without identity have the role
				With(openapi3.NewSecurityRequirement().Authenticate(bearer))
		}
	}
}
