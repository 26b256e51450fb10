//! Small runs of `prombus bench`: checks what they measure, never how fast.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;

use serde_json::{Value, json};

use crate::cli::server::{Ran, Server, prombus, run};

fn bench(arguments: &[&str]) -> Ran {
    run(prombus(&[&["bench"], arguments].concat()), "")
}

/// Returns the single object a run prints.
#[track_caller]
fn report(ran: &Ran) -> Value {
    let lines = ran.lines();
    assert_eq!(lines.len(), 1, "{ran:?}");
    lines[0].clone()
}

#[track_caller]
fn assert_latencies(report: &Value) {
    let figures = ["p50", "p90", "p99", "p99.9", "max"].map(|name| report[name].as_f64().unwrap());
    assert!(figures.is_sorted() && figures[4] > 0.0, "{report}");
    assert!(report["avg"].as_f64().is_some_and(|avg| avg > 0.0 && avg <= figures[4]), "{report}");
    for figure in ["ms", "mps"] {
        assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
    }
}

#[track_caller]
fn events_of(server: &Server, topic: &str) -> u64 {
    server.run(&["topics", topic], "").lines()[0]["events"].as_u64().unwrap()
}

#[test]
fn publishing_in_process_uses_a_temporary_disk_store_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = prombus(&["bench", "publish", "--n", "300", "--json"]);
    command.env("TMPDIR", dir.path());
    let report = report(&run(command, ""));
    assert_eq!((&report["published"], &report["bytes"]), (&json!(300), &json!(300 * 236)));
    assert_latencies(&report);
    let on = "in process, disk engine in a temporary directory";
    let settings = json!({
        "on": on, "durability": "fsync", "n": 300, "size": 236, "batch": 1, "window": 1000,
        "connections": 1, "topics": 1, "rate": null,
    });
    assert_eq!(report["settings"], settings);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn every_group_receives_every_event() {
    let ran = bench(&["subscribe", "--serve", "--n", "40", "--groups", "3", "--json"]);
    let report = report(&ran);
    assert_eq!((&report["n"], &report["settings"]["groups"]), (&json!(120), &json!(3)));
    bench(&["subscribe", "--groups", "0"]).failed_with("--groups must be at least 1");
}

#[test]
fn a_named_directory_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    for n in ["10", "20"] {
        let ran = bench(&["subscribe", "--n", n, "--data", data, "--durability", "buffered"]);
        let report = report(&ran);
        assert_eq!(report["n"].to_string(), n);
        assert_eq!(report["settings"]["durability"], "buffered");
        assert_latencies(&report);
    }
    assert!(dir.path().join("catalog").exists());
    bench(&["publish", "--data", data, "--engine", "memory"])
        .failed_with("--data needs --engine disk");
}

#[test]
fn prints_a_table_on_request() {
    let ran = bench(&["publish", "--n", "1000", "--engine", "memory", "--table"]);
    assert!(ran.is_success, "{ran:?}");
    for line in ["published", "1,000", "p99.9", "in process, memory engine"] {
        assert!(ran.out.contains(line), "{line} is not in {}", ran.out);
    }
}

#[test]
fn publishing_over_the_network_stores_every_event() {
    let server = Server::start(&[]);
    for (number, options) in [
        &["--window", "50"][..],
        &["--batch", "30", "--connections", "2"],
        &["--rate", "5000", "--size", "2000"],
    ]
    .into_iter()
    .enumerate()
    {
        let topic = format!("t{number}");
        let common = ["publish", "--n", "400", "--topic", &topic, "--url", &server.url];
        let report = report(&bench(&[&common, options].concat()));
        assert_eq!(report["published"], 400);
        assert_latencies(&report);
        assert_eq!(events_of(&server, &topic), 400);
    }
    let replayed = server.run(&["replay", "t2", "--limit", "1"], "");
    // Its seq has one digit instead of seven.
    assert_eq!(replayed.out.trim_end().len(), 2000 - 6, "{}", replayed.out);
    bench(&["publish", "--url", &server.url, "--n", "9", "--topics", "3"]).lines();
    assert_eq!(events_of(&server, "bench.topic.2"), 3);
}

