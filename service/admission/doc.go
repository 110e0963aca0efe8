// Package admission decides which changes of resources that people write take effect:
// pushes, snapshots and resource files. [Check] is for "lbd check", without a daemon.
//
// A [Guard] finds changes that would leave a cluster without usable endpoints that has
// some now, or that would disable TLS of a cluster. Package sources rejects such a push
// or snapshot; for lack of endpoints, the caller can repeat it with allow_empty. The
// deletion of one resource is checked for TLS only. A change of files is held: [Files]
// keeps the last good versions in use until the operator permits exactly this change. It
// also limits how many clusters one change of files may remove.
//
// Resources of management servers and addresses of DNS names are not guarded: gRPC's
// rules decide there.
//
// The package does no I/O, starts no goroutine and reads no clock.
package admission
