#!/usr/bin/env bash
# Runs docs/examples/outbox.mjs against a MongoDB replica set.
#
#   tests/outbox-node/run.sh mongodb://127.0.0.1:27017/shop?replicaSet=rs0
#
# Installs the MongoDB driver under target/outbox-node, unless the lock file is unchanged since the last run.
set -euo pipefail

export MONGO_URL=${1:?"usage: tests/outbox-node/run.sh MONGODB_URL"}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=$root/target/outbox-node
mkdir -p "$cache"

if ! cmp --silent "$cache/installed-from" "$here/package-lock.json"; then
    cp "$here"/package*.json "$cache"
    (cd "$cache" && npm ci --silent --no-audit --no-fund)
    cp "$here/package-lock.json" "$cache/installed-from"
fi
# Node resolves packages relative to the importing file, so the example runs from the folder with the packages.
cp "$root/docs/examples/outbox.mjs" "$cache"
exec node "$cache/outbox.mjs"
