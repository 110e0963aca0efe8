# The build stages run on the builder's platform: their output does not depend on it.
FROM --platform=$BUILDPLATFORM golang:1.26 AS bundler
WORKDIR /src
COPY tools/go.mod tools/go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -o /out/esbuild github.com/evanw/esbuild/cmd/esbuild

FROM --platform=$BUILDPLATFORM node:22 AS web
WORKDIR /src
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN --mount=type=cache,target=/root/.npm npm ci
COPY web ./
COPY --from=bundler /out/esbuild /usr/local/bin/esbuild
RUN ESBUILD=esbuild node build.mjs

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
COPY --from=web /src/dist web/dist
COPY --from=web /src/node_modules/swagger-ui-dist /swagger-ui-dist
ARG VERSION=unknown TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/lbd ./cmd/lbd \
    && CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -C clients/proxy -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/lbd-proxy . \
    && mkdir /out/volumes && mkdir -m 0750 /out/volumes/data
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    mkdir /out/licenses && cp LICENSE /out/licenses/ \
    && go run -C tools ./licenses -C .. -npm /swagger-ui-dist ./cmd/lbd >/out/licenses/THIRD-PARTY-LICENSES.txt

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=unknown
LABEL org.opencontainers.image.title=lbd \
      org.opencontainers.image.description="gRPC's xDS load balancing over HTTP" \
      org.opencontainers.image.source=https://github.com/lbd-dev/lbd \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION}
# 65532 is the user nonroot of the image, as a number because Kubernetes' runAsNonRoot rejects a name.
# Copies the parent: a directory that is copied directly loses its mode.
COPY --from=build --chown=65532:65532 /out/volumes/ /
COPY --from=build /out/lbd /out/lbd-proxy /
COPY --from=build /out/licenses /licenses
ENV LBD_LISTEN=0.0.0.0:8080 LBD_DATA=/data
VOLUME /data
EXPOSE 8080
USER 65532:65532
HEALTHCHECK CMD ["/lbd", "healthcheck"]
ENTRYPOINT ["/lbd"]
