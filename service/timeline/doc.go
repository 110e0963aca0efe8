// Package timeline keeps what happened to clusters lately, in memory: samples of
// 1 s for 10 minutes and samples of 10 s for 6 hours, of all clusters within one
// budget of bytes.
//
// A [Store] is filled by one goroutine, which calls [Store.Record] about once a
// second, and read by any. The samples of a cluster are encoded into chunks of at
// most half a kilobyte; a step in which nothing happened costs nothing. When the
// budget is exceeded, the Store evicts the coarse samples of the least active
// clusters first, and once none are left, the least active clusters as a whole.
package timeline
