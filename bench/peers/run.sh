#!/usr/bin/env bash
# Measures Prombus and its peers on the same workloads, and rewrites its section of docs/benchmarks.md.
#
#   bench/peers/run.sh                              everything, about twenty minutes
#   bench/peers/run.sh --seconds 1 --n 100000       a short run
#   bench/peers/run.sh --systems prombus,nats --work ac --no-docs
#
# The options are those of the client (--help), and --no-docs, which does not touch the page. Installs missing servers under
# target; the page names peers that cannot be installed. The results are in target/peers/results.json. PROMBUS=path measures
# that binary instead of building one.
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p target/peers

docs=(--docs docs)
options=()
for option in "$@"; do
    if [ "$option" = --no-docs ]; then docs=(); else options+=("$option"); fi
done

if [ -z "${PROMBUS:-}" ]; then
    cargo build --locked --release -p prombus-server
    PROMBUS=$target/release/prombus
fi
cargo build --locked --release --manifest-path bench/peers/Cargo.toml --target-dir "$target/peers-client"

peers=()
add_peer() { # option, script
    local server
    if server=$("$2"); then peers+=("$1" "$server"); else echo "$2 failed: this peer will not be measured" >&2; fi
}
add_peer --nats bench/peers/install-nats.sh
add_peer --redis bench/peers/install-redis.sh
add_peer --mongod scripts/install-mongod.sh

exec "$target/peers-client/release/prombus-peers" --prombus "$PROMBUS" "${peers[@]}" \
    --scratch target/peers --results target/peers/results.json "${docs[@]}" \
    --today "$(date -u +%F)" --revision "$(git describe --always --dirty 2>/dev/null || echo unknown)" \
    "${options[@]}"
