// Package deploy holds what is in deploy/ and the Dockerfile to the daemon: the
// flags, variables, paths and ports that they name are lbd's, and the Kubernetes
// manifests are what Kubernetes' own types read. It is a module of its own, so
// that those types are no dependency of lbd.
package deploy
