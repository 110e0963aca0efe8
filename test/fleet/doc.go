// Package fleet tests lbd with etcd as its store, against real members of etcd: package
// xds/store/etcd with the tests of all stores and with faults, and the daemon with clients of
// several replicas.
package fleet
