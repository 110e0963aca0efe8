// Package observability holds Prometheus' rules and Grafana's dashboard, which
// are in deploy/, to lbd: every query of theirs is asked of a real Prometheus
// that scrapes a real daemon under load, and has to answer what that daemon was
// made to do.
//
// What needs Prometheus is skipped where there is none: make test-prometheus
// fetches it.
package observability
