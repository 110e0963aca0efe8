// Package demo runs HTTP upstreams in three localities and two priorities, and callers that
// pick an endpoint, call it, and end most of their leases. One upstream stops and starts. The
// package uses lbd only through the HTTP API.
package demo
