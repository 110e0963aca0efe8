// Package admission decides which changes of resources that people write take effect:
// pushes, snapshots and resource files pass the same guard, and "lbd check" uses it for
// files without a daemon.
//
// The guard refuses a change that would leave a cluster without usable endpoints that has
// some now, that would take TLS from the connections of a cluster, or, for files, that
// would remove more clusters than one change may. What works stays in use. The push is
// refused then; if it is for the lack of endpoints, it can be repeated with allow_empty.
// A change of files is held: [Files] keeps the last good versions in use until the
// operator permits exactly this change.
//
// Resources of management servers and addresses of DNS names are not guarded: gRPC's
// rules decide there.
//
// The package does no I/O, starts no goroutine and reads no clock.
package admission
