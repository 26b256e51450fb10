//! `GET /export`.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use prombus_proto::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::gateway::authorising::{SECRET, token_with_seconds_left};
use crate::gateway::running::{Running, started, started_with_faults};
use crate::http::client::HttpClient;
use crate::http::stream::Listener;

async fn publish_lines(client: &mut HttpClient, lines: impl Iterator<Item = Value>) {
    let lines: Vec<_> = lines.map(|line| line.to_string()).collect();
    for some in lines.chunks(20_000) {
        client.ndjson("/publish/t", some.join("\n")).await.ok();
    }
}

async fn export(client: &mut HttpClient, query: &str) -> String {
    let reply = client.get(&format!("/export?topic=t{query}")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    String::from_utf8(reply.body.to_vec()).unwrap()
}

fn seqs(lines: &str) -> Vec<u64> {
    let seq = |line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
    lines.lines().map(seq).collect()
}

/// Publishes `count` events of about 64 KiB.
async fn with_large_events(running: &Running, count: usize) -> HttpClient {
    let mut client = HttpClient::connect(running).await;
    let large = "x".repeat(64 << 10);
    publish_lines(&mut client, (0..count).map(|_| json!({"payload": large}))).await;
    client
}

#[tokio::test]
async fn events_of_one_millisecond_are_neither_lost_nor_repeated() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish_lines(&mut client, (0..20_000).map(|n| json!({"ts": 1000, "payload": n}))).await;
    let all: Vec<u64> = (1..=20_000).collect();
    for query in ["", "&fromTs=1000", "&fromTs=1000&toTs=1000", "&toTs=1000"] {
        assert_eq!(seqs(&export(&mut client, query).await), all, "{query}");
    }
    assert_eq!(export(&mut client, "&fromTs=1001").await, "");
    assert_eq!(export(&mut client, "&toTs=999").await, "");
    // An export aborted anywhere resumes after its last complete line.
    let lines = export(&mut client, "").await;
    for cut in [1, 777, 12_345, 19_999, 20_000] {
        let last: Value = serde_json::from_str(lines.lines().nth(cut - 1).unwrap()).unwrap();
        let query = format!("&fromTs=1000&afterId={}", last["id"].as_str().unwrap());
        assert_eq!(seqs(&export(&mut client, &query).await), all[cut..], "{cut}");
    }
}

