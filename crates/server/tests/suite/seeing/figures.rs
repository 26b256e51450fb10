//! What the store and the process report.

use serde_json::json;

use super::observed::Observed;

#[tokio::test]
async fn a_server_on_disk_reports_its_store_and_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let observed = Observed::start(&["--data", &path], &[]);
    let before = observed.metrics().await;
    let mut client = observed.connect().await;
    for number in 0..100 {
        client.publish("orders", json!({"number": number, "text": "x".repeat(1000)})).await;
    }
    let after = observed.metrics().await;
    assert_eq!(after["prombus_store_writable"], 1.0);
    assert_eq!(after["prombus_store_incidents"], 0.0);
    let backlog =
        |metrics: &std::collections::BTreeMap<String, f64>| metrics["prombus_wal_backlog_bytes"];
    assert!(backlog(&after) > backlog(&before) + 100_000.0, "{}", backlog(&after));
    assert!(after["prombus_store_bytes{kind=\"wal\"}"] >= backlog(&after));
    assert!(after["prombus_store_free_bytes"] > 0.0);
    for kind in ["segments", "packs", "ids", "state", "catalog", "quarantine"] {
        assert!(after.contains_key(&format!("prombus_store_bytes{{kind=\"{kind}\"}}")), "{kind}");
    }
    assert_eq!(after["prombus_checkpoint_seconds_count"], 0.0);
    assert!(after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"]);
    assert!(after["process_resident_memory_bytes"] > 1e6);
    assert_eq!(after["process_start_time_seconds"], before["process_start_time_seconds"]);
    assert!(after["process_max_fds"] > after["process_open_fds"]);
    let connections: Vec<_> = {
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(observed.connect().await);
        }
        open
    };
    let with_connections = observed.metrics().await;
    assert!(with_connections["process_open_fds"] >= after["process_open_fds"] + 15.0);
    drop(connections);
}

/// The age counts from the first delivery, whatever happens to the event until it is acknowledged.
#[tokio::test]
async fn the_oldest_unacknowledged_event_gets_older_until_it_is_acknowledged() {
    let observed = Observed::start(&["--engine", "memory"], &[]);
    let mut consumer = observed.connect().await;
    consumer.subscribe("orders", "billing", json!({})).await;
    let series = "prombus_oldest_unacked_seconds{group=\"billing\",topic=\"orders\"}";
    assert_eq!(observed.metrics().await[series], 0.0);
    for number in 0..2 {
        consumer.publish("orders", json!(number)).await;
    }
    let (first, second) = (consumer.event().await, consumer.event().await);
    let age = observed.metrics().await[series];
    assert!(age > 0.0);
    // The first stays the oldest.
    consumer.ack(&second).await;
    let nack = json!({
        "op": "NACK", "topic": "orders", "group": "billing", "id": first["event"]["id"], "delay_ms": 0,
    });
    consumer.ok(nack).await;
    let again = consumer.event().await;
    assert_eq!(again["ctx"]["attempt"], 2);
    let older = observed.metrics().await[series];
    assert!(older > age, "{older} after {age}");
    consumer.ack(&again).await;
    assert_eq!(observed.metrics().await[series], 0.0);
    // A group without members has no series.
    drop(consumer);
    while observed.metrics().await.contains_key(series) {}
}