#[test]
fn consuming_over_the_network_acknowledges_every_event() {
    let server = Server::start(&[]);
    for options in [
        &["--topic", "a"][..],
        &["--topic", "b", "--connections", "3", "--topics", "2", "--batch", "4"],
        &["--topic", "c", "--rate", "2000"],
        &["--topic", "d", "--backlog"],
        &["--topic", "e", "--backlog", "--connections", "2", "--topics", "3", "--window", "10"],
    ] {
        // Twice: events of an earlier run do not count.
        for _ in 0..2 {
            let common = ["subscribe", "--n", "300", "--url", &server.url];
            let report = report(&bench(&[&common, options].concat()));
            assert_eq!(report["n"], 300, "{options:?}");
            assert_latencies(&report);
        }
    }
    for group in server.run(&["groups", "a"], "").lines() {
        let lag = group["lag_events"].as_u64().unwrap();
        // The group of the first run has not consumed the events of the second.
        assert!(lag == 0 || lag == 300, "{group}");
    }
}

#[test]
fn serve_measures_a_spawned_server_over_the_network() {
    let common = ["--serve", "--engine", "memory", "--n", "200"];
    let report = report(&bench(&[&["subscribe"], &common[..]].concat()));
    assert_eq!(report["n"], 200);
    assert_eq!(report["settings"]["on"], "spawned server, memory engine");
}

#[test]
fn a_rate_limited_run_fails() {
    let server = Server::start(&["limits.enabled=true"]);
    for command in ["publish", "subscribe"] {
        let ran = bench(&[command, "--n", "5000", "--url", &server.url]);
        ran.failed_with("rate_limited: conn publish rate exceeded");
        ran.failed_with("limits.enabled=false");
    }
    // Below the limit, nothing is rejected.
    let report = report(&bench(&["publish", "--n", "20", "--rate", "100", "--url", &server.url]));
    assert_eq!(report["published"], 20);
}

#[test]
fn durability_of_a_running_server_is_set_over_http() {
    let server = Server::start(&[]);
    let common = ["publish", "--n", "5", "--durability", "buffered", "--url", &server.url];
    bench(&common).failed_with("pass the server's HTTP address");
    bench(&[&common[..], &["--http", &server.http]].concat()).lines();
    // One HTTP URL is enough.
    let common =
        ["publish", "--n", "5", "--durability", "buffered", "--keep", "--url", &server.http];
    bench(&common).lines();
    let topic = &server.run(&["topics", "bench.topic"], "").lines()[0];
    assert_eq!(topic["settings"]["durability"], "buffered");
}

#[test]
fn invalid_arguments_are_named() {
    for (arguments, reason) in [
        (&["publish", "--n", "0"][..], "--n must be at least 1"),
        (&["publish", "--size", "20", "--engine", "memory"], "--size 20 is too small"),
        (&["publish", "--engine", "paper"], "--engine"),
        (&["publish", "--url", "http://127.0.0.1:1/"], "ws://"),
        (&["subscribe", "--backlog", "--rate", "5"], "--rate"),
        (&["limits", "--topic-limit", "5"], "CAPACITY/REFILL_PER_SEC"),
    ] {
        bench(arguments).failed_with(reason);
    }
}

#[test]
fn measures_connections_and_their_memory() {
    let common = ["connections", "--engine", "memory", "--n", "20", "--seconds", "0.5"];
    let idle = report(&bench(&common));
    assert_eq!((&idle["connections"], &idle["published"]), (&json!(20), &Value::Null));
    for figure in ["opened_ms", "memory_before", "memory_idle"] {
        assert!(idle[figure].as_f64().is_some_and(|figure| figure > 0.0), "{idle}");
    }
    assert!(idle["memory_each"].is_u64(), "{idle}");
    let active = report(&bench(&[&common[..], &["--rate", "10"]].concat()));
    assert_eq!((&active["connections"], &active["published"]), (&json!(20), &json!(100)));
    assert_latencies(&active);
    let server = Server::start(&[]);
    let running_server = ["connections", "--url", &server.url, "--n", "5", "--seconds", "0"];
    assert_eq!(report(&bench(&running_server))["memory_idle"], Value::Null);
}

