#!/usr/bin/env bash
# Checks, builds and tests the TypeScript client against the built binary, in Node and in headless Chromium.
#
#   sdk/js/test/run.sh target/debug/prombus [ARGUMENTS OF VITEST…]
#
# Needs openssl. Packages are installed at the versions of package-lock.json when those have changed.
set -euo pipefail

binary=$(realpath "${1:?"usage: sdk/js/test/run.sh BINARY [ARGUMENTS OF VITEST…]"}")
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
