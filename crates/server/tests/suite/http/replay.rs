//! `GET /replay`.

use serde_json::{Value, json};

use crate::gateway::running::started;
use crate::http::client::HttpClient;

/// Publishes the numbers from 1 to `count`, with the times 10, 20, 30, …
async fn publish_numbers(client: &mut HttpClient, count: u64) {
    let lines: Vec<_> =
        (1..=count).map(|n| json!({"payload": n, "ts": n * 10}).to_string()).collect();
    client.ndjson("/publish/numbers", lines.join("\n")).await.ok();
}

fn payloads(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().unwrap();
    assert_eq!(page["count"], events.len());
    events.iter().map(|event| event["payload"].as_u64().unwrap()).collect()
}

/// Follows `next` to the end. Returns all payloads and the number of pages.
async fn read_all(client: &mut HttpClient, query: &str) -> (Vec<u64>, usize) {
    let (mut all, mut pages, mut query) = (Vec::new(), 0, query.to_owned());
    loop {
        let page = client.get(&format!("/replay?{query}")).await.ok();
        all.extend(payloads(&page));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => query = next.to_owned(),
            None => return (all, pages),
        }
    }
}

#[tokio::test]
async fn next_leads_through_the_whole_topic() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish_numbers(&mut client, 2500).await;
    let all: Vec<u64> = (1..=2500).collect();
    for (limit, pages) in [("", 3), ("&limit=1000", 3), ("&limit=2500", 1), ("&limit=500", 5)] {
        assert_eq!(
            read_all(&mut client, &format!("topic=numbers{limit}")).await,
            (all.clone(), pages)
        );
    }
    let (rest, _) = read_all(&mut client, "topic=numbers&from=ts&ts=24965&limit=2").await;
    assert_eq!(rest, [2497, 2498, 2499, 2500]);
}

#[tokio::test]
async fn starts_where_requested() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for (id, ts) in [("a b", 10), ("ü/?&", 20), ("c", 30)] {
        let line = json!({"id": id, "ts": ts, "payload": ts});
        client.ndjson("/publish/t", line.to_string()).await.ok();
    }
    for (query, expected) in [
        ("", &[10, 20, 30][..]),
        ("&from=earliest", &[10, 20, 30]),
        ("&from=ts&ts=20", &[20, 30]),
        ("&from=ts&ts=21", &[30]),
        ("&from=ts&ts=31", &[]),
        ("&from=afterId&afterId=a%20b", &[20, 30]),
        ("&from=afterId&afterId=c", &[]),
    ] {
        let page = client.get(&format!("/replay?topic=t{query}")).await.ok();
        assert_eq!((payloads(&page), &page["next"]), (expected.to_vec(), &Value::Null), "{query}");
    }
    // Ids are percent-encoded in `next`.
    let (all, pages) = read_all(&mut client, "topic=t&limit=1").await;
    assert_eq!((all, pages), (vec![10, 20, 30], 3));
}

#[tokio::test]
async fn rejects_invalid_requests() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "1").await.ok();
    for (query, status, code, reason) in [
        ("", 400, "bad_frame", "the parameter topic is missing"),
        ("topic=T", 400, "bad_topic", "the parameter topic is invalid"),
        ("topic=other", 404, "unknown_topic", "nothing was ever published to other"),
        (
            "topic=t&limit=0",
            400,
            "bad_frame",
            "the parameter limit must be a whole number from 1 to 10000",
        ),
        ("topic=t&limit=10001", 400, "bad_frame", "the parameter limit"),
        ("topic=t&limit=ten", 400, "bad_frame", "the parameter limit"),
        (
            "topic=t&from=latest",
            400,
            "bad_frame",
            "the parameter from must be one of earliest, ts, afterId",
        ),
        ("topic=t&from=ts", 400, "bad_frame", "the parameter ts is missing"),
        ("topic=t&from=ts&ts=soon", 400, "bad_frame", "the parameter ts must be"),
        ("topic=t&from=afterId", 400, "bad_frame", "the parameter afterId is missing"),
        ("topic=t&from=afterId&afterId=x", 404, "unknown_id", "t holds no event x"),
        ("topic=t&from=earliest&ts=1", 400, "bad_frame", "the parameter ts requires from=ts"),
        ("topic=t&group=g", 400, "bad_frame", "unknown parameter \"group\""),
    ] {
        let message = client.get(&format!("/replay?{query}")).await.refused(status, code);
        assert!(message.contains(reason), "{query}: {message}");
    }
}

#[tokio::test]
async fn a_page_of_large_events_ends_early() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..12 {
        client.post("/publish/t", large.clone()).await.ok();
    }
    let (mut query, mut seqs, mut pages) = ("topic=t".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.get(&format!("/replay?{query}")).await;
        assert!(reply.body.len() <= (1 << 20) + 512);
        let page = reply.ok();
        let events = page["events"].as_array().unwrap();
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        query = next.to_owned();
    }
    assert_eq!((seqs, pages), ((1..=12).collect(), 12));
}

#[tokio::test]
async fn returns_events_byte_for_byte_as_published() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let odd = r#"{"b": 1.0,  "a":1e400, "a":"\u00e9é","n":12345678901234567890123}"#;
    client.post("/publish/t?id=i&ts=7&key=k", odd).await.ok();
    let event = format!(r#"{{"seq":1,"id":"i","ts":7,"topic":"t","key":"k","payload":{odd}}}"#);
    let page = format!(r#"{{"topic":"t","count":1,"events":[{event}],"next":null}}"#);
    assert_eq!(client.get("/replay?topic=t").await.body, page);
    assert_eq!(client.get("/export?topic=t").await.body, format!("{event}\n"));
    assert_eq!(client.get("/export?topic=t&ndjson=0").await.body, format!("[{event}]\n"));
    let latest = client.get("/latest-by-key?topic=t&key=k").await.body;
    assert_eq!(latest, format!(r#"{{"event":{event}}}"#));
}
