module github.com/lbd-dev/lbd/clients/conformance

go 1.26.0
