# syntax=docker/dockerfile:1
#
#   docker build -t drawbridge .
#   docker run --rm -p 127.0.0.1:8080:8080 -e DRAWBRIDGE_ACCESS=none drawbridge serve --upstream wss://example.com/socket
#
# Two stages: the first compiles; the second contains only the program and its configuration. Both base images are build arguments, so
# that a mirror or another base image can replace them. They must be of the same Debian release.

ARG BUILDER_IMAGE=swift:6.3-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

FROM ${BUILDER_IMAGE} AS builder
# Versions are not pinned: Debian removes the old ones when it publishes a security update.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      libsqlite3-dev libssl-dev libyaml-dev zlib1g-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Package.swift ./
COPY Sources Sources
# Embedded in the program through symbolic links in Sources.
COPY docs/errors.md docs/errors.md
COPY config/profiles config/profiles
# Package.swift lists the test and benchmark targets, so their folders must exist. They are not built.
COPY Tests Tests
COPY Benchmarks Benchmarks
RUN swift build -c release --static-swift-stdlib --product drawbridge \
 && install -D --strip "$(swift build -c release --static-swift-stdlib --show-bin-path)/drawbridge" /out/drawbridge

FROM ${RUNTIME_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates libsqlite3-0 libssl3 libstdc++6 libyaml-0-2 zlib1g \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*
COPY --from=builder /out/drawbridge /usr/local/bin/drawbridge
COPY config/drawbridge.yaml config/drawbridge.schema.json /etc/drawbridge/
# For the store, with DRAWBRIDGE_STORE_ENGINE=sqlite. A new volume gets the owner and the mode of this folder.
RUN install -d -m 0700 -o 65532 -g 65532 /data

# Listen on all addresses: clients cannot reach the loopback address of a container. Publish only the ports that clients need. Who may
# use it is not set here: the start fails without DRAWBRIDGE_AUTHENTICATION_TOKENS (or jwt) or DRAWBRIDGE_ACCESS=none.
ENV DRAWBRIDGE_LISTENERS_HTTP=0.0.0.0:8080 \
    DRAWBRIDGE_LISTENERS_MANAGEMENT=0.0.0.0:9090 \
    DRAWBRIDGE_STORE_PATH=/data/drawbridge.db
EXPOSE 8080 9090
VOLUME /data

# https://specs.opencontainers.org/image-spec/annotations/ Set VERSION and REVISION when you publish the image.
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Drawbridge" \
      org.opencontainers.image.description="Connects HTTP-only clients to WebSocket-only services" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Numeric, so that Kubernetes can verify runAsNonRoot without a user database. The program writes to /data only, and only with a store.
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["drawbridge", "healthcheck"]
ENTRYPOINT ["drawbridge"]
CMD ["serve"]
