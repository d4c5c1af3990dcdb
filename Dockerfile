# Two images from one build: verifyd (the last, and the default), and with --target nats the NATS server of the version that go.mod pins
# and the tests run, with verifyd beside it for its health check. Both are static binaries on nothing, run by a user without a name.
# The Go version is part of what makes the build repeatable: the same source gives the same bytes.
ARG GO_IMAGE=golang:1.26.8-alpine

FROM ${GO_IMAGE} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-trimpath -buildvcs=false"
COPY go.mod go.sum ./
RUN go mod download
# Before the source, with which it does not change.
RUN go build -ldflags "-s -w" -o /nats/nats-server github.com/nats-io/nats-server/v2
# Volumes take their owner from the image that they are first mounted in: verifyd prepare fills one for each role.
RUN mkdir -p /data /tmp-of-images /shared/edge /shared/dispatcher /shared/operator /shared/monitor /shared/nats /shared/proxy /shared/proxy-data /shared/trust
COPY . .
ARG VERSION=""
RUN go build -ldflags "-s -w -X verifyd/cmd/verifyd/version.built=${VERSION}" -o /out/verifyd ./cmd/verifyd

FROM scratch AS nats
COPY --from=build /nats/nats-server /out/verifyd /
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
EXPOSE 4222 6222 8222
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["/verifyd", "healthcheck", "--url", "http://127.0.0.1:8222/healthz"]
ENTRYPOINT ["/nats-server"]

FROM scratch AS verifyd
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/verifyd /
COPY --from=build --chown=65532:65532 /data /data
COPY --from=build --chown=65532:65532 /tmp-of-images /tmp
COPY --from=build --chown=65532:65532 /shared /shared
USER 65532:65532
ENV VERIFYD_LISTEN=:8080 VERIFYD_DATA_DIR=/data
EXPOSE 8080
VOLUME /data
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["/verifyd", "healthcheck"]
ENTRYPOINT ["/verifyd"]
CMD ["serve"]
