// Package service builds the parts of lbd without HTTP: pushes, picks and leases, and the state that
// [observe] reports.
//
// [Service] has the parts, and each user takes those that it needs. Resources of the store, of
// the resource directory and of management servers go through the resolver to each target's channel;
// picks go from a target's channel to the caller. Methods may be called from any goroutine. Their
// errors are *[fault.Error], with one [fault.Code] for each kind of failure.
package service
