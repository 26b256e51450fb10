#!/usr/bin/env bash
# Builds all tests and prints the path of one test program.
#
#   scripts/test-program.sh server suite     the tests of crates/server/tests/suite
#
# `cargo test -p` would rebuild dependencies, because features that only other crates of the workspace enable would be
# missing; MongoDB's driver alone takes minutes.
set -euo pipefail

crate=$1 target=$2
cargo test --locked --workspace --no-run --message-format=json-render-diagnostics |
    python3 -c '
import json, sys
crate, target = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    if message["reason"] != "compiler-artifact" or not message["executable"]:
        continue
    if message["manifest_path"].endswith(f"/crates/{crate}/Cargo.toml") and message["target"]["name"] == target:
        print(message["executable"])
' "$crate" "$target"
