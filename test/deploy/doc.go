// Package deploy tests deploy/ and the Dockerfile against the daemon: their flags, variables,
// paths and ports exist, and the manifests are valid for the types of Kubernetes. It is a
// separate module, so that lbd does not depend on those types.
package deploy
