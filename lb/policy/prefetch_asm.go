//go:build amd64 || arm64

package policy

// prefetch has the processor load the cache line of u, without waiting for it.
//
//go:noescape
func prefetch(u *Upstream)
