// Package lastgood stores on disk the last resources of management servers, so that a
// daemon that starts while its server is unreachable can use them.
//
// It is a cache: no caller waits for the disk, and no error of the disk stops the daemon
// or removes a resource in use. Changes are on disk within about a second, in one commit
// with all others of that time; of several changes of a resource, only the last.
//
// A resource has one entry for all targets. It has the management server that sent the
// resource, so that the caller can follow gRFC A71: a fallback server neither replaces nor
// removes a resource of a preferred server, also after a restart. An entry without a
// server, of an older lbd, counts as one of the preferred server.
//
// The file is DIR/last-known-good/lbd.db, of package store. A damaged file is set aside,
// and the cache starts empty.
package lastgood