#[tokio::test]
async fn times_are_inclusive_and_need_not_ascend() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let times = [50, 10, 30, 20, 30, 40, 5];
    publish_lines(&mut client, times.iter().map(|ts| json!({"ts": ts, "payload": ts}))).await;
    for (query, expected) in [
        ("&fromTs=20&toTs=30", &[3, 4, 5][..]),
        ("&fromTs=30", &[1, 3, 5, 6]),
        ("&toTs=10", &[2, 7]),
        ("&fromTs=51", &[]),
        ("&fromTs=30&toTs=20", &[]),
    ] {
        assert_eq!(seqs(&export(&mut client, query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn omits_events_dated_in_the_future_by_default() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let future = SystemClock.now().plus_ms(3_600_000).0;
    publish_lines(
        &mut client,
        [json!({"payload": 1}), json!({"payload": 2, "ts": future})].into_iter(),
    )
    .await;
    assert_eq!(seqs(&export(&mut client, "").await), [1]);
    assert_eq!(seqs(&export(&mut client, &format!("&toTs={future}")).await), [1, 2]);
}

#[tokio::test]
async fn an_array_contains_the_same_events() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish_lines(&mut client, (0..3000).map(|n| json!({"payload": n, "ts": n}))).await;
    let lines = export(&mut client, "").await;
    let array = client.get("/export?topic=t&ndjson=0").await.ok();
    let from_lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(array.as_array().unwrap(), &from_lines);
    assert_eq!(client.get("/export?topic=t&ndjson=0&fromTs=3000").await.ok(), json!([]));
}

#[tokio::test]
async fn compresses_if_the_client_accepts_it() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish_lines(&mut client, (0..5000).map(|n| json!({"payload": {"number": n}}))).await;
    let plain = export(&mut client, "").await;
    for (accept, coding) in [("gzip, deflate", "gzip"), ("gzip, zstd", "zstd")] {
        let reply = client.ask("GET", "/export?topic=t", &[("accept-encoding", accept)], "").await;
        assert_eq!(reply.header("content-encoding"), Some(coding));
        assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        assert!(reply.body.len() < plain.len() / 3);
        let mut text = String::new();
        match coding {
            "gzip" => GzDecoder::new(&reply.body[..]).read_to_string(&mut text).unwrap(),
            _ => zstd::Decoder::new(&reply.body[..]).unwrap().read_to_string(&mut text).unwrap(),
        };
        assert_eq!(text, plain);
    }
}

#[tokio::test]
async fn ends_while_publishing_continues() {
    let running = started(&[]).await;
    let mut client = with_large_events(&running, 200).await;
    let mut body = client.open("GET", "/export?topic=t", &[], "").await.into_body();
    let mut other = HttpClient::connect(&running).await;
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        other.post("/publish/t", "\"later\"").await.ok();
    }
    assert_eq!(seqs(std::str::from_utf8(&text).unwrap()), (1..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn waits_for_a_slow_reader_and_never_ends_normally_on_a_fault() {
    let (running, faults) = started_with_faults(&[]).await;
    let events = 400;
    let mut client = with_large_events(&running, events).await;
    let mut body = client.open("GET", "/export?topic=t", &[], "").await.into_body();
    // Long enough to read everything, if the server did not wait for the client.
    tokio::time::sleep(Duration::from_millis(500)).await;
    faults.fail_reads(usize::MAX);
    let mut bytes = 0;
    let broken = loop {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.into_data().unwrap().len(),
            Some(Err(error)) => break error,
            None => panic!("the export looks complete"),
        }
    };
    assert!(bytes > 0 && bytes < events * (64 << 10), "{bytes}: {broken}");
    faults.heal();
    // A client that disconnects midway harms nobody.
    drop(with_large_events(&running, 1).await.open("GET", "/export?topic=t", &[], "").await);
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(seqs(&export(&mut client, "").await).len(), events + 1);
}

#[tokio::test]
async fn a_failure_before_the_first_event_is_an_error_response() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = with_large_events(&running, 1).await;
    faults.fail_reads(usize::MAX);
    client.get("/export?topic=t").await.refused(503, "storage_unavailable");
    client.get("/replay?topic=t").await.refused(503, "storage_unavailable");
    faults.heal();
    for (query, status, code, reason) in [
        ("", 400, "bad_frame", "the parameter topic is missing"),
        ("topic=x", 404, "unknown_topic", "nothing was ever published"),
        ("topic=t&fromTs=x", 400, "bad_frame", "the parameter fromTs must be"),
        ("topic=t&toTs=", 400, "bad_frame", "the parameter toTs must be"),
        ("topic=t&afterId=x", 404, "unknown_id", "t holds no event x"),
        ("topic=t&ndjson=2", 400, "bad_frame", "the parameter ndjson must be 1"),
        ("topic=t&from=earliest", 400, "bad_frame", "unknown parameter \"from\""),
    ] {
        let message = client.get(&format!("/export?{query}")).await.refused(status, code);
        assert!(message.contains(reason), "{query}: {message}");
    }
}

#[tokio::test]
async fn head_returns_the_headers_of_get() {
    let running = started(&[]).await;
    let mut client = with_large_events(&running, 10).await;
    let reply = client.ask("HEAD", "/export?topic=t", &[], "").await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0));
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(client.ask("HEAD", "/export?topic=x", &[], "").await.status, 404);
}

#[tokio::test]
async fn breaks_off_when_the_token_expires() {
    let running = started(&[&format!("auth.jwt.secret={SECRET}")]).await;
    let header = |seconds| format!("Bearer {}", token_with_seconds_left(seconds));
    let (lasting, short) = (header(600), header(2));
    let mut client = HttpClient::connect(&running).await;
    // More than fits into the buffers of both sides.
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..40 {
        let headers = [("authorization", lasting.as_str())];
        client.ask("POST", "/publish/t", &headers, payload.clone()).await.ok();
    }
    let headers = [("authorization", short.as_str())];
    let mut watcher = Listener::open(&running, "/stream?topic=t", &headers).await;
    let mut body = client.open("GET", "/export?topic=t", &headers, "").await.into_body();
    body.frame().await.unwrap().unwrap();
    // The stream ends when the token expires.
    assert_eq!(watcher.block().await, None);
    let mut ended = Ok(());
    while let Some(frame) = body.frame().await {
        ended = frame.map(drop);
    }
    ended.expect_err("an export that is not complete does not end like a complete one");
}
