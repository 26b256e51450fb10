#!/usr/bin/env bash
# Lints, builds and tests the TypeScript client against a built binary, in Node and in headless Chromium.
#
#   sdk/js/test/run.sh target/debug/prombus [VITEST ARGUMENTS…]
#
# Needs openssl. Installs the packages of package-lock.json if it has changed since the last run.
set -euo pipefail

binary=$(realpath "${1:?"usage: sdk/js/test/run.sh BINARY [VITEST ARGUMENTS…]"}")
shift
cd "$(dirname "$0")/.."

if ! cmp --silent node_modules/.installed-from package-lock.json; then
    npm ci --loglevel=error --no-audit --no-fund
    cp package-lock.json node_modules/.installed-from
fi
../../scripts/install-chromium.sh

npm run --silent lint
npm run --silent build
npm run --silent check
PROMBUS_BINARY=$binary npm run --silent test -- "$@"
