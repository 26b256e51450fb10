//! `/dlq/{topic}`: listing, redriving and dropping dead letters.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::auditing::Log;
use crate::gateway::client::{Client, frame_for};
use crate::gateway::running::{Running, started};
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {name="billing",token="billing-secret",scopes=["publish:orders","consume:orders"]},
    {name="reader",token="reader-secret",scopes=["read:orders"]},
    {name="operator",token="operator-secret",scopes=["manage:orders"]},
]"#;

const LETTERS: &str = "/dlq/orders";
const REDRIVE: &str = "/dlq/orders/redrive";
const DROP: &str = "/dlq/orders/drop";

/// Long enough for a delivery that should not happen.
const A_WHILE: Duration = Duration::from_millis(300);

async fn member(running: &Running, group: &str) -> Client {
    let mut consumer = running.connect().await;
    consumer.subscribe("orders", group, json!({"from": "earliest"})).await;
    consumer
}

/// Rejects the next event.
async fn reject(consumer: &mut Client, reason: &str) -> Value {
    let event = consumer.event().await;
    let mut nack = frame_for("NACK", &event);
    nack["dead"] = true.into();
    nack["reason"] = reason.into();
    consumer.ok(nack).await;
    event
}

/// Publishes the events `e1` to `e{count}` and rejects them in the groups.
async fn dead_letters(running: &Running, count: u64, groups: &[&str]) -> Vec<Client> {
    let mut client = HttpClient::connect(running).await;
    for n in 1..=count {
        client.post(&format!("/publish/orders?id=e{n}"), n.to_string()).await.ok();
    }
    let mut consumers = Vec::new();
    for group in groups {
        let mut consumer = member(running, group).await;
        for n in 1..=count {
            reject(&mut consumer, &format!("{group} cannot handle {n}")).await;
        }
        consumers.push(consumer);
    }
    consumers
}

async fn letters(client: &mut HttpClient, query: &str) -> Vec<Value> {
    let list = client.get(&format!("{LETTERS}{query}")).await.ok();
    assert_eq!(list["topic"], "orders");
    list["letters"].as_array().unwrap().clone()
}

fn ids(letters: &[Value]) -> Vec<String> {
    let named = letters.iter().map(|letter| {
        let part = |name: &str| letter[name].as_str().unwrap().to_owned();
        format!("{}/{}", part("group"), part("original_id"))
    });
    named.collect()
}

#[tokio::test]
async fn lists_letters_page_by_page() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.get(LETTERS).await.refused(404, "unknown_topic");
    let _consumers = dead_letters(&running, 3, &["billing", "mail"]).await;

    let all = client.get(LETTERS).await.ok();
    assert_eq!(all["next"], Value::Null);
    let mut first = all["letters"][0].clone();
    let stored = client.get("/replay?topic=dlq.orders&limit=1").await.ok()["events"][0].clone();
    let original = client.get("/replay?topic=orders&limit=1").await.ok()["events"][0].clone();
    assert!(first["ts"].take().as_u64().unwrap() > 1_000_000_000_000);
    let expected = json!({
        "id": stored["id"], "seq": 1, "group": "billing", "original": original,
        "original_id": "e1", "err": "billing cannot handle 1", "attempts": 1, "ts": null,
        "redriven": false,
    });
    assert_eq!(first, expected);

    let all = all["letters"].as_array().unwrap();
    let names = ["billing/e1", "billing/e2", "billing/e3", "mail/e1", "mail/e2", "mail/e3"];
    assert_eq!(ids(all), names);
    assert_eq!(ids(&letters(&mut client, "?group=mail").await), &names[3..]);
    assert!(letters(&mut client, "?group=nobody").await.is_empty());
    assert_eq!(ids(&letters(&mut client, "?id=e2").await), ["billing/e2", "mail/e2"]);
    assert_eq!(ids(&letters(&mut client, "?id=e2&group=mail").await), ["mail/e2"]);
    let letter = all[4]["id"].as_str().unwrap();
    assert_eq!(ids(&letters(&mut client, &format!("?id={letter}")).await), ["mail/e2"]);

    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = client.get(&format!("{LETTERS}{query}")).await.ok();
        let letters = page["letters"].as_array().unwrap();
        assert!(letters.len() <= 2);
        paged.extend(ids(letters));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=2&after={next}");
    }
    assert_eq!(paged, names);
    client.get("/dlq/orders?after=nobody").await.refused(404, "unknown_id");
}

#[tokio::test]
async fn a_topic_without_dead_letters_has_an_empty_list() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/orders", "1").await.ok();
    let none = json!({"topic": "orders", "letters": [], "next": null});
    assert_eq!(client.get(LETTERS).await.ok(), none);
    let redriven = client.post(REDRIVE, "").await.ok();
    let nothing =
        json!({"topic": "orders", "redriven": 0, "skipped": 0, "next": null, "end_seq": 1});
    assert_eq!(redriven, nothing);
    let dropped = client.post(DROP, r#"{"all": true}"#).await.ok();
    assert_eq!(dropped, json!({"topic": "orders", "dropped": 0, "next": null, "end_seq": 1}));
}

