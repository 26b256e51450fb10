//! Connections whose responses nobody reads.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::gateway::running::{Running, started};
use crate::http::client::{HttpClient, Raw};

const HANG_TIMEOUT: Duration = Duration::from_secs(20);

fn get(running: &Running, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", running.server.http())
}

/// Stores `count` events of one MiB in the topic `t`.
async fn publish_large(running: &Running, count: usize) {
    let mut client = HttpClient::connect(running).await;
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    for _ in 0..count {
        client.post("/publish/t?key=k1", payload.clone()).await.ok();
    }
}

/// Sends these requests over a connection that has a place, and reads only the start of the first response.
async fn unread(address: SocketAddr, requests: &str) -> Raw {
    let mut status = [0; 12];
    loop {
        let mut raw = Raw::narrow(address, requests).await;
        let read = timeout(HANG_TIMEOUT, raw.0.read_exact(&mut status)).await;
        // The place of the connection before may not be free yet.
        if read.expect("no response").is_ok() && &status != b"HTTP/1.1 503" {
            return raw;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the server serves another connection.
async fn until_served(running: &Running) {
    let served = async {
        while HttpClient::connect(running).await.get("/topics").await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG_TIMEOUT, served).await.expect("no place becomes free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_response_is_not_read_gives_its_place_back() {
    let running = started(&[
        "gateway.max_connections=1",
        "gateway.slow_consumer_timeout_ms=300",
        "gateway.max_frame_bytes=16777216",
    ])
    .await;
    publish_large(&running, 16).await;
    for path in [
        "/export?topic=t",
        "/export?topic=t&ndjson=0",
        "/replay?topic=t",
        "/stream?topic=t&from=earliest",
        "/latest-by-key?topic=t&key=k1",
    ] {
        let unread = unread(running.server.http(), &get(&running, path).repeat(20)).await;
        until_served(&running).await;
        drop(unread);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_pipelines_and_never_reads_gives_its_place_back() {
    let set = ["gateway.max_connections=1", "gateway.slow_consumer_timeout_ms=300"];
    let running = started(&set).await;
    for address in [running.server.http(), running.address()] {
        let requests = get(&running, "/openapi.json").repeat(100);
        let mut unread = unread(address, &requests).await;
        let sending = tokio::spawn(async move {
            // Until the server closes the connection.
            while unread.0.write_all(requests.as_bytes()).await.is_ok() {}
        });
        timeout(HANG_TIMEOUT, sending).await.expect("the connection is never closed").unwrap();
    }
    until_served(&running).await;
}

/// The kernel reports free space in a large send buffer only after a third of it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_everything() {
    let running = started(&["gateway.slow_consumer_timeout_ms=1000"]).await;
    publish_large(&running, 4).await;
    let mut slow = Raw::narrow(running.server.http(), &get(&running, "/export?topic=t")).await;
    let (mut read, mut part) = (0, vec![0; 16 << 10]);
    while read < 4 << 20 {
        sleep(Duration::from_millis(20)).await;
        let count = slow.0.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "the connection was closed after {read} bytes");
        read += count;
    }
}
