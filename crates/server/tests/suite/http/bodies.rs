//! Bodies that are too large, too slow, encoded or incomplete.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::gateway::running::started;
use crate::http::client::{HttpClient, Raw};

#[tokio::test]
async fn rejects_a_declared_size_over_the_limit_unread() {
    let running = started(&["gateway.max_frame_bytes=1024"]).await;
    let head = "content-length: 1025\r\n";
    let (status, error) = Raw::post(&running, "/publish/t", head, "").await.answer().await;
    assert_eq!(status, 413);
    assert_eq!(
        error,
        json!({
            "error": "the body exceeds the limit of 1024 bytes", "code": "payload_too_large",
        })
    );
    let mut client = HttpClient::connect(&running).await;
    let largest = format!("\"{}\"", "x".repeat(1022));
    client.post("/publish/t", largest).await.ok();
}

#[tokio::test]
async fn rejects_a_chunked_body_over_the_limit() {
    let running = started(&["gateway.max_frame_bytes=1024"]).await;
    let chunk = format!("200\r\n{}\r\n", "1".repeat(512));
    let body = chunk.repeat(3);
    let head = "transfer-encoding: chunked\r\n";
    let (status, error) = Raw::post(&running, "/publish/t", head, &body).await.answer().await;
    assert_eq!((status, &error["code"]), (413, &json!("payload_too_large")));
    let mut fitting = Raw::post(&running, "/publish/t", head, &chunk).await;
    fitting.send("0\r\n\r\n").await;
    assert_eq!(fitting.answer().await.0, 200);
}

/// The server keeps reading after it has rejected a request, so that the client sees the response
/// instead of a reset connection.
#[tokio::test]
async fn a_client_that_is_still_sending_sees_the_error() {
    let running = started(&["gateway.max_frame_bytes=1024"]).await;
    let large = 8 << 20;
    for path in ["/publish/t", "/publish/T", "/nowhere"] {
        let head = format!("content-length: {large}\r\n");
        let raw = Raw::post(&running, path, &head, "").await;
        let (reading, mut writing) = raw.0.into_split();
        let sending = tokio::spawn(async move {
            let sent = writing.write_all(&vec![b'1'; large]).await;
            (sent, writing)
        });
        let (sent, writing) = sending.await.unwrap();
        sent.unwrap();
        let (status, _) = Raw(reading.reunite(writing).unwrap()).answer().await;
        assert!([413, 400, 404].contains(&status), "{path}: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn gives_up_on_a_stalled_body() {
    let running = started(&[]).await;
    for kind in ["application/json", "application/x-ndjson"] {
        let head = format!("content-type: {kind}\r\ncontent-length: 10\r\n");
        let mut raw = Raw::post(&running, "/publish/t", &head, "{\"a").await;
        let (status, error) = raw.answer().await;
        assert_eq!((status, &error["code"]), (408, &json!("bad_frame")));
        assert!(error["error"].as_str().unwrap().contains("too slowly"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn gives_up_on_a_dripping_body() {
    let running = started(&[]).await;
    let head = "content-length: 1000\r\n";
    let mut raw = Raw::post(&running, "/publish/t", head, "\"").await;
    // In time for the limit without data, but not for the least rate.
    tokio::time::sleep(Duration::from_secs(9)).await;
    raw.send("x").await;
    assert_eq!(raw.answer().await.0, 408);
}

#[tokio::test]
async fn rejects_an_encoded_body() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for encoding in ["gzip", "zstd", "identity, gzip", ""] {
        let reply = client.ask("POST", "/publish/t", &[("content-encoding", encoding)], "1").await;
        assert!(reply.refused(415, "bad_frame").contains("Content-Encoding"));
    }
    let reply = client.ask("POST", "/publish/t", &[("content-encoding", "Identity")], "1").await;
    assert_eq!(reply.ok()["seq"], 1);
}

#[tokio::test]
async fn does_not_store_an_incomplete_body() {
    let running = started(&[]).await;
    let head = "content-length: 3\r\n";
    drop(Raw::post(&running, "/publish/t", head, "12").await);
    let mut chunked =
        Raw::post(&running, "/publish/t", "transfer-encoding: chunked\r\n", "1\r\n1\r\n").await;
    chunked.send("nonsense\r\n").await;
    let (status, error) = chunked.answer().await;
    assert_eq!((status, &error["code"]), (400, &json!("bad_frame")), "{error}");
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(client.post("/publish/t", "1").await.ok()["seq"], 1);
}

#[tokio::test(start_paused = true)]
async fn closes_an_idle_connection() {
    let running = started(&[]).await;
    let mut raw = Raw::post(&running, "/publish/t", "content-length: 1\r\n", "1").await;
    assert_eq!(raw.answer().await.0, 200);
    let start = tokio::time::Instant::now();
    assert_eq!(raw.0.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(start.elapsed().as_secs(), 10);
}
