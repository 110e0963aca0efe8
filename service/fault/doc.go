// Package fault has the errors of requests: an [Error] with one [Code] for each kind of
// failure. Codes are part of the HTTP contract; api gives each its status.
package fault
