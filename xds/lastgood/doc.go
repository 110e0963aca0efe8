// Package lastgood stores on disk the last good versions of what lbd follows: the resources
// of management servers ([Resources]), so that a daemon that starts while its server is
// unreachable can use them, and for package files the versions of resource files.
//
// It is a cache: no error of the disk stops the daemon or removes something in use. Changes
// are on disk within about a second, in one commit with all others of that time; of several
// changes of an entry, only the last. [Cache.Flush] writes them at once. A failed write is
// repeated.
//
// A resource has one entry for all targets. It has the management server that sent the
// resource, so that the caller can follow gRFC A71: a fallback server neither replaces nor
// removes a resource of a preferred server, also after a restart.
//
// The file is lbd.db, of package store, in a directory for each cache. A damaged file is set
// aside, and the cache starts empty.
package lastgood
