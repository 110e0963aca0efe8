// Package demo plays a small world for lbd to balance: real HTTP upstreams in
// three localities and two priorities, one of which comes and goes, and a caller
// that picks, calls, and mostly remembers to say done. It knows lbd only by its
// HTTP API, as any user does.
package demo
