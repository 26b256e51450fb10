//! `GET /stream`.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::gateway::authorising::{SECRET, token_with_seconds_left};
use crate::gateway::running::{Running, started};
use crate::http::client::HttpClient;

const HANG_TIMEOUT: Duration = Duration::from_secs(20);

/// The client of one stream.
pub(crate) struct Listener {
    body: Incoming,
    text: String,
    /// Keeps the connection open.
    _client: HttpClient,
}

impl Listener {
    pub(crate) async fn open(running: &Running, path: &str, headers: &[(&str, &str)]) -> Self {
        let client = HttpClient::connect(running).await;
        Self::over(client, path, headers).await
    }

    async fn over(mut client: HttpClient, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = client.open("GET", path, headers, "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listener =
            Self { body: response.into_body(), text: String::new(), _client: client };
        assert_eq!(listener.block().await.unwrap(), "retry: 1000");
        listener
    }

    /// The next block, up to an empty line; `None` at the end.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = timeout(HANG_TIMEOUT, self.body.frame())
                .await
                .expect("the stream is silent")?
                .unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// The JSON of the next event, as sent.
    pub(crate) async fn event(&mut self) -> String {
        let block = self.block().await.expect("the stream ended");
        let (id, data) = block.split_once("\ndata: ").unwrap_or_else(|| panic!("{block:?}"));
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(id, format!("id: {}", event["id"].as_str().unwrap()));
        data.to_owned()
    }

    pub(crate) async fn seq(&mut self) -> u64 {
        serde_json::from_str::<Value>(&self.event().await).unwrap()["seq"].as_u64().unwrap()
    }
}

async fn publish(client: &mut HttpClient, count: usize) {
    for _ in 0..count {
        client.post("/publish/t", "1").await.ok();
    }
}

#[tokio::test]
async fn starts_where_requested_and_follows_new_events() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for (id, ts) in [("a", 10), ("b", 20), ("c", 30)] {
        client.post(&format!("/publish/t?id={id}&ts={ts}"), "1").await.ok();
    }
    let mut listeners = Vec::new();
    for (query, first) in
        [("", 4), ("&from=latest", 4), ("&from=earliest", 1), ("&ts=20", 2), ("&afterId=b", 3)]
    {
        listeners
            .push((Listener::open(&running, &format!("/stream?topic=t{query}"), &[]).await, first));
    }
    publish(&mut client, 2).await;
    for (mut listener, first) in listeners {
        for seq in first..=5 {
            assert_eq!(listener.seq().await, seq);
        }
    }
}

#[tokio::test]
async fn resumes_after_the_last_event_id() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for id in ["a", "b%20%C3%BC", "c"] {
        client.post(&format!("/publish/t?id={id}"), "1").await.ok();
    }
    for (last, first) in [("a", 2), ("b ü", 3), ("", 1)] {
        let headers = [("last-event-id", last)];
        let path = "/stream?topic=t&from=earliest";
        let mut listener = Listener::open(&running, path, &headers).await;
        assert_eq!(listener.seq().await, first, "{last:?}");
    }
}

#[tokio::test]
async fn continues_with_the_first_kept_event_if_the_last_one_is_gone() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for id in ["a", "b"] {
        client.post(&format!("/publish/t?id={id}"), "1").await.ok();
    }
    let mut slow = Listener::open(&running, "/stream?topic=t&afterId=b", &[]).await;
    client.put("/topics/t", "{\"retention_bytes\":1}").await.ok();
    assert_eq!(client.get("/topics/t").await.ok()["events"], 0);
    client.put("/topics/t", "{}").await.ok();
    let gap = "event: gap\ndata: {\"next_seq\":3}";
    let mut waiting = Vec::new();
    for (query, headers) in [
        ("", &[("last-event-id", "a")][..]),
        ("&from=latest", &[("last-event-id", "never existed")]),
        ("&afterId=a", &[]),
    ] {
        let path = format!("/stream?topic=t{query}");
        let mut listener = Listener::open(&running, &path, headers).await;
        assert_eq!(listener.block().await.unwrap(), gap, "{query}");
        waiting.push(listener);
    }
    publish(&mut client, 1).await;
    for mut listener in waiting {
        assert_eq!(listener.seq().await, 3);
    }
    assert_eq!(slow.seq().await, 3, "it missed nothing");
    for path in ["/replay?topic=t&afterId=a", "/export?topic=t&afterId=a"] {
        client.get(path).await.refused(404, "unknown_id");
    }
}

#[tokio::test]
async fn rejects_invalid_requests() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    for (query, status, code) in [
        ("", 400, "bad_frame"),
        ("topic=x", 404, "unknown_topic"),
        ("topic=t&from=nowhere", 400, "bad_frame"),
        ("topic=t&afterId=", 400, "bad_frame"),
        ("topic=t&limit=1", 400, "bad_frame"),
    ] {
        client.get(&format!("/stream?{query}")).await.refused(status, code);
    }
    assert_eq!(client.ask("HEAD", "/stream?topic=t", &[], "").await.status, 200);
}

#[tokio::test]
async fn waits_for_tokens_of_its_connection() {
    let settings = [
        "limits.enabled=true",
        "limits.connection.capacity=20",
        "limits.connection.refill_per_sec=50",
    ];
    let running = started(&settings).await;
    let mut client = HttpClient::connect(&running).await;
    let lines = "{\"payload\":1}\n".repeat(60);
    client.ndjson("/publish/t", lines).await.ok();
    let mut listener = Listener::open(&running, "/stream?topic=t&from=earliest", &[]).await;
    let start = Instant::now();
    for seq in 1..=60 {
        assert_eq!(listener.seq().await, seq);
    }
    // 20 immediately and 40 more at 50 per second take at least 800 ms.
    assert!(start.elapsed() >= Duration::from_millis(750), "{:?}", start.elapsed());
}

#[tokio::test]
async fn ends_on_shutdown() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    let mut listener = Listener::open(&running, "/stream?topic=t", &[]).await;
    let stopping = tokio::spawn(running.server.stop());
    assert_eq!(listener.block().await, None);
    drop(client);
    timeout(HANG_TIMEOUT, stopping).await.expect("the server does not stop").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn sends_a_comment_while_idle() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    let mut listener = Listener::open(&running, "/stream?topic=t", &[]).await;
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(listener.block().await.unwrap(), ": still here");
    }
    assert_eq!(start.elapsed().as_secs(), 45);
    publish(&mut HttpClient::connect(&running).await, 1).await;
    assert_eq!(listener.seq().await, 2, "no event was lost");
}

#[tokio::test(start_paused = true)]
async fn ends_when_the_token_expires() {
    let running = started(&[&format!("auth.jwt.secret={SECRET}")]).await;
    let authorization = format!("Bearer {}", token_with_seconds_left(8));
    let headers = [("authorization", authorization.as_str())];
    let mut client = HttpClient::connect(&running).await;
    client.ask("POST", "/publish/t", &headers, "1").await.ok();
    let mut listener = Listener::open(&running, "/stream?topic=t&from=earliest", &headers).await;
    assert_eq!(listener.seq().await, 1);
    let start = Instant::now();
    assert_eq!(listener.block().await, None);
    assert!((1..=8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}
