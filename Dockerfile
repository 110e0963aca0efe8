FROM golang:1.26 AS bundler
WORKDIR /src
COPY tools/go.mod tools/go.sum ./
RUN CGO_ENABLED=0 go build -o /out/esbuild github.com/evanw/esbuild/cmd/esbuild

FROM node:22 AS web
WORKDIR /src
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --omit=dev
COPY web ./
COPY --from=bundler /out/esbuild /usr/local/bin/esbuild
RUN ESBUILD=esbuild node build.mjs

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
COPY --from=web /src/dist web/dist
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/lbd ./cmd/lbd \
    && mkdir /out/volumes && mkdir -m 0750 /out/volumes/data

FROM gcr.io/distroless/static-debian12:nonroot
# 65532 is the image's user "nonroot". In digits, because Kubernetes' runAsNonRoot refuses a name.
# By way of its parent: a directory that is copied itself loses its mode.
COPY --from=build --chown=65532:65532 /out/volumes/ /
COPY --from=build /out/lbd /lbd
ENV LBD_LISTEN=0.0.0.0:8080 LBD_DATA=/data
VOLUME /data
EXPOSE 8080
USER 65532:65532
HEALTHCHECK CMD ["/lbd", "healthcheck"]
ENTRYPOINT ["/lbd"]
