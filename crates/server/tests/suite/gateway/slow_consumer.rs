//! The cost of a client that never reads, with a hundred thousand events to deliver.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::gateway::client::Client;
use crate::ready::{self, Ready};
use crate::store::Store;

const EVENTS: usize = 100_000;
const PAYLOAD: usize = 1000;
/// Each may lease 10,000 events at a time: together far more than the delivery queue holds.
const GROUPS: usize = 8;
const MIB: usize = 1 << 20;

/// The built binary, so that its memory can be measured.
struct Process {
    child: Child,
}

impl Process {
    fn started(store: &Store) -> (Self, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
        command
            .args(["--ws", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "limits.enabled=false"])
            .args(["--set", "gateway.max_outbox_bytes=1048576"])
            .args(["--set", "gateway.slow_consumer_timeout_ms=4000"])
            .args(["--set", r#"topics."t".durability=buffered"#])
            .args(store.arguments());
        let Ready { child, ws, log, .. } = ready::start(&mut command);
        ready::print(log);
        let address = ws.trim_start_matches("ws://").trim_end_matches('/').parse();
        (Self { child }, address.unwrap())
    }

    /// Returns its resident anonymous memory, in bytes.
    fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the median time of a publish, its delivery and its acknowledgement.
async fn latency(client: &mut Client) -> Duration {
    let mut times = Vec::new();
    for n in 0..100 {
        let started = Instant::now();
        client.publish("other", json!(n)).await;
        let event = client.event().await;
        client.ack(&event).await;
        times.push(started.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_slow_consumer_costs_only_its_buffer_and_is_closed() {
    let store = Store::new();
    let (process, address) = Process::started(&store);
    let mut publisher = Client::connect(address).await;
    let payload = "x".repeat(PAYLOAD);
    for _ in 0..EVENTS / 500 {
        let events: Vec<_> = (0..500).map(|_| json!({"payload": payload})).collect();
        publisher.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    }
    let mut other = Client::connect(address).await;
    other.subscribe("other", "g", json!({})).await;
    let before = latency(&mut other).await;
    let resident = process.resident();
    let mut stuck = Client::connect_narrow(address).await;
    for group in 0..GROUPS {
        let opts = json!({"from": "earliest", "maxInFlight": 10_000});
        let group = format!("g{group}");
        stuck.send(&json!({"op": "SUBSCRIBE", "topic": "t", "group": group, "opts": opts})).await;
    }
    let started = Instant::now();
    sleep(Duration::from_millis(500)).await;
    let meanwhile = latency(&mut other).await;
    let growth = process.resident().saturating_sub(resident);
    println!("memory grew by {} KiB while {} MiB wait", growth / 1024, EVENTS * PAYLOAD / MIB);
    println!(
        "latency of others: {before:?} before, {meanwhile:?} meanwhile, ratio {:.2}",
        meanwhile.as_secs_f64() / before.as_secs_f64()
    );
    // The delivery queue, the read-ahead of each group, and overhead of the allocator.
    assert!(growth < 16 * MIB, "{growth} bytes");
    sleep(Duration::from_millis(6000).saturating_sub(started.elapsed())).await;
    assert_eq!(stuck.close_code().await, 4008);
    other.assert_lives().await;
}
