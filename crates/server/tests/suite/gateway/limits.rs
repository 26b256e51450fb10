//! Limits that belong to a client rather than to a connection, and limits of what may be created.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::client::{Client, parsed};
use crate::gateway::running::{Running, started, started_over, started_with_faults};
use crate::http::client::HttpClient;
use crate::store;

/// Nothing is refilled before the test is over.
const LIMITS: [&str; 6] = [
    "limits.enabled=true",
    "limits.connection.capacity=1000",
    "limits.connection.refill_per_sec=1",
    "limits.principal.capacity=1000",
    "limits.principal.refill_per_sec=1",
    "limits.topic.capacity=1000000",
];

fn batch(topic: &str, count: usize) -> Value {
    let events: Vec<_> = (0..count).map(|number| json!({"payload": number})).collect();
    json!({"op": "PUBLISH", "topic": topic, "events": events})
}

async fn code_of(client: &mut Client, frame: Value) -> (String, String) {
    let answer = parsed(&client.ask(frame).await);
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    (text("code"), text("msg"))
}

fn exceeded() -> (String, String) {
    ("rate_limited".to_owned(), "principal publish rate exceeded".to_owned())
}

#[tokio::test]
async fn reconnecting_refills_nothing() {
    let running = started(&LIMITS).await;
    running.connect().await.ok(batch("t", 900)).await;
    let mut again = running.connect().await;
    assert_eq!(code_of(&mut again, batch("t", 500)).await, exceeded());
    let mut http = HttpClient::connect(&running).await;
    let lines = |count: usize| "{\"payload\":1}\n".repeat(count);
    http.ndjson("/publish/t", lines(50)).await.ok();
    again.ok(batch("t", 40)).await;
    assert_eq!(code_of(&mut again, batch("t", 500)).await, exceeded());
}

#[tokio::test]
async fn connections_of_one_token_share_its_limits_and_those_of_another_do_not() {
    let tokens = r#"auth.tokens=[
        {token="one",scopes=["publish:**"]},{token="two",scopes=["publish:**"]}
    ]"#;
    let set: Vec<&str> = LIMITS.into_iter().chain([tokens]).collect();
    let running = started(&set).await;
    let auth = |token: &str| json!({"op": "AUTH", "token": token});
    let connect = async |token: &str| {
        let mut client = running.connect().await;
        client.ok(auth(token)).await;
        client
    };
    connect("one").await.ok(batch("t", 900)).await;
    let mut other = connect("two").await;
    other.ok(batch("t", 600)).await;
    let mut same = connect("one").await;
    assert_eq!(code_of(&mut same, batch("t", 500)).await, exceeded());
    // The newest AUTH counts.
    same.ok(auth("two")).await;
    same.ok(batch("t", 300)).await;
    assert_eq!(code_of(&mut same, batch("t", 500)).await, exceeded());
    let mut http = HttpClient::connect(&running).await.with_token("two");
    http.ndjson("/publish/t", "{\"payload\":1}\n".repeat(50)).await.ok();
    other.ok(batch("t", 40)).await;
    assert_eq!(code_of(&mut other, batch("t", 100)).await, exceeded());
}

#[tokio::test]
async fn an_ack_that_marks_takes_what_a_mark_takes() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=1000",
        "limits.connection.refill_per_sec=1",
    ];
    let running = started(&set).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let ids = |count: usize| (0..count).map(|number| format!("id-{number}")).collect::<Vec<_>>();
    let ack =
        |count| json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids(count), "mark": true});
    client.ok(ack(400)).await;
    let refused = ("rate_limited".to_owned(), "conn publish rate exceeded".to_owned());
    assert_eq!(code_of(&mut client, ack(700)).await, refused);
    let (code, message) = code_of(&mut client, ack(1001)).await;
    assert_eq!(code, "bad_frame", "{message}");
}

#[tokio::test]
async fn subscribing_and_looking_up_marks_take_tokens() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=3",
        "limits.connection.refill_per_sec=1",
        "limits.principal.capacity=1000",
        "limits.principal.refill_per_sec=1",
    ];
    let running = started(&set).await;
    let subscribe =
        |group: usize| json!({"op": "SUBSCRIBE", "topic": "t", "group": group.to_string()});
    let mut client = running.connect().await;
    let mut refused = 0;
    // At one per second, some of the first twenty find no token, whatever the speed of the machine.
    for group in 0..20 {
        let answer = parsed(&client.ask(subscribe(group)).await);
        if answer["op"] == "ERR" {
            assert_eq!(answer["code"], "rate_limited");
            assert!(answer["retry_after_ms"].is_u64(), "{answer}");
            refused += 1;
        }
    }
    assert!(refused > 0, "groups are free");
    let mut other = running.connect().await;
    let ids = |count: usize| (0..count).map(|number| format!("id-{number}")).collect::<Vec<_>>();
    let seen = |count| json!({"op": "SEEN", "topic": "t", "group": "g", "ids": ids(count)});
    other.ok(seen(300)).await;
    let refused = ("rate_limited".to_owned(), "conn publish rate exceeded".to_owned());
    assert_eq!(code_of(&mut other, seen(300)).await, refused);
}

