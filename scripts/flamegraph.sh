#!/usr/bin/env bash
# Draws two flame graphs of the server in docs/benchmarks: one while it stores publishes, one while it delivers. The first
# run takes about ten minutes, because it builds the server with frame pointers in a folder of its own. Needs perf.
#
#   scripts/flamegraph.sh
#
# FLAME_TARGET sets the build folder. The server listens on loopback and stores its data in a temporary folder (TMPDIR).
set -euo pipefail

cd "$(dirname "$0")/.."
command -v perf >/dev/null || { echo "perf is not installed (Debian: apt install linux-perf)" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-$PWD/target}
built=${FLAME_TARGET:-$target/flame}
tools=$target/tools/inferno
inferno=0.12.8

CARGO_TARGET_DIR=$built RUSTFLAGS="-C force-frame-pointers=yes" cargo build --locked --release -p prombus-server
[ -x "$tools/bin/inferno-flamegraph" ] ||
    cargo install --locked --quiet --root "$tools" --version "$inferno" --no-default-features --features cli,nameattr inferno

prombus=$built/release/prombus
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
mkdir -p docs/benchmarks

graph() { # name, title, bench and options
    local name=$1 title=$2
    shift 2
    "$prombus" --data "$work/$name" --set limits.enabled=false --set log.level=warn \
        --set server.ws=127.0.0.1:17801 --set server.http=127.0.0.1:17802 >/dev/null &
    server=$!
    until "$prombus" topics --url http://127.0.0.1:17802 >/dev/null 2>&1; do
        kill -0 "$server" || exit 1
        sleep 0.1
    done
    "$prombus" bench "$@" --url ws://127.0.0.1:17801 --json >"$work/report" &
    local bench=$!
    sleep 1
    perf record -q -o "$work/perf.data" -e cpu-clock -F 1999 -g --call-graph fp -p "$server" -- sleep 3
    wait "$bench"
    kill "$server"
    wait "$server" || true
    server=
    # Frames below half a per cent would make the file ten times as large.
    perf script -i "$work/perf.data" --no-inline 2>/dev/null |
        "$tools/bin/inferno-collapse-perf" 2>/dev/null |
        "$tools/bin/inferno-flamegraph" --title "$title" --minwidth 0.5 --hash >"docs/benchmarks/$name.svg"
    echo "docs/benchmarks/$name.svg: $(head -c 300 "$work/report")"
}

graph flame-publish "publish, one event per frame, fsynced" publish --n 3500000
graph flame-deliver "publish, deliver, acknowledge each, fsynced" subscribe --n 2000000
