// Package service holds lbd's use cases: pushes, picks and leases, and the state that
// [observe] reports. It knows no HTTP.
//
// A [Service] joins the parts: resources of the store, of the resource directory and of
// management servers go through the resolver to each target's channel; picks go from a
// target's channel to the caller. Its methods may be called from any goroutine. Their
// errors are *[fault.Error], with one [fault.Code] for each kind of failure.
package service