/// It is not read while it owes tokens for made-up ids, and goes on when it has paid.
#[tokio::test]
async fn a_client_that_acknowledges_made_up_ids_goes_on_when_it_has_paid() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=5",
        "limits.connection.refill_per_sec=20",
    ];
    let running = started(&set).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let ids: Vec<_> = (0..1000).map(|number| format!("id-{number}")).collect();
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids});
    let start = Instant::now();
    for _ in 0..10 {
        let answer = parsed(&client.ask(ack.clone()).await);
        assert_eq!(answer["stale"], true, "{answer}");
    }
    // After each but the last it owes five tokens, for which the server does not read for 250 ms.
    assert!(start.elapsed() >= Duration::from_millis(9 * 250), "{:?}", start.elapsed());
    // It has paid when this is read, and may have no token beyond that.
    let publish = json!({"op": "PUBLISH", "topic": "t", "payload": 1});
    let refused = parsed(&client.ask(publish.clone()).await);
    if refused["op"] == "ERR" {
        let wait = refused["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{refused}"));
        tokio::time::sleep(Duration::from_millis(wait)).await;
        client.ok(publish).await;
    }
}

/// Five tokens, and another every 50 ms.
const SLOW: [&str; 3] =
    ["limits.enabled=true", "limits.connection.capacity=5", "limits.connection.refill_per_sec=20"];

/// Frames that are refused cost the server as much as others.
#[tokio::test]
async fn refused_frames_take_tokens() {
    let running = started(&SLOW).await;
    let mut client = running.connect().await;
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(parsed(&client.ask(json!({"op": "NOTHING"})).await)["code"], "unknown_op");
    }
    // Five tokens are there, and each further frame but the last is paid for before the next one is read.
    assert!(start.elapsed() >= Duration::from_millis(14 * 50), "{:?}", start.elapsed());
}

/// What only the group knows is paid for as well.
#[tokio::test]
async fn frames_that_a_group_refuses_take_tokens() {
    let running = started(&SLOW).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let modack = json!({"op": "MODACK", "topic": "t", "group": "g", "id": "x", "extend_ms": 1000});
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": "x", "publish": []});
    let start = Instant::now();
    for _ in 0..10 {
        for frame in [&modack, &ack] {
            assert_eq!(parsed(&client.ask(frame.clone()).await)["code"], "lease_lost");
        }
    }
    assert!(start.elapsed() >= Duration::from_millis(14 * 50), "{:?}", start.elapsed());
    // Those that are sent together, too.
    let start = Instant::now();
    client.send_all([modack, ack].into_iter().cycle().take(10)).await;
    for _ in 0..10 {
        assert_eq!(parsed(&client.answer().await)["code"], "lease_lost");
    }
    client.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    assert!(start.elapsed() >= Duration::from_millis(4 * 50), "{:?}", start.elapsed());
}

/// No more of them are parsed than are paid for.
#[tokio::test]
async fn refused_frames_that_arrive_together_take_tokens() {
    let running = started(&SLOW).await;
    let mut client = running.connect().await;
    let start = Instant::now();
    client.send_all(vec![json!({"op": "NOTHING"}); 20]).await;
    for _ in 0..20 {
        assert_eq!(parsed(&client.answer().await)["code"], "unknown_op");
    }
    assert!(start.elapsed() >= Duration::from_millis(14 * 50), "{:?}", start.elapsed());
}

/// A large frame costs something however often it is too early, and is stored if its client waits as told.
#[tokio::test]
async fn large_frames_that_come_too_early_take_tokens() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=100",
        "limits.connection.refill_per_sec=100",
    ];
    let running = started(&set).await;
    let mut client = running.connect().await;
    client.ok(batch("t", 100)).await;
    let event = json!({"payload": "x".repeat(2000)});
    let large = json!({"op": "PUBLISH", "topic": "t", "events": vec![event; 100]});
    let start = Instant::now();
    let mut wait = 0;
    for _ in 0..4 {
        let refused = parsed(&client.ask(large.clone()).await);
        assert_eq!(refused["code"], "rate_limited");
        wait = refused["retry_after_ms"].as_u64().unwrap();
        // Until the bucket is full, and it owes about 48 tokens.
        assert!(wait > 1100, "{wait}");
    }
    assert!(start.elapsed() >= Duration::from_millis(3 * 400), "{:?}", start.elapsed());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    client.ok(large).await;
}

