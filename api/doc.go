// Package api answers lbd's HTTP API: one file a resource, each with its types,
// its handlers and the comments that openapi.yaml is generated from.
//
// A handler reads its parameters and its body, asks the service, and returns an
// error or writes one answer. [endpoint] is around each of them: it turns errors
// and panics into problems, counts requests, and refuses pages of other origins.
package api
