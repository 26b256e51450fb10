#!/usr/bin/env bash
# How fast the binary is over the wire with more connections, topics and bytes, as a table; and what a delivery costs
# where many groups get every event; and whether many connections at a steady rate are answered as soon as one. Some six
# minutes. Needs python 3.11.
#
#   scripts/bench-curves.sh target/release/prombus
#
# Every row is a server process of its own, fsynced, on a temporary folder (TMPDIR), with some 200 MB of events at most.
set -euo pipefail

prombus=$1
rounds=${ROUNDS:-3}

row() { # what to say, bench, options...
    local said=$1 bench=$2
    shift 2
    for _ in $(seq "$rounds"); do "$prombus" bench "$bench" --serve --json "$@"; done | python3 -c '
import json, statistics, sys
said = sys.argv[1]
runs = [json.loads(line) for line in sys.stdin]
rates = [float(run["mps"]) for run in runs]
size = runs[0]["bytes"] / (runs[0].get("published") or runs[0]["n"])
middle = statistics.median(rates)
each = " ".join(f"{rate:,.0f}" for rate in rates)
print(f"| {said} | {middle:,.0f} | {middle * size / 1e6:,.0f} | {each} |", flush=True)
' "$said"
}

echo '| connections, topics, bytes an event | events/s | MB/s | by run |'
echo '|---|---|---|---|'
for connections in 1 4 16 64; do
    for topics in 1 100; do
        row "$connections, $topics, 236" publish --n 400000 --connections $connections --topics $topics
    done
done
for size in 200 1000 4096 16384 65536; do
    n=$((200000000 / size))
    row "1, 1, $size" publish --n $((n < 400000 ? n : 400000)) --size $size
done
echo
echo '| groups of one topic | deliveries/s | MB/s | by run |'
echo '|---|---|---|---|'
for groups in 1 5 50; do
    row "$groups" subscribe --n $((500000 / groups)) --groups $groups --batch 100
done
echo
echo 'At a steady 10,000 events a second, from when each was to be sent to its answer, in milliseconds:'
echo
# Time that the host of a virtual machine took from its processors since its start, in hundredths of a second: whatever is
# measured meanwhile stands still.
stolen() { awk '/^cpu / { print $9 }' /proc/stat; }
for _ in $(seq "$rounds"); do
    for connections in 1 100 1000; do
        before=$(stolen)
        run=$("$prombus" bench publish --serve --json --rate 10000 --n 100000 --connections $connections)
        echo "$(($(stolen) - before))0 $run"
    done
done | python3 -c '
import json, statistics, sys
seen = {}
for line in sys.stdin:
    stolen, run = line.split(" ", 1)
    run = {**json.loads(run), "stolen": int(stolen)}
    seen.setdefault(run["settings"]["connections"], []).append(run)
alone = seen[1]
print("| connections | p50 | p99 | p99 / of 1 in the same round | late | p99 by run | stolen, ms |")
print("|---|---|---|---|---|---|---|")
for connections, runs in seen.items():
    middle = lambda name: statistics.median(run[name] for run in runs)
    ratio = statistics.median(run["p99"] / one["p99"] for run, one in zip(runs, alone))
    late = 100 * middle("late") / runs[0]["published"]
    each = " ".join(format(run["p99"], ".1f") for run in runs)
    stolen = " ".join(str(run["stolen"]) for run in runs)
    p50, p99 = middle("p50"), middle("p99")
    print(f"| {connections:,} | {p50:.2f} | {p99:.1f} | {ratio:.2f} | {late:.1f} % | {each} | {stolen} |")
'