/// An ACK that publishes counts like others.
#[tokio::test]
async fn nothing_is_read_while_many_ids_of_acks_that_publish_are_unanswered() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("u", "g", json!({})).await;
    client.ok(json!({"op": "PAUSE", "topic": "u", "group": "g"})).await;
    client.publish("u", json!(2)).await;
    faults.shut_gate();
    let ids: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
    let publish = json!({"op": "PUBLISH", "topic": "t", "payload": 1});
    let ack = json!({"op": "ACK", "topic": "u", "group": "g", "ids": ids, "publish": []});
    client.send_all([publish, ack]).await;
    faults.until_waiting(1).await;
    client.send(&json!({"op": "RESUME", "topic": "u", "group": "g"})).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    faults.open_gate();
    for op in ["OK", "ERR", "OK"] {
        assert_eq!(parsed(&client.answer().await)["op"], op);
    }
    assert_eq!(client.event().await["event"]["payload"], 2);
}

#[tokio::test]
async fn nothing_is_read_while_many_ids_are_unanswered() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    client.publish("t", json!(1)).await;
    client.subscribe("t", "g", json!({"from": "earliest"})).await;
    let id = client.event().await["event"]["id"].clone();
    client.subscribe("u", "g", json!({})).await;
    client.ok(json!({"op": "PAUSE", "topic": "u", "group": "g"})).await;
    client.publish("u", json!(2)).await;
    faults.shut_gate();
    let made_up = (1..10_000).map(|number| json!(number.to_string()));
    let ids: Vec<_> = std::iter::once(id).chain(made_up).collect();
    client.send(&json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids})).await;
    faults.until_waiting(1).await;
    client.send(&json!({"op": "RESUME", "topic": "u", "group": "g"})).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    faults.open_gate();
    assert_eq!(parsed(&client.answer().await)["stale"], true);
    assert_eq!(parsed(&client.answer().await)["op"], "OK");
    assert_eq!(client.event().await["event"]["payload"], 2);
}

/// A batch that needs the whole bucket, next to deliveries that take every token there is.
#[tokio::test]
async fn batches_are_stored_although_deliveries_take_every_token() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=400",
        "limits.connection.refill_per_sec=2000",
        "limits.topic.capacity=100000",
    ];
    let running = started(&set).await;
    for _ in 0..15 {
        running.connect().await.ok(batch("t", 400)).await;
    }
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 10_000})).await;
    let (mut stored, mut refused) = (0, 0);
    while stored < 3 {
        let answer = parsed(&client.ask(batch("u", 400)).await);
        if answer["op"] == "OK" {
            stored += 1;
            continue;
        }
        refused += 1;
        assert!(refused < 30, "deliveries starve the batches: {stored} are stored");
        let wait = answer["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{answer}"));
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    for _ in 0..400 {
        client.event().await;
    }
}

async fn limited_counts(running: &Running) {
    let exceeded = |topic: &str| json!({"op": "PUBLISH", "topic": topic, "payload": 1});
    let mut client = running.connect().await;
    assert_eq!(code_of(&mut client, exceeded("c")).await.0, "limit_exceeded");
    client.ok(exceeded("a")).await;
    let mut http = HttpClient::connect(running).await;
    http.post("/publish/c", "1").await.refused(429, "limit_exceeded");
    http.put("/topics/c", "{}").await.refused(429, "limit_exceeded");
    http.ndjson("/publish/c", "{\"payload\":1}\n".to_owned()).await.refused(429, "limit_exceeded");
    http.get("/topics/c").await.refused(404, "unknown_topic");
    http.post("/publish/b", "1").await.ok();
    let subscribe = |group| json!({"op": "SUBSCRIBE", "topic": "a", "group": group});
    assert_eq!(code_of(&mut client, subscribe("h")).await.0, "limit_exceeded");
    client.ok(subscribe("g")).await;
}

#[tokio::test]
async fn topics_and_groups_are_limited_also_by_a_server_that_starts_later() {
    let set = ["limits.enabled=true", "limits.max_topics=2", "limits.max_groups_per_topic=1"];
    let engine = store::engine().await;
    let running = started_over(engine.clone(), &set).await;
    let mut client = running.connect().await;
    client.publish("a", json!(1)).await;
    client.publish("b", json!(1)).await;
    client.subscribe("a", "g", json!({})).await;
    drop(client);
    limited_counts(&running).await;
    limited_counts(&started_over(engine, &set).await).await;
}
