// Package files is the source of resources that lie as files in a directory:
// what an operator edits, a ConfigMap mounts or another program writes there.
//
// A [Watcher] reads the directory, watches it, and reports what it finds as a
// [Scan]. Whether what changed comes into force is not decided here, but by
// service/proposal, which makes a [Set] of it: an immutable picture of the
// resources in use and of what is wrong with which file.
//
// An [Archive] keeps the versions in use on disk, for the next start.
package files
