// Package admission decides which changes of resources that people write come into
// force: pushes, snapshots and resource files all pass the same guard, and
// "lbd check" asks it about files without a daemon.
//
// A change goes three ways: it is decoded (xds/resource), it is guarded here, and
// it is applied (service). The guard answers one question: would the change leave a
// cluster without usable endpoints that has some now, would it take TLS from the
// connections of one, or would a change of files remove more clusters than one change
// may? Such a change is not applied; what works stays in use. A push is refused then;
// if it is for the lack of endpoints, it can be repeated with allow_empty.
// A change of files is held: [Files] keeps the last good versions in use until the
// operator permits exactly this change.
//
// What management servers and DNS say is not guarded: there, gRPC's rules decide.
//
// Nothing here does I/O, starts a goroutine or reads a clock.
package admission
