// Package stand has what a test of clients needs: a process of lbd, upstreams, a proxy
// between lbd and its callers that fails as told, and runners of clients.
package stand
