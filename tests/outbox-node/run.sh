#!/usr/bin/env bash
# Runs docs/examples/outbox.mjs, as a service would, on a MongoDB replica set.
#
#   tests/outbox-node/run.sh mongodb://127.0.0.1:27017/shop?replicaSet=rs0
#
# The driver is installed under target/outbox-node, at the version of the lock file, when that has changed.
set -euo pipefail

export MONGO_URL=${1:?"usage: tests/outbox-node/run.sh MONGODB_URL"}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
place=$root/target/outbox-node
mkdir -p "$place"

if ! cmp --silent "$place/installed-from" "$here/package-lock.json"; then
    cp "$here"/package*.json "$place"
    (cd "$place" && npm ci --silent --no-audit --no-fund)
    cp "$here/package-lock.json" "$place/installed-from"
fi
# Node looks for packages above the files that import them, so it is run from beside the packages.
cp "$root/docs/examples/outbox.mjs" "$place"
exec node "$place/outbox.mjs"
