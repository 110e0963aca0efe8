module github.com/lbd-dev/lbd/clients/go

go 1.25.0
