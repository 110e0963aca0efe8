module github.com/lbd-dev/lbd/clients/proxy

go 1.26.0

require (
	github.com/lbd-dev/lbd/clients/conformance v0.0.0-00010101000000-000000000000
	github.com/lbd-dev/lbd/clients/go v0.1.0
	go.uber.org/goleak v1.3.0
)

require github.com/coder/websocket v1.8.15

replace (
	github.com/lbd-dev/lbd/clients/conformance => ../conformance
	github.com/lbd-dev/lbd/clients/go => ../go
)
