//! NDJSON publishes when memory or tokens are short: nobody waits for the uploads of others.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::gateway::running::{Running, started};
use crate::http::client::{HttpClient, Raw, connect_from};
use crate::http::metrics::scrape;

const NDJSON: &str = "content-type: application/x-ndjson\r\n";
const LINE: &str = "{\"payload\":1}\n";
const HANG_TIMEOUT: Duration = Duration::from_secs(20);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns about `kib` KiB of lines.
fn lines(kib: usize) -> String {
    format!("{{\"payload\":\"{}\"}}\n", "x".repeat(1010)).repeat(kib)
}

/// Starts an upload of a declared length from another address, and sends `start` of it.
async fn upload(running: &Running, length: usize, start: String) -> tokio::task::JoinHandle<Raw> {
    let address = running.server.http();
    let mut raw = Raw(connect_from(address, OTHER).await);
    let head = format!(
        "POST /publish/t HTTP/1.1\r\nhost: {address}\r\n{NDJSON}content-length: {length}\r\n\r\n"
    );
    raw.send(&head).await;
    tokio::spawn(async move {
        // The server may stop reading, or refuse the upload.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.0, start.as_bytes()).await;
        raw
    })
}

async fn until_held(client: &mut HttpClient, is_met: impl Fn(f64) -> bool) {
    let series = "prombus_ndjson_memory_bytes{stage=\"receiving\"}";
    let held = async {
        while !is_met(scrape(client).await[series]) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG_TIMEOUT, held).await.expect("the memory does not change");
}

#[tokio::test]
async fn slow_uploads_hold_only_what_they_have_sent() {
    let running = started(&[]).await;
    let mut pending = Vec::new();
    for _ in 0..20 {
        let head = format!("{NDJSON}content-length: {}\r\n", 32 << 20);
        pending.push(Raw::post_started(&running, "/publish/t", &head, LINE).await);
    }
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(client.ndjson("/publish/t", lines(4 << 10)).await.ok()["count"], 4 << 10);
}

#[tokio::test]
async fn uploads_that_fill_the_memory_leave_room_to_other_callers() {
    let set = ["gateway.ndjson_memory_bytes=4194304"];
    let running = started(&set).await;
    let mut client = HttpClient::connect(&running).await;
    let mut pending = Vec::new();
    for _ in 0..8 {
        pending.push(upload(&running, 32 << 20, lines(2 << 10)).await);
    }
    until_held(&mut client, |bytes| bytes >= 1e6).await;
    for _ in 0..5 {
        assert_eq!(client.ndjson("/publish/t", lines(200)).await.ok()["count"], 200);
    }
    drop(pending);
}

/// Requests that together need more than there is take turns.
#[tokio::test]
async fn requests_larger_than_the_memory_are_all_stored() {
    let running = started(&["gateway.ndjson_memory_bytes=1048576"]).await;
    let address = running.server.http();
    let importing: Vec<_> = (0..6)
        .map(|_| {
            tokio::spawn(async move {
                HttpClient::connect_to(address).await.ndjson("/publish/t", lines(1500)).await
            })
        })
        .collect();
    for done in importing {
        assert_eq!(done.await.unwrap().ok()["count"], 1500);
    }
    until_held(&mut HttpClient::connect(&running).await, |bytes| bytes == 0.0).await;
}

/// A slow upload whose turn it is delays the others of its caller for a bounded time.
#[tokio::test]
async fn a_slow_upload_that_holds_up_others_is_ended() {
    let set = ["gateway.ndjson_memory_bytes=1048576", "gateway.slow_consumer_timeout_ms=2000"];
    let running = started(&set).await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        stuck.push(upload(&running, 32 << 20, lines(600)).await);
    }
    let mut client = HttpClient::connect_from(&running, OTHER).await;
    assert_eq!(client.ndjson("/publish/t", lines(1500)).await.ok()["count"], 1500);
    for stuck in stuck {
        let (status, error) = stuck.await.unwrap().answer().await;
        assert_eq!((status, &error["code"]), (408, &json!("bad_frame")), "{error}");
    }
}

#[tokio::test]
async fn imports_that_wait_for_tokens_do_not_block_others() {
    let running = started(&[
        "limits.enabled=true",
        "limits.connection.capacity=10",
        "limits.connection.refill_per_sec=1",
        "limits.topic.capacity=1000000",
        "limits.topic.refill_per_sec=1000000",
    ])
    .await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let head = format!("{NDJSON}transfer-encoding: chunked\r\n");
        let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", 1000 * LINE.len(), LINE.repeat(1000));
        waiting.push(Raw::post(&running, "/publish/t", &head, &body).await);
    }
    let mut client = HttpClient::connect(&running).await;
    let first = timeout(HANG_TIMEOUT, client.ndjson("/publish/t", LINE)).await;
    assert_eq!(first.expect("it waits for the others").ok()["count"], 1);
    drop(waiting);
    // Nothing of a request that did not get its tokens is stored.
    assert_eq!(client.get("/topics/t").await.ok()["events"], 1);
}

/// What waits for tokens is bounded as well: a request that may not wait is told to come back.
#[tokio::test]
async fn too_many_imports_that_wait_for_tokens_are_told_to_come_back() {
    let running = started(&[
        "gateway.ndjson_memory_bytes=1048576",
        "limits.enabled=true",
        "limits.connection.capacity=10",
        "limits.connection.refill_per_sec=1",
        "limits.topic.capacity=1000000",
        "limits.topic.refill_per_sec=1000000",
    ])
    .await;
    let mut refused = None;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut client = HttpClient::connect(&running).await;
        let mut import = Box::pin(async move { client.ndjson("/publish/t", lines(100)).await });
        match timeout(Duration::from_millis(500), &mut import).await {
            Ok(reply) => refused = Some(reply),
            Err(_) => waiting.push(import),
        }
    }
    let reply = refused.expect("all of them wait");
    assert!(!waiting.is_empty(), "none of them waits");
    reply.refused(429, "rate_limited");
    assert!(reply.header("retry-after").is_some());
    // Another caller waits as if nobody else did.
    let mut other = HttpClient::connect_from(&running, OTHER).await;
    let reply = other.ndjson("/publish/t", LINE.repeat(11)).await;
    assert_eq!(reply.ok()["count"], 11);
}
