// Package observability compares Prometheus' rules and Grafana's dashboard, which
// are in deploy/, with lbd: a real Prometheus scrapes a real daemon under load and
// runs each of their queries. The results must show what the daemon was made to do.
//
// What needs Prometheus is skipped where there is none: make test-prometheus
// fetches it.
package observability
