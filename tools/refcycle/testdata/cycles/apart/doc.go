// Package apart has files that refer to each other in one direction only.
package apart
