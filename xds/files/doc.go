// Package files is the source of resources that lie as files in a directory:
// what an operator edits, a ConfigMap mounts or another program writes there.
//
// A [Watcher] reads the directory, watches it, and tells each change as a [Set],
// an immutable picture of all resources and of what is wrong with which file.
// Files are judged by the decoder that judges what is pushed. What was good stays
// in use while its file is bad, and while the directory is away.
package files
