#!/bin/sh
# Checks docs/asyncapi.yaml with the AsyncAPI project's parser, which is installed below target/
# at the versions of tests/asyncapi/package-lock.json. Needs node 20 or newer and npm.
set -eu

cd "$(dirname "$0")/.."
place=target/asyncapi
mkdir -p "$place"

# Installed again only when what is wanted has changed.
if ! cmp -s tests/asyncapi/package-lock.json "$place/installed"; then
    rm -f "$place/installed"
    cp tests/asyncapi/package.json tests/asyncapi/package-lock.json "$place"
    npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund
    cp tests/asyncapi/package-lock.json "$place/installed"
fi
cp tests/asyncapi/check.mjs "$place"
exec node "$place/check.mjs" --self-test docs/asyncapi.yaml
