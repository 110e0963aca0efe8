// Package doctor finds out what is wrong with a daemon and its clusters, and what to do about it.
//
// It is a set of pure functions: [Examine] turns what other parts of the service know, a [Daemon] and
// some [Cluster]s, into a [Report]. The package does no I/O and asks no part for anything.
//
// A [Check] names a cause, not its symptoms: a step that cannot work because an earlier one failed is
// skipped. Problems come first, and of several problems the one that can cause the others.
package doctor
