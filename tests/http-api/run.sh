#!/usr/bin/env bash
# Holds the built binary's HTTP to its description: schemathesis over /openapi.json, Prometheus' parser over
# /metrics, and every example of docs/http.md.
#
#   tests/http-api/run.sh target/debug/prombus [TEST…]
#
# Needs curl. What it needs of Python is installed under target/http-api, at the versions of requirements.txt, when
# those have changed.
set -euo pipefail

binary=$(realpath "${1:?"usage: tests/http-api/run.sh BINARY [TEST…]"}")
shift
here=$(cd "$(dirname "$0")" && pwd)
command -v curl >/dev/null || { echo "tests/http-api needs curl" >&2; exit 1; }

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
