module github.com/lbd-dev/lbd/test/attack

go 1.26.0