#[tokio::test]
async fn a_redriven_event_goes_to_the_failed_group_alone_and_once() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut mail = member(&running, "mail").await;
    let mut consumers = dead_letters(&running, 1, &["billing"]).await;
    let billing = &mut consumers[0];
    let event = mail.event().await;
    mail.ack(&event).await;

    let redriven = client.post(REDRIVE, "").await.ok();
    assert_eq!(
        redriven,
        json!({"topic": "orders", "redriven": 1, "skipped": 0, "next": null, "end_seq": 2})
    );
    let again = billing.event().await;
    assert_eq!((&again["event"], &again["ctx"]["attempt"]), (&event["event"], &json!(1)));
    let waiting = client.get("/groups/orders/billing").await.ok();
    assert_eq!(waiting["redriving"], 1);
    billing.ack(&again).await;
    assert_eq!(client.get("/groups/orders/billing").await.ok()["redriving"], 0);
    mail.gets_nothing_for(A_WHILE).await;

    assert_eq!(letters(&mut client, "").await[0]["redriven"], true);
    let skipped = client.post(REDRIVE, "").await.ok();
    assert_eq!((&skipped["redriven"], &skipped["skipped"]), (&json!(0), &json!(1)));
    billing.gets_nothing_for(A_WHILE).await;
    assert_eq!(client.get("/topics/orders").await.ok()["events"], 1, "nothing was published");
}

