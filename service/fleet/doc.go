// Package fleet shares the limits of clusters among the replicas of one store: a cluster with
// limit_scope fleet has one limit for all of them.
//
// A [Fleet] has a session in etcd, keeps it alive, follows the records of limits and the sessions of
// the other replicas, and drives a [share.Machine] for each limit. Its goroutine alone owns the
// machines; calls to etcd run in goroutines of their own and report to it. Picks read the result in a
// [policy.SharedLimit], which takes no lock.
//
// # Keys
//
// Under the prefix, share/LIMIT/ID has the [share.Entry] of a process in the record of a limit, where LIMIT is
// CLUSTER or CLUSTER/SERVICE (path-escaped), and replica/ID has a [roster.Replica] while the session of a process
// lives. Every replica watches these. Each update of a record also puts limit/LIMIT, the head, which nothing watches:
// its revision is that of the last update, so an update that was decided on an older record fails. status/ID has the
// [roster.Summary] of a process, which is read when it is asked for.
//
// # Load
//
// Each changed entry is sent to every replica, in about 100 bytes, so the time between the changes of one replica
// grows with their number beyond 32. A conflict costs no more: the replica waits until the watch has the change of
// the other one. What all replicas would do at the same moment is spread: removing a dead replica, the next attempt
// after a conflict, joining again after all sessions were lost, and summaries.
//
// # Time
//
// Deadlines are on the monotonic clock of the process, counted from before the request that made the
// session live longer was sent, and end before etcd can end the session. A clock that stands still while the
// machine is suspended is not covered, nor is a process that is paused after it has read the clock
// for the last time and before the response is on its way.
package fleet
