#!/usr/bin/env bash
# Prints the path of a Redis server for the benchmarks. Never shipped.
#
#   bench/peers/install-redis.sh
#
# Uses the installed server, or else unpacks Debian's under target/peers/redis with the libraries it needs, which takes apt but
# not root.
set -euo pipefail

if command -v redis-server; then exit 0; fi

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=$root/target/peers/redis
server=$cache/redis-server

if [ ! -x "$server" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "redis-server is not installed, and neither is apt to download it; install redis-server in the PATH" >&2
        exit 1
    fi
    rm -rf "$cache"
    mkdir -p "$cache/packages"
    cd "$cache/packages"
    # The versions are those of the package lists (`apt-get update`). apt checks signatures.
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
