// Package access decides who calls lbd and what they may do.
//
// A [Caller] has a name, [Roles] and patterns of cluster names. Callers are
// listed in a file ([Parse]), each identified by a bearer token, a client
// certificate or the peer credentials of a unix socket. [Open] reads that file
// again when it changes; while the new content is invalid, the last valid one
// stays in use.
//
// The package knows no HTTP. api maps its errors to 401 and 403.
package access
