// Package lastgood keeps on disk what a management server last said, so that a
// daemon that starts while the server is away serves what it had.
//
// It is a cache: nobody waits for its disk, and nothing that is wrong with it stops
// the daemon or takes away what is served. What is put is on disk within about a
// second, in one commit with all that came meanwhile, of each key only the newest.
//
// The file is that of xds/store, DIR/last-known-good/lbd.db, with all its checks: a
// file that is not exactly as it was written is set aside, and the cache begins
// empty.
package lastgood
