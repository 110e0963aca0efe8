// Package service holds lbd's use cases: picks and leases, pushes, and what
// [observe] reports of them. It knows no HTTP.
//
// A [Service] joins the parts: what the store commits, the resource directory holds
// and a management server says goes through the resolver to each target's channel;
// picks go the other way, from a target's channel to the caller. Its methods may be
// called from any goroutine. Their errors are *[fault.Error], with one [fault.Code] for
// each way in which a request can fail.
package service
