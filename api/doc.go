// Package api serves the HTTP API of lbd: one file per resource, with its types, handlers and
// the comments from which openapi.yaml is generated.
//
// A handler reads its parameters and body, calls the service, and returns an error or writes a
// response. [route] wraps it: it converts errors and panics to problems, counts requests,
// and rejects web pages of other origins.
package api
