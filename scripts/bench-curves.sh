#!/usr/bin/env bash
# Measures over the wire, and prints as tables: publish throughput by connections, topics and event size; delivery
# throughput by number of groups; and publish latency at a steady rate by number of connections. Takes about six minutes.
# Needs Python 3.11.
#
#   scripts/bench-curves.sh target/release/prombus
#
# Every row starts its own server, with fsync, in a temporary folder (TMPDIR), and stores at most about 200 MB of events.
set -euo pipefail

prombus=$1
rounds=${ROUNDS:-3}

row() { # label, bench, options...
    local label=$1 bench=$2
    shift 2
    for _ in $(seq "$rounds"); do "$prombus" bench "$bench" --serve --json "$@"; done | python3 -c '
import json, statistics, sys
label = sys.argv[1]
runs = [json.loads(line) for line in sys.stdin]
rates = [float(run["mps"]) for run in runs]
size = runs[0]["bytes"] / (runs[0].get("published") or runs[0]["n"])
median = statistics.median(rates)
each = " ".join(f"{rate:,.0f}" for rate in rates)
print(f"| {label} | {median:,.0f} | {median * size / 1e6:,.0f} | {each} |", flush=True)
' "$label"
}

echo '| connections, topics, bytes per event | events/s | MB/s | by run |'
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
echo 'At a steady 10,000 events per second, from the scheduled send time to the answer, in milliseconds:'
echo
# CPU time that the hypervisor has stolen since boot, in hundredths of a second. Whatever is being measured stands still
# meanwhile.
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
single = seen[1]
print("| connections | p50 | p99 | p99 relative to 1 connection in the same round | late | p99 by run | stolen, ms |")
print("|---|---|---|---|---|---|---|")
for connections, runs in seen.items():
    median = lambda name: statistics.median(run[name] for run in runs)
    ratio = statistics.median(run["p99"] / one["p99"] for run, one in zip(runs, single))
    late = 100 * median("late") / runs[0]["published"]
    each = " ".join(format(run["p99"], ".1f") for run in runs)
    stolen = " ".join(str(run["stolen"]) for run in runs)
    p50, p99 = median("p50"), median("p99")
    print(f"| {connections:,} | {p50:.2f} | {p99:.1f} | {ratio:.2f} | {late:.1f} % | {each} | {stolen} |")
'