#[tokio::test]
async fn an_event_that_fails_again_becomes_a_new_letter() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumers = dead_letters(&running, 1, &["billing"]).await;
    client.post(REDRIVE, "").await.ok();
    reject(&mut consumers[0], "still not").await;
    let both = letters(&mut client, "").await;
    let seen: Vec<_> = both.iter().map(|letter| (&letter["err"], &letter["redriven"])).collect();
    let expected =
        [(&json!("billing cannot handle 1"), &json!(true)), (&json!("still not"), &json!(false))];
    assert_eq!(seen, expected);
    let redriven = client.post(REDRIVE, "").await.ok();
    assert_eq!((&redriven["redriven"], &redriven["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(consumers[0].event().await["event"]["id"], "e1");
}

#[tokio::test]
async fn a_letter_is_redriven_when_retention_took_the_event() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumers = dead_letters(&running, 1, &["billing"]).await;
    client.post("/topics/orders/purge", r#"{"all": true}"#).await.ok();
    assert_eq!(client.post(REDRIVE, "").await.ok()["redriven"], 1);
    let again = consumers[0].event().await;
    assert_eq!((&again["event"]["id"], &again["event"]["payload"]), (&json!("e1"), &json!(1)));
    consumers[0].ack(&again).await;
}

#[tokio::test]
async fn redrives_what_is_selected() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumers = dead_letters(&running, 3, &["billing", "mail"]).await;
    let body = r#"{"group": "mail", "ids": ["e2", "nobody"]}"#;
    let redriven = client.post(REDRIVE, body).await.ok();
    assert_eq!((&redriven["redriven"], &redriven["next"]), (&json!(1), &Value::Null));
    assert_eq!(consumers[1].event().await["event"]["id"], "e2");
    consumers[0].gets_nothing_for(A_WHILE).await;
    // In pages, and without those that were redriven.
    let first = client.post(REDRIVE, r#"{"group": "mail", "limit": 1}"#).await.ok();
    assert_eq!(first["redriven"], 1);
    let after = json!({"group": "mail", "after": first["next"]});
    let rest = client.post(REDRIVE, after.to_string()).await.ok();
    assert_eq!((&rest["redriven"], &rest["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(rest["next"], Value::Null);
    // A group that is gone gets nothing.
    client.ask("DELETE", "/groups/orders/billing", &[], "").await.ok();
    let gone = client.post(REDRIVE, "").await.ok();
    assert_eq!((&gone["redriven"], &gone["skipped"]), (&json!(0), &json!(6)));
    client.post(REDRIVE, r#"{"group": "billing"}"#).await.refused(404, "unknown_group");
}

#[tokio::test]
async fn dropped_letters_are_no_longer_listed_or_redriven() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let mut consumers = dead_letters(&running, 3, &["billing", "mail"]).await;
    let dropped = client.post(DROP, r#"{"ids": ["e1"]}"#).await.ok();
    assert_eq!(dropped, json!({"topic": "orders", "dropped": 2, "next": null, "end_seq": 7}));
    let left = ["billing/e2", "billing/e3", "mail/e2", "mail/e3"];
    assert_eq!(ids(&letters(&mut client, "").await), left);
    client.post(REDRIVE, r#"{"ids": ["e1"]}"#).await.ok();
    consumers[0].gets_nothing_for(A_WHILE).await;
    assert_eq!(client.post(DROP, r#"{"group": "mail"}"#).await.ok()["dropped"], 2);
    assert_eq!(ids(&letters(&mut client, "").await), &left[..2]);
    assert_eq!(client.post(DROP, r#"{"all": true}"#).await.ok()["dropped"], 2);
    assert!(letters(&mut client, "").await.is_empty());
    assert_eq!(client.post(DROP, r#"{"all": true}"#).await.ok()["dropped"], 0);
}

#[tokio::test]
async fn names_what_is_wrong_with_a_request() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/orders", "1").await.ok();
    for (query, code, reason) in [
        ("?limit=0", "bad_frame", "the parameter limit must be a whole number from 1 to 1000"),
        ("?limit=1001", "bad_frame", "the parameter limit must be"),
        ("?group=G", "bad_group", "the parameter group is invalid"),
        ("?after=", "bad_frame", "the parameter after is invalid"),
        ("?id=", "bad_frame", "the parameter id is invalid"),
        ("?topic=t", "bad_frame", "unknown parameter \"topic\"; expected group, id, after, limit"),
    ] {
        let message = client.get(&format!("{LETTERS}{query}")).await.refused(400, code);
        assert!(message.contains(reason), "{query}: {message}");
    }
    let too_many = json!({"ids": vec!["e1"; 1001]}).to_string();
    let shared = [
        (r#"{"group": "G"}"#, "bad_group", "group is invalid"),
        (r#"{"group": 1}"#, "bad_frame", "group must be a string"),
        (r#"{"ids": "e1"}"#, "bad_frame", "ids must be an array of 1 to 1000 ids"),
        (r#"{"ids": []}"#, "bad_frame", "ids must be an array of 1 to 1000 ids"),
        (too_many.as_str(), "bad_frame", "ids must be an array of 1 to 1000 ids"),
        (r#"{"group": "g", "limit": 0}"#, "bad_frame", "limit must be a whole number from 1"),
        (r#"{"group": "g", "after": 1}"#, "bad_frame", "after must be a string"),
        (r#"{"id": "e1"}"#, "bad_frame", "unknown member \"id\"; expected group, ids"),
    ];
    for path in [REDRIVE, DROP] {
        for (body, code, reason) in shared {
            let message = client.post(path, body.to_owned()).await.refused(400, code);
            assert!(message.contains(reason), "{path} {body}: {message}");
        }
        client.post(path, "{").await.refused(400, "bad_json");
        client.post(path, " ".repeat(600 << 10)).await.refused(413, "payload_too_large");
        let unknown = path.replace("orders", "nothing");
        client.post(&unknown, r#"{"group": "g"}"#).await.refused(404, "unknown_topic");
        let long = path.replace("orders", &"x".repeat(197));
        client.post(&long, r#"{"group": "g"}"#).await.refused(400, "bad_topic");
    }
    for body in ["", "{}", r#"{"limit": 5}"#] {
        let message = client.post(DROP, body).await.refused(400, "bad_frame");
        assert!(message.contains("must have group, ids or \"all\": true"), "{message}");
    }
    client.post(REDRIVE, r#"{"all": true}"#).await.refused(400, "bad_frame");
    client.get("/dlq/Orders").await.refused(400, "bad_topic");
    client.get(&format!("/dlq/{}", "x".repeat(197))).await.refused(400, "bad_topic");
}

#[tokio::test]
async fn listing_needs_the_right_to_read_and_changing_that_to_manage() {
    let log = Log::default();
    let _logging = log.start();
    let running = started(&[TOKENS]).await;
    let mut billing = HttpClient::connect(&running).await.with_token("billing-secret");
    let mut reader = HttpClient::connect(&running).await.with_token("reader-secret");
    let mut operator = HttpClient::connect(&running).await.with_token("operator-secret");
    billing.post("/publish/orders?id=e1", "1").await.ok();
    let mut consumer = running.connect().await;
    consumer.ok(json!({"op": "AUTH", "token": "billing-secret"})).await;
    consumer.subscribe("orders", "billing", json!({"from": "earliest"})).await;
    reject(&mut consumer, "no").await;

    billing.get(LETTERS).await.refused(403, "forbidden");
    assert_eq!(letters(&mut reader, "").await.len(), 1);
    assert_eq!(letters(&mut operator, "").await.len(), 1);
    for client in [&mut billing, &mut reader] {
        client.post(REDRIVE, "").await.refused(403, "forbidden");
        client.post(DROP, r#"{"all": true}"#).await.refused(403, "forbidden");
    }
    operator.get("/dlq/other").await.refused(403, "forbidden");
    operator.post("/dlq/other/redrive", "").await.refused(403, "forbidden");

    operator.post(REDRIVE, "").await.ok();
    operator.post(REDRIVE, "").await.ok();
    operator.post(DROP, r#"{"group": "billing"}"#).await.ok();
    let lines = log.lines();
    let changes = lines.iter().filter(|line| line["message"] == "changed");
    let changes: Vec<_> = changes
        .map(|line| {
            assert_eq!(
                (&line["principal"], &line["topic"]),
                (&json!("operator"), &json!("orders"))
            );
            line["change"].as_str().unwrap()
        })
        .collect();
    assert_eq!(changes, ["dead letters: 1 redriven", "dead letters: 1 dropped"]);
}
