#!/bin/sh
# Checks docs/asyncapi.yaml with the AsyncAPI project's parser. Installs it under target/asyncapi,
# at the versions of tests/asyncapi/package-lock.json. Needs Node 20 or newer and npm.
set -eu

cd "$(dirname "$0")/.."
cache=target/asyncapi
mkdir -p "$cache"

# Reinstalls only if the lock file has changed.
if ! cmp -s tests/asyncapi/package-lock.json "$cache/installed"; then
    rm -f "$cache/installed"
    cp tests/asyncapi/package.json tests/asyncapi/package-lock.json "$cache"
    npm ci --prefix "$cache" --ignore-scripts --no-audit --no-fund
    cp tests/asyncapi/package-lock.json "$cache/installed"
fi
cp tests/asyncapi/check.mjs "$cache"
exec node "$cache/check.mjs" --self-test docs/asyncapi.yaml
