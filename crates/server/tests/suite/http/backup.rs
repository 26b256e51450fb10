//! `GET /backup`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use prombus_engine::disk::backup::{OnDamage, check_backup, restore};
use prombus_engine::{DiskEngine, DiskOptions, Engine};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::gateway::client::{frame_for, parsed};
use crate::gateway::running::{Running, started, started_over};
use crate::http::client::{HttpClient, Raw};

const HANG_TIMEOUT: Duration = Duration::from_secs(20);

async fn on_disk(folder: &Path, set: &[&str]) -> Running {
    let options = DiskOptions { wal_file_bytes: 64 << 10, ..DiskOptions::at(folder) };
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&options).unwrap());
    started_over(engine, set).await
}

/// Stores events that cannot be compressed, so that a backup has to wait for its reader.
async fn publish_noise(running: &Running, megabytes: u64) {
    let mut client = HttpClient::connect(running).await;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..megabytes * 2 {
        let noise: String = (0..32_000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                format!("{state:016x}")
            })
            .collect();
        client.post("/publish/noise", format!("\"{noise}\"")).await.ok();
    }
}

fn held(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("backup")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_cursors_attempts_and_settings_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = on_disk(&folder.path().join("data"), &[]).await;
    let mut http = HttpClient::connect(&running).await;
    http.put("/topics/t", r#"{"retention_ms": 604800000}"#).await.ok();
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    for n in 1..=5 {
        client.publish("t", json!(n)).await;
    }
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(client.event().await);
    }
    client.ok(frame_for("ACK", &events[0])).await;
    let mut marked = frame_for("ACK", &events[2]);
    marked["mark"] = json!(true);
    client.ok(marked).await;
    let mut rejected = frame_for("NACK", &events[1]);
    rejected["delay_ms"] = json!(0);
    client.ok(rejected).await;
    assert_eq!(client.event().await["ctx"]["attempt"], 2);
    let groups = http.get("/cursors?topic=t").await.ok();

    let reply = http.get("/backup").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/vnd.prombus.backup"));
    let file = folder.path().join("a.backup");
    std::fs::write(&file, &reply.body).unwrap();
    running.server.stop().await.unwrap();
    let target = folder.path().join("restored");
    restore(&file, &target, OnDamage::Stop, &mut |_, _, _| {}).unwrap();

    let running = on_disk(&target, &[]).await;
    let mut http = HttpClient::connect(&running).await;
    assert_eq!(http.get("/topics/t").await.ok()["own"], json!({"retention_ms": 604_800_000}));
    assert_eq!(http.get("/cursors?topic=t").await.ok(), groups);
    let mut client = running.connect().await;
    let ids: Vec<_> = events.iter().map(|event| event["event"]["id"].clone()).collect();
    let seen = json!({"op": "SEEN", "topic": "t", "group": "g", "ids": ids});
    assert_eq!(parsed(&client.ask(seen).await)["seen"], json!([ids[2]]));
    client.subscribe("t", "g", json!({})).await;
    let mut left = Vec::new();
    for _ in 0..3 {
        let event = client.event().await;
        left.push((event["event"]["seq"].as_u64().unwrap(), event["ctx"]["attempt"].clone()));
        client.ok(frame_for("ACK", &event)).await;
    }
    left.sort_unstable_by_key(|(seq, _)| *seq);
    let seqs: Vec<_> = left.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, [2, 4, 5], "what was acknowledged stays acknowledged");
    assert!(left[0].1.as_u64() > Some(1), "attempts count on: {left:?}");
}

#[tokio::test]
async fn only_administrators_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = r#"auth.tokens=[
        {token="reader",scopes=["read:**","manage:**"]},{token="operator",scopes=["admin"]}]"#;
    let running = on_disk(folder.path(), &[tokens]).await;
    let mut reader = HttpClient::connect(&running).await.with_token("reader");
    reader.get("/backup").await.refused(403, "forbidden");
    HttpClient::connect(&running).await.get("/backup").await.refused(401, "unauthorized");
    let mut operator = HttpClient::connect(&running).await.with_token("operator");
    let message = operator.get("/backup?damaged=maybe").await.refused(400, "bad_frame");
    assert!(message.contains("must be stop or include"), "{message}");
    operator.get("/backup?output=x").await.refused(400, "bad_frame");
    let head = operator.ask("HEAD", "/backup", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    let reply = operator.get("/backup").await;
    check_backup(&reply.body[..], &mut |_, _| {}).unwrap();
}

#[tokio::test]
async fn other_engines_say_what_to_use_instead() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let message = client.get("/backup").await.refused(501, "unknown_op");
    assert!(message.contains("mongodump") || message.contains("export"), "{message}");
}

/// Publishers, checkpoints and retention do not wait for a client that reads nothing, its memory is bounded,
/// and when it is disconnected the files that were kept for it are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["gateway.slow_consumer_timeout_ms=1500", "gateway.max_frame_bytes=16777216"];
    let running = on_disk(folder.path(), &set).await;
    publish_noise(&running, 24).await;
    let host = running.server.http();
    let request = format!("GET /backup HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let unread = Raw::narrow(host, &request).await;
    let mut client = HttpClient::connect(&running).await;
    let responses = || running.server.bus().memory().responses.in_use();
    let waiting = async {
        while responses() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        // Everything that the backup has not read is removed.
        let engine = running.server.engine();
        let noise = prombus_proto::Topic::new("noise").unwrap();
        while held(folder.path()) == 0 {
            let end = engine.bounds(&noise).await.unwrap().next;
            engine.trim(&noise, end).await.unwrap();
            for n in 0..50 {
                client.post("/publish/t", format!("[{n},\"{}\"]", "x".repeat(1000))).await.ok();
            }
            assert!(responses() < 16 << 20, "{} bytes wait for the client", responses());
        }
        while held(folder.path()) > 0 {
            client.post("/publish/t", "1").await.ok();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG_TIMEOUT, waiting).await.expect("nothing is held, or it is held for ever");
    drop(unread);
    client.get("/backup").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_backup_has_to_wait() {
    let folder = tempfile::tempdir().unwrap();
    let running = on_disk(folder.path(), &["gateway.max_frame_bytes=16777216"]).await;
    publish_noise(&running, 24).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = HttpClient::connect(&running).await;
        let response = client.open("GET", "/backup", &[], "").await;
        assert_eq!(response.status(), 200);
        clients.push((client, response));
    }
    let mut third = HttpClient::connect(&running).await;
    let message = third.get("/backup").await.refused(429, "limit_exceeded");
    assert!(message.contains("2 backups are running"), "{message}");
    // Those that run are not harmed.
    let (_client, response) = clients.remove(0);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    check_backup(&body[..], &mut |_, _| {}).unwrap();
    drop(clients);
    let again = async {
        while third.get("/backup").await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG_TIMEOUT, again).await.expect("the others have ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_it_and_it_does_not_pass_for_complete() {
    let folder = tempfile::tempdir().unwrap();
    let running = on_disk(folder.path(), &["gateway.max_frame_bytes=16777216"]).await;
    publish_noise(&running, 24).await;
    let mut client = HttpClient::connect(&running).await;
    let response = client.open("GET", "/backup", &[], "").await;
    let stopping = tokio::spawn(running.server.stop());
    sleep(Duration::from_millis(50)).await;
    let received = timeout(HANG_TIMEOUT, response.into_body().collect()).await.expect("it ends");
    assert!(received.is_err(), "the response is cut off");
    timeout(HANG_TIMEOUT, stopping).await.expect("the server stops").unwrap().unwrap();
    assert_eq!(held(folder.path()), 0);
}
