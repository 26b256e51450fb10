//! Responses that nobody reads share a budget.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::gateway::memory::{buffers, until};
use crate::gateway::running::{Running, started};
use crate::http::client::{HttpClient, Raw};

const MIB: usize = 1 << 20;
/// What every response may have.
const MINIMUM: usize = 16 << 10;
const CLIENTS: usize = 30;

/// Sends many requests, and reads no response.
async fn never_reads(running: &Running, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut stream = socket.connect(running.server.http()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", running.server.http());
    // The first responses stay in the buffers of the sockets.
    stream.write_all(request.repeat(20).as_bytes()).await.unwrap();
    stream
}

async fn publish(client: &mut HttpClient, events: usize, bytes: usize) {
    let line = json!({"payload": "x".repeat(bytes)}).to_string();
    for _ in 0..events / 10 {
        client.ndjson("/publish/t", [line.as_str(); 10].join("\n")).await.ok();
    }
}

#[tokio::test]
async fn unread_pages_share_a_budget_and_others_get_shorter_ones() {
    const EVENTS: usize = 300;
    const EVENT: usize = 10_000;
    let running = started(&["memory.responses_bytes=1048576"]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, EVENTS, EVENT).await;
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        stuck.push(never_reads(&running, "/replay?topic=t&limit=10000").await);
        let (bytes, _) = buffers(&running, "responses").await;
        assert!(bytes <= MIB + CLIENTS * MINIMUM, "{bytes}");
    }
    until(&running, "responses", |bytes, _| bytes > MIB / 2).await;
    let (mut query, mut seqs) = ("topic=t&limit=10000".to_owned(), Vec::new());
    loop {
        let page = client.get(&format!("/replay?{query}")).await.ok();
        let events = page["events"].as_array().unwrap();
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        query = next.to_owned();
    }
    assert_eq!(seqs, (1..=EVENTS as u64).collect::<Vec<_>>());
    drop(stuck);
    until(&running, "responses", |bytes, _| bytes == 0).await;
}

#[tokio::test]
async fn a_large_event_without_room_is_refused_for_a_while() {
    let running = started(&["memory.responses_bytes=1048576"]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 10, 300_000).await;
    let mut stuck = Vec::new();
    for _ in 0..CLIENTS {
        stuck.push(never_reads(&running, "/replay?topic=t&limit=10000").await);
    }
    until(&running, "responses", |_, refusals| refusals > 0).await;
    let refused = client.get("/replay?topic=t").await;
    refused.refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(stuck);
    until(&running, "responses", |bytes, _| bytes == 0).await;
    client.get("/replay?topic=t").await.ok();
}

#[tokio::test]
async fn unread_exports_and_streams_count() {
    let running = started(&["memory.responses_bytes=1048576"]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1000, 10_000).await;
    for path in ["/export?topic=t", "/stream?topic=t&from=earliest"] {
        let mut stuck = Vec::new();
        for _ in 0..CLIENTS {
            stuck.push(never_reads(&running, path).await);
            let (bytes, _) = buffers(&running, "responses").await;
            // A page that is sent and one that is read ahead, each with overhead and one event more.
            assert!(bytes <= MIB + CLIENTS * 4 * (MINIMUM + 12_000), "{path}: {bytes}");
        }
        until(&running, "responses", |bytes, _| bytes > CLIENTS * MINIMUM).await;
        drop(stuck);
        until(&running, "responses", |bytes, _| bytes == 0).await;
    }
}

#[tokio::test]
async fn a_stranger_cannot_send_a_body_or_a_long_head() {
    let tokens = r#"auth.tokens=[{token="all",scopes=["publish:**"]}]"#;
    let running = started(&[tokens]).await;
    // Refused although the body never comes.
    let head = "content-length: 1000000\r\n";
    let (status, error) = Raw::post(&running, "/publish/t", head, "").await.answer().await;
    assert_eq!((status, &error["code"]), (401, &json!("unauthorized")));
    let head = format!("x-long: {}\r\n", "x".repeat(200_000));
    let mut raw = Raw::post(&running, "/publish/t", &head, "").await;
    let mut status = [0; 12];
    raw.0.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 431");
}
