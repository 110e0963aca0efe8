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
// Under the prefix, limit/CLUSTER and limit/CLUSTER/SERVICE (path-escaped) have a [share.Record]
// each, and replica/ID has a [roster.Replica] while the session of a process lives. Every replica watches
// these. status/ID has the [roster.Summary] of a process, which is read when it is asked for.
//
// # Load
//
// Each change of a record is sent to every replica, so the time between the changes of one replica grows
// with their number beyond 32. What all replicas would do at the same moment is spread: removing a dead
// replica, the next attempt after a conflict, joining again after all sessions were lost, and summaries.
//
// # Time
//
// Deadlines are on the monotonic clock of the process, counted from before the request that made the
// session live longer was sent, and end before etcd can end the session. A clock that stands still while the
// machine is suspended is not covered, nor is a process that is paused after it has read the clock
// for the last time and before the response is on its way.
package fleet
