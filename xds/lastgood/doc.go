// Package lastgood keeps on disk what a management server last said, so that a
// daemon that starts while the server is away serves what it had.
//
// It is a cache: nobody waits for its disk, and nothing that is wrong with it stops
// the daemon or takes away what is served. What is put is on disk within about a
// second, in one commit with all that came meanwhile, of each key only the newest.
//
// There is one entry for each resource, whichever targets need it. It notes which
// management server sent the resource, so that the caller can hold to gRFC A71: the
// resource of a preferred server is neither replaced nor removed by what a fallback
// server says, and is there after a restart. An entry of an lbd that did not note the
// server counts as the preferred one's.
//
// The file is that of xds/store, DIR/last-known-good/lbd.db, with all its checks: a
// file that is not exactly as it was written is set aside, and the cache begins
// empty.
package lastgood
