// Package fault owns how requests fail: an [Error] with one [Code] for each way. Codes
// are part of the HTTP contract; api gives each its status.
package fault
