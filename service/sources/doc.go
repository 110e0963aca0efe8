// Package sources owns the sources of resources: pushes, snapshots, resource files,
// management servers (ADS), DNS, and clusters that picks name.
//
// Each source is a part with its own state. All of them change resources through one
// publisher, which owns the resolver and publishes the resulting configs to the
// ledger's targets, in one order. [Sources] joins the parts. They report by events,
// conditions and a collector of package observe. The methods may be called from any
// goroutine; their errors are *[fault.Error].
package sources
