//go:build !amd64 && !arm64

package policy

// prefetch does nothing: a read would wait for memory.
func prefetch(*Upstream) {}
