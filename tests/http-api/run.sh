#!/usr/bin/env bash
# Tests the HTTP API of the built binary: schemathesis against /openapi.json, the Prometheus parser against
# /metrics, and every example of docs/http.md.
#
#   tests/http-api/run.sh target/debug/prombus [TEST…]
#
# Requires curl. Installs the Python packages of requirements.txt under target/http-api whenever that file changes.
set -euo pipefail

binary=$(realpath "${1:?"usage: tests/http-api/run.sh BINARY [TEST…]"}")
shift
here=$(cd "$(dirname "$0")" && pwd)
command -v curl >/dev/null || { echo "tests/http-api requires curl" >&2; exit 1; }

python=$here/../../target/http-api/python
if ! cmp --silent "$python/installed-from" "$here/requirements.txt"; then
    mkdir -p "$python"
    python3 -m venv --clear "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$python/installed-from"
fi
python=$(cd "$python" && pwd)

cd "$here"
PROMBUS_BINARY=$binary "$python/bin/python" -B -m unittest -v "$@"