#[test]
fn measures_an_export() {
    let common = ["export", "--engine", "memory", "--n", "700", "--size", "500"];
    let own = report(&bench(&common));
    assert_eq!(own["exported"], 700);
    // A seq of up to three digits instead of seven, and line breaks.
    let bytes = own["bytes"].as_u64().unwrap();
    assert!((700 * 495..700 * 501).contains(&bytes), "{own}");
    assert!(own["mb_per_sec"].as_f64().is_some_and(|figure| figure > 0.0), "{own}");
    let server = Server::start(&[]);
    server.run(&["publish", "t", "1", "2", "3"], "").lines();
    let there = report(&bench(&["export", "--topic", "t", "--url", &server.http]));
    assert_eq!(there["exported"], 3);
    bench(&["export", "--topic", "no", "--url", &server.http]).failed_with("unknown_topic");
}

#[test]
fn compares_limits_with_their_settings() {
    let limits = ["--connection-limit", "30/50", "--topic-limit", "60/100"];
    let common = ["limits", "--engine", "memory", "--seconds", "0.5"];
    let report = report(&bench(&[&common[..], &limits].concat()));
    for (bucket, capacity, connections) in [("connection", 30, 1), ("topic", 60, 4)] {
        let bucket = &report[bucket];
        assert!(bucket["passed"].as_u64().is_some_and(|passed| passed >= capacity), "{report}");
        assert!(bucket["refused"].as_u64().is_some_and(|refused| refused > 0), "{report}");
        assert_eq!(bucket["connections"], connections);
        let figure = |name: &str| bucket[name].as_f64().unwrap();
        let expected = capacity as f64 + capacity as f64 / 0.6 * figure("ms") / 1000.0;
        assert!((figure("expected") - expected).abs() < 0.2, "{report}");
        assert!((figure("ratio") - figure("passed") / expected).abs() < 0.01, "{report}");
    }
    let server = Server::start(&[]);
    let off = bench(&["limits", "--url", &server.url, "--seconds", "0.2"]);
    off.failed_with("limits.enabled");
}

#[test]
fn the_topics_that_a_bench_creates_are_removed_and_others_stay() {
    let server = Server::start(&[]);
    server.run(&["publish", "known", "1"], "").lines();
    let bench = |arguments: &[&str]| {
        let all = [&["bench"], arguments, &["--url", &server.http]].concat();
        report(&run(prombus(&all), ""))
    };
    bench(&["publish", "--n", "20", "--topics", "2", "--topic", "new"]);
    bench(&["subscribe", "--n", "20", "--topic", "new"]);
    bench(&["connections", "--n", "2", "--rate", "20", "--seconds", "1", "--topic", "new"]);
    bench(&["publish", "--n", "20", "--topic", "known"]);
    bench(&["publish", "--n", "20", "--topic", "kept", "--keep"]);
    let topics = server.run(&["topics"], "").lines();
    let counts: Vec<_> =
        topics.iter().map(|it| (it["topic"].clone(), it["events"].clone())).collect();
    assert_eq!(counts, [(json!("kept"), json!(20)), (json!("known"), json!(21))]);
}

#[test]
fn a_bench_that_fails_leaves_no_topics() {
    let server = Server::start(&[
        "limits.enabled=true",
        "limits.topic.capacity=10",
        "limits.topic.refill_per_sec=1",
    ]);
    let all = ["bench", "publish", "--n", "200", "--topic", "new", "--url", &server.http];
    run(prombus(&all), "").failed_with("rate_limited");
    assert!(server.run(&["topics"], "").lines().is_empty());
}
