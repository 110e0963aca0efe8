// Package sources owns what resources come from: pushes, snapshots, resource files,
// management servers (ADS), DNS, and names that picks ask for.
//
// [Sources] joins them: what the store commits, the resource directory holds and a
// management server says goes through one resolver, in one order, to the ledger's
// targets. It reports by events, conditions and a collector of package observe. The
// methods may be called from any goroutine; their errors are *[fault.Error].
package sources
