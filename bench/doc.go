// Command bench compares lbd with other programs and libraries that do the same
// work, or the leanest part of it, in one run on one machine.
//
// A row is one kind of work, such as a pick over a unix socket. Its subjects, lbd
// and its peers, do the work in turn, round after round, so that a change of the
// machine's speed affects all of them. The result of a row are the ratios of the
// rounds: their median and its confidence interval. Package stat computes them.
//
// CPU time is that of all threads, from /proc/PID/task/TID/schedstat. Package load
// generates the requests, in a process of its own: the binary starts itself with
// -role. Package peer has the peers that are code, and the configurations of those
// that are programs (nginx, HAProxy, Envoy).
//
// docs/benchmarks.md describes the method and what the figures do not show, and has
// results. bench needs Linux. It uses loopback addresses only, and it ends the
// processes that it started.
package main
