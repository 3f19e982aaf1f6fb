# docker build -t netrig .
# docker run --rm --privileged netrig run layers --quick
# docker run --rm --privileged --pid=host netrig run balancer --quick
# The images that it begins with may come from elsewhere, a mirror for example:
# docker build --build-arg RUST_IMAGE=... --build-arg DEBIAN_IMAGE=... -t netrig .
ARG RUST_IMAGE=rust:1-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

FROM $RUST_IMAGE AS build
RUN apt-get update -q \
    && apt-get install -q -y --no-install-recommends gcc libc6-dev libelf-dev zlib1g-dev make pkg-config clang \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /netrig
COPY . .
# Line tables are three quarters of the binary.
RUN cargo build --profile dist --locked --features bgp --package netrig && strip --strip-debug target/dist/netrig

FROM $DEBIAN_IMAGE
# Peers of the suites balancer and overlay, and what one tries by hand in `netrig shell`.
RUN apt-get update -q \
    && apt-get install -q -y --no-install-recommends libelf1 zlib1g iproute2 iputils-ping nftables haproxy \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /netrig/target/dist/netrig /usr/bin/netrig
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/netrig/
# Runs are kept where a volume can be: docker run -v netrig:/var/lib/netrig ...
ENV NETRIG_STORE=/var/lib/netrig/runs.sqlite
VOLUME /var/lib/netrig
ENTRYPOINT ["netrig"]
CMD ["--help"]
