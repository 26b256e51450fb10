#!/usr/bin/env bash
# Prints where the Redis server is that is measured. For benchmarks only, never shipped.
#
#   bench/peers/install-redis.sh
#
# It is the one that is installed, or else Debian's, which is unpacked under target/peers/redis with the libraries
# it needs; that takes apt, and no rights.
set -euo pipefail

if command -v redis-server; then exit 0; fi

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=$root/target/peers/redis
server=$cache/redis-server

if [ ! -x "$server" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "redis-server is not installed, and there is no apt to get Debian's; install it, such that it is in the PATH" >&2
        exit 1
    fi
    rm -rf "$cache"
    mkdir -p "$cache/packages"
    cd "$cache/packages"
    # Versions are those of the system's package lists, which `apt-get update` renews; apt checks signatures.
    apt-get -qq -o APT::Sandbox::User= download redis-tools redis-server liblzf1 libjemalloc2 libatomic1 >&2
    for package in *.deb; do dpkg-deb -x "$package" "$cache/unpacked"; done
    cat >"$server" <<'RUN'
#!/bin/sh
here=$(dirname "$0")/unpacked/usr
LD_LIBRARY_PATH=$(echo "$here"/lib/*-linux-gnu) exec "$here/bin/redis-server" "$@"
RUN
    chmod +x "$server"
    "$server" --version >&2
fi
echo "$server"
