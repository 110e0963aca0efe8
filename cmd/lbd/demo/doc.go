// Package demo runs HTTP upstreams in three localities and two priorities, one of which stops
// and starts, and callers that pick, call, and end most of their leases. It uses lbd only
// through the HTTP API.
package demo
