// Package reports takes what callers report of requests for which they have no leases: those of batches.
//
// How requests ended counts at once, for outlier detection, load reports and metrics. How many are in
// flight counts for least_request and load reports until the next report of the same reporter, or for two of
// its intervals: it is a mean of the interval that is over, so it is as exact as the next interval is like the
// last. Circuit breakers do not count it, because they would reject requests for others that may have ended.
package reports
