//! Events that cannot be read back: the ones around them can, and the damage is named.

use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use prombus_engine::{DiskEngine, DiskOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::damaged_store::{EVENTS, damaged_at};
use crate::gateway::running::{Running, started_over};
use crate::http::client::HttpClient;
use crate::http::stream::Listener;

/// A server over a store with damage, which it has found.
struct Damaged {
    running: Running,
    client: HttpClient,
    first: u64,
    last: u64,
    folder: TempDir,
}

impl Damaged {
    async fn at(seq: u64) -> Self {
        let folder = damaged_at(seq).await;
        let engine = DiskEngine::open(&DiskOptions::at(folder.path())).unwrap();
        let running = started_over(Arc::new(engine), &[]).await;
        let mut client = HttpClient::connect(&running).await;
        let range = client.get(&format!("/replay?topic=t&seq={seq}")).await.ok()["damaged"].clone();
        let [first, last] =
            ["first_seq", "last_seq"].map(|name| range[name].as_u64().unwrap_or_default());
        assert!(first == seq && last >= seq && last < seq + 6, "{range}");
        Self { running, client, first, last, folder }
    }

    fn range(&self) -> Value {
        json!({"first_seq": self.first, "last_seq": self.last})
    }

    fn before(&self) -> Vec<u64> {
        (1..self.first).collect()
    }

    fn after(&self) -> Vec<u64> {
        (self.last + 1..=EVENTS).collect()
    }

    /// The events that `query` exports before the export breaks off.
    async fn export_until_broken(&mut self, headers: &[(&str, &str)], query: &str) -> Vec<u8> {
        let mut client = HttpClient::connect(&self.running).await;
        let path = format!("/export?topic=t{query}");
        let response = client.open("GET", &path, headers, "").await;
        assert_eq!(response.status(), 200);
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        loop {
            match body.frame().await {
                Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(_)) => return bytes,
                None => panic!("the export looks complete"),
            }
        }
    }
}

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

fn lines(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn replay_returns_the_events_around_the_damage_and_names_it() {
    let mut store = Damaged::at(23).await;
    let folder = store.folder.path().display().to_string();
    for limit in [1, 5, 1000] {
        let (mut query, mut found, mut damaged) =
            (format!("topic=t&limit={limit}"), Vec::new(), Vec::new());
        loop {
            let reply = store.client.get(&format!("/replay?{query}")).await;
            assert!(!String::from_utf8_lossy(&reply.body).contains(&folder), "{reply:?}");
            let page = reply.ok();
            let events = page["events"].as_array().unwrap();
            assert_eq!(page["count"], events.len());
            found.extend(seqs(events));
            if let Some(range) = page.get("damaged") {
                assert_eq!(found, store.before(), "the page ends before the damage");
                damaged.push(range.clone());
            }
            let Some(next) = page["next"].as_str() else { break };
            query = next.to_owned();
        }
        assert_eq!(found, [store.before(), store.after()].concat(), "{limit}");
        assert_eq!(damaged, [store.range()], "{limit}");
    }
    let page = store.client.get("/replay?topic=t&afterId=event-22&limit=7").await.ok();
    let next = format!("topic=t&from=seq&seq={}&limit=7", store.last + 1);
    let expected =
        json!({"topic": "t", "count": 0, "events": [], "damaged": store.range(), "next": next});
    assert_eq!(page, expected, "a page that starts at the damage");
}

#[tokio::test]
async fn replay_continues_behind_damage_at_the_start_of_the_topic() {
    let mut store = Damaged::at(1).await;
    let page = store.client.get("/replay?topic=t").await.ok();
    assert_eq!((&page["count"], &page["damaged"]), (&json!(0), &store.range()));
    let next = page["next"].as_str().unwrap().to_owned();
    let page = store.client.get(&format!("/replay?{next}")).await.ok();
    assert_eq!(seqs(page["events"].as_array().unwrap()), store.after());
    let end = EVENTS + 1;
    let page = store.client.get(&format!("/replay?topic=t&seq={end}")).await.ok();
    assert_eq!((&page["count"], &page["next"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn an_export_sends_all_events_before_the_damage_and_breaks_off() {
    let mut store = Damaged::at(23).await;
    let sent = store.export_until_broken(&[], "").await;
    assert_eq!(seqs(&lines(&sent)), store.before());
    let sent = store.export_until_broken(&[("accept-encoding", "gzip")], "&damaged=stop").await;
    let mut text = Vec::new();
    // Fails in the end: the stream lacks its trailer.
    GzDecoder::new(&sent[..]).read_to_end(&mut text).unwrap_err();
    assert_eq!(seqs(&lines(&text)), store.before());
    let sent = store.export_until_broken(&[("accept-encoding", "zstd")], "").await;
    let mut text = Vec::new();
    zstd::Decoder::new(&sent[..]).unwrap().read_to_end(&mut text).unwrap_err();
    assert_eq!(seqs(&lines(&text)), store.before());
    // A client that resumes is told why.
    let reply = store.client.get("/export?topic=t&afterId=event-22").await;
    let message = reply.refused(500, "internal");
    assert!(message.contains("event 23 of t is damaged") || message.contains("events 23 to"));
    assert!(message.contains("damaged=skip"), "{message}");
    assert!(!message.contains(&store.folder.path().display().to_string()), "{message}");
    let message = store.client.get("/export?topic=t&damaged=maybe").await.refused(400, "bad_frame");
    assert_eq!(message, "the parameter damaged must be stop or skip");
}

#[tokio::test]
async fn an_export_skips_the_damage_on_request_and_names_it() {
    let mut store = Damaged::at(23).await;
    let (skipped, after) = (json!({"damaged": store.range()}), store.after());
    let check = |mut items: Vec<Value>, before: Vec<u64>| {
        assert_eq!(items.remove(before.len()), skipped);
        assert_eq!(seqs(&items), [before, after.clone()].concat());
    };
    let reply = store.client.get("/export?topic=t&damaged=skip").await;
    check(lines(&reply.body), store.before());
    let reply = store.client.get("/export?topic=t&damaged=skip&afterId=event-22").await;
    check(lines(&reply.body), vec![]);
    for (query, before) in [("", store.before()), ("&afterId=event-22", vec![])] {
        let array =
            store.client.get(&format!("/export?topic=t&damaged=skip&ndjson=0{query}")).await;
        check(array.ok().as_array().unwrap().clone(), before);
    }
    let late = store.client.get("/export?topic=t&damaged=skip&fromTs=40").await;
    assert_eq!(seqs(&lines(&late.body)), (40..=EVENTS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stream_passes_the_damage_with_an_event_of_its_own() {
    let store = Damaged::at(23).await;
    let mut listener = Listener::open(&store.running, "/stream?topic=t&from=earliest", &[]).await;
    for seq in store.before() {
        assert_eq!(listener.seq().await, seq);
    }
    let block = listener.block().await.unwrap();
    let data = block.strip_prefix("event: damaged\ndata: ").unwrap_or_else(|| panic!("{block}"));
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), store.range());
    for seq in store.after() {
        assert_eq!(listener.seq().await, seq);
    }
}

#[tokio::test]
async fn the_latest_event_of_a_key_is_found_behind_the_damage() {
    let mut store = Damaged::at(23).await;
    let latest = store.client.get("/latest-by-key?topic=t&key=odd").await.ok();
    assert_eq!(latest["event"]["seq"], EVENTS - 1);
    // Any key may be among the damaged events.
    let message =
        store.client.get("/latest-by-key?topic=t&key=none").await.refused(500, "internal");
    assert!(message.starts_with("event") && message.contains("damaged"), "{message}");
}
