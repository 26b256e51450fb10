#!/usr/bin/env bash
# Tests a built binary with third-party WebSocket clients: npm's ws and Python's websockets.
#
#   tests/foreign/run.sh target/debug/prombus
#
# Installs both under target/foreign, at the versions of their lock files, if those have changed.
set -euo pipefail

binary=$(realpath "${1:?"usage: tests/foreign/run.sh BINARY"}")
here=$(cd "$(dirname "$0")" && pwd)
cache=$here/../../target/foreign
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# Succeeds if the lock file $2 differs from the one that was installed into $1.
changed() { ! cmp --silent "$1/installed-from" "$2"; }

node=$cache/node
if changed "$node" "$here/node/package-lock.json"; then
    mkdir -p "$node"
    cp "$here"/node/package*.json "$node"
    (cd "$node" && npm ci --silent --no-audit --no-fund)
    cp "$here/node/package-lock.json" "$node/installed-from"
fi
# Node resolves packages relative to the importing file, so the tests run from the folder with the packages.
rm -f "$node"/*.mjs
cp "$here"/node/*.mjs "$node"

python=$cache/python
if changed "$python" "$here/python/requirements.txt"; then
    python3 -m venv --clear "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check \
        --requirement "$here/python/requirements.txt"
    cp "$here/python/requirements.txt" "$python/installed-from"
fi

data=$(mktemp -d)
"$binary" serve --data "$data" --ws 127.0.0.1:0 --http 127.0.0.1:0 --set limits.enabled=false \
    --set log.format=text 2>"$data/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -rf "$data"' EXIT

until grep -q '^ready' "$data/log"; do
    kill -0 "$server" || { cat "$data/log" >&2; exit 1; }
    sleep 0.1
done
PROMBUS_URL=$(sed -n 's/^WebSocket gateway: //p' "$data/log")
export PROMBUS_URL PROMBUS_BINARY=$binary

status=0
(cd "$node" && node --test --test-reporter=spec) || status=1
(cd "$here/python" && "$python/bin/python" -B -m unittest) || status=1
exit "$status"
