// Package resolver turns resources into what trees are built from: one immutable
// [resource.Config] for each target, made anew only where something that the
// target needs has changed.
package resolver
