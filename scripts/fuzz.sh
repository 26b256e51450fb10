#!/bin/sh
# Fuzzes one target for a number of seconds: scripts/fuzz.sh TARGET [SECONDS]
#
# Runs without a sanitizer, which needs the nightly toolchain: it would find little in safe Rust, and
# panics and wrong results show without it.
set -eu

version=0.13.2
target=${1:?"usage: scripts/fuzz.sh TARGET [SECONDS]; the targets are in fuzz/fuzz_targets"}
seconds=${2:-60}

cd "$(dirname "$0")/.."
tools=$PWD/target/tools
PATH=$tools/bin:$PATH
export PATH

if [ "$(cargo fuzz --version 2>/dev/null)" != "cargo-fuzz $version" ]; then
    cargo install cargo-fuzz --version "$version" --locked --root "$tools"
fi

mkdir -p "fuzz/corpus/$target"
seeds=fuzz/seeds/$target
set -- "fuzz/corpus/$target"
[ ! -d "$seeds" ] || set -- "$@" "$seeds"
exec cargo fuzz run --sanitizer none "$target" "$@" -- -max_total_time="$seconds" -max_len=4096
