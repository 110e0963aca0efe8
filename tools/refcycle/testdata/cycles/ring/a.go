// Package ring has a cycle of three files, through a constant, a variable and a type, and a file that
// leads into it.
package ring

const a = len(b)
