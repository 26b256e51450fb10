//! Tokens and scopes.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode};
use prombus_proto::{ClientOp, Clock, SystemClock};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::client::{Client, Received, parsed, payload};
use crate::gateway::running::started;

const TOKENS: &str = r#"auth.tokens=[
    {token="writer",scopes=["!publish:a.secret","publish:a.*"]},
    {token="reader",scopes=["subscribe:a.**"]},
    {token="all",scopes=["publish:**","subscribe:**"]},
]"#;

pub(crate) async fn authenticated(
    running: &crate::gateway::running::Running,
    token: &str,
) -> Client {
    let mut client = running.connect().await;
    let answer = client.ask(json!({"op": "AUTH", "corr": "a", "token": token})).await;
    assert_eq!(answer, r#"{"op":"OK","corr":"a"}"#);
    client
}

async fn code(client: &mut Client, frame: Value) -> Value {
    parsed(&client.ask(frame).await)["code"].clone()
}

fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": 1})
}

#[tokio::test]
async fn every_operation_before_auth_is_unauthorized() {
    let running = started(&[TOKENS]).await;
    let mut client = running.connect().await;
    let frame_for = |op| json!({"op": op, "corr": "c", "topic": "a.b", "group": "g", "id": "x", "extend_ms": 1});
    let publish = json!({"op": "PUBLISH", "corr": "c", "topic": "a.b", "payload": 1});
    let others =
        ClientOp::NAMES.iter().filter(|op| !["AUTH", "PUBLISH"].contains(op)).map(frame_for);
    for frame in others.chain([publish.clone()]) {
        assert_eq!(
            client.ask(frame.clone()).await,
            r#"{"op":"ERR","corr":"c","code":"unauthorized","msg":"authenticate first: send AUTH with a token"}"#,
            "{frame}"
        );
    }
    let refused = json!({"op": "AUTH", "corr": "c", "token": "nonsense"});
    assert_eq!(
        client.ask(refused).await,
        r#"{"op":"ERR","corr":"c","code":"bad_token","msg":"unknown token"}"#
    );
    assert_eq!(code(&mut client, publish.clone()).await, "unauthorized");
    client.ok(json!({"op": "AUTH", "token": "writer"})).await;
    client.ok(publish).await;
}

#[tokio::test]
async fn auth_needs_a_token_only_where_tokens_are_configured() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for frame in [json!({"op": "AUTH"}), json!({"op": "AUTH", "token": null})] {
        client.ok(frame).await;
    }
    client.ok(json!({"op": "AUTH", "token": "any"})).await;
    client.ok(publish("t")).await;
    let running = started(&[TOKENS]).await;
    let mut client = running.connect().await;
    assert_eq!(
        client.ask(json!({"op": "AUTH", "corr": "c"})).await,
        r#"{"op":"ERR","corr":"c","code":"bad_frame","msg":"token is missing"}"#
    );
    assert_eq!(code(&mut client, publish("a.b")).await, "unauthorized");
}

#[tokio::test]
async fn the_first_matching_scope_decides() {
    let running = started(&[TOKENS]).await;
    let subscribe = |topic| json!({"op": "SUBSCRIBE", "topic": topic, "group": "g"});
    let mut writer = authenticated(&running, "writer").await;
    writer.ok(publish("a.b")).await;
    for denied in ["a.secret", "a", "a.b.c", "b"] {
        assert_eq!(code(&mut writer, publish(denied)).await, "forbidden", "{denied}");
    }
    assert_eq!(
        writer.ask(subscribe("a.b")).await,
        r#"{"op":"ERR","code":"forbidden","msg":"consume a.b as g: the token does not allow this"}"#
    );
    let mut reader = authenticated(&running, "reader").await;
    assert_eq!(code(&mut reader, publish("a.b")).await, "forbidden");
    assert_eq!(code(&mut reader, subscribe("b")).await, "forbidden");
    reader.ok(subscribe("a.b")).await;
    let event = writer.publish("a.b", json!(2)).await;
    assert_eq!(reader.event().await["event"]["id"], event["id"]);
    // The publish of an ACK requires the same rights.
    let ack = json!({
        "op": "ACK", "topic": "a.b", "group": "g", "id": event["id"],
        "publish": [{"topic": "a.c", "payload": 1}],
    });
    assert_eq!(code(&mut reader, ack).await, "forbidden");
}

const MEMBERS: &str = r#"auth.tokens=[
    {token="billing",scopes=["consume:orders.*/billing-*","publish:orders.*"]},
    {token="mail",scopes=["consume:orders.*/mail"]},
    {token="outsider",scopes=["!subscribe:orders.**","subscribe:**"]},
]"#;

#[tokio::test]
async fn a_token_for_some_groups_cannot_touch_those_of_others() {
    let running = started(&[MEMBERS]).await;
    let mut billing = authenticated(&running, "billing").await;
    billing.subscribe("orders.new", "billing-eu", json!({})).await;
    let event = billing.publish("orders.new", json!(1)).await;
    let delivery = billing.event().await;
    assert_eq!(delivery["event"]["id"], event["id"]);
    let mut mail = authenticated(&running, "mail").await;
    mail.subscribe("orders.new", "mail", json!({})).await;
    let touching =
        ["SUBSCRIBE", "ACK", "NACK", "MODACK", "SEEN", "MARK", "PAUSE", "RESUME", "UNSUBSCRIBE"];
    for op in touching {
        let mut frame = crate::gateway::client::frame_for(op, &delivery);
        frame["extend_ms"] = json!(1000);
        let refused = parsed(&mail.ask(frame).await);
        assert_eq!(refused["code"], "forbidden", "{op}");
        assert_eq!(
            refused["msg"],
            "consume orders.new as billing-eu: the token does not allow this"
        );
    }
    // The lease is untouched.
    assert_eq!(billing.ack(&delivery).await, json!({"op": "OK"}));
}

#[tokio::test]
async fn a_denied_topic_is_not_readable_through_its_dead_letters() {
    let running = started(&[MEMBERS]).await;
    let mut outsider = authenticated(&running, "outsider").await;
    for topic in ["orders.new", "dlq.orders.new", "orders.new.snapshot", "dlq.dlq.orders.new"] {
        let subscribe = json!({"op": "SUBSCRIBE", "topic": topic, "group": "g"});
        assert_eq!(code(&mut outsider, subscribe).await, "forbidden", "{topic}");
    }
    outsider.subscribe("dlq.invoices", "g", json!({})).await;
    let mut mail = authenticated(&running, "mail").await;
    mail.subscribe("dlq.orders.new", "mail", json!({})).await;
}

#[tokio::test]
async fn auth_may_be_repeated_and_the_newest_token_counts() {
    let running = started(&[TOKENS]).await;
    let mut client = authenticated(&running, "all").await;
    let mut publisher = authenticated(&running, "all").await;
    for topic in ["a.b", "b"] {
        client.subscribe(topic, "g", json!({})).await;
    }
    // A refused token changes nothing.
    assert_eq!(code(&mut client, json!({"op": "AUTH", "token": "x"})).await, "bad_token");
    client.ok(publish("c")).await;
    client.ok(json!({"op": "AUTH", "token": "reader"})).await;
    assert_eq!(code(&mut client, publish("c")).await, "forbidden");
    // Subscriptions that the new token does not allow have ended; the others continue.
    publisher.publish("b", json!("not for it")).await;
    publisher.publish("a.b", json!("for it")).await;
    assert_eq!(payload(&client.event().await), "for it");
    client.gets_nothing_for(Duration::from_millis(100)).await;
    client.ok(json!({"op": "AUTH", "token": "all"})).await;
    client.subscribe("b", "g", json!({})).await;
    assert_eq!(payload(&client.event().await), "not for it");
}

/// Rights last five seconds longer than `exp`.
pub(crate) fn token_with_seconds_left(seconds: u64) -> String {
    let now = SystemClock.now().0 / 1000;
    let claims = json!({"scope": "publish:** subscribe:**", "exp": now + seconds - 5});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

pub(crate) const SECRET: &str = "a shared secret of the tests, long enough";

#[tokio::test]
async fn an_expired_token_suspends_the_connection_until_the_next_auth() {
    let running = started(&[&format!("auth.jwt.secret={SECRET}")]).await;
    let mut publisher = authenticated(&running, &token_with_seconds_left(600)).await;
    let mut client = authenticated(&running, &token_with_seconds_left(3)).await;
    for group in ["g", "paused"] {
        client.subscribe("t", group, json!({})).await;
    }
    client.ok(json!({"op": "PAUSE", "topic": "t", "group": "paused"})).await;
    publisher.publish("t", json!(1)).await;
    let first = client.event().await;
    client.ok(publish("u")).await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    publisher.publish("t", json!(2)).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    assert_eq!(
        client.ask(publish("u")).await,
        r#"{"op":"ERR","code":"unauthorized","msg":"publish to u: the token has expired, authenticate again"}"#
    );
    for op in ["ACK", "RESUME", "SUBSCRIBE"] {
        let mut frame = crate::gateway::client::frame_for(op, &first);
        assert_eq!(code(&mut client, frame.take()).await, "unauthorized", "{op}");
    }
    let expired = token_with_seconds_left(0);
    assert_eq!(code(&mut client, json!({"op": "AUTH", "token": expired})).await, "bad_token");
    client.gets_nothing_for(Duration::from_millis(100)).await;
    let fresh = token_with_seconds_left(600);
    client.ok(json!({"op": "AUTH", "token": fresh})).await;
    let second = client.event().await;
    assert_eq!((payload(&second), &second["group"]), (&json!(2), &json!("g")));
    client.ack(&first).await;
    client.ok(publish("u")).await;
    // A subscription that its client paused stays paused.
    client.gets_nothing_for(Duration::from_millis(100)).await;
    client.ok(json!({"op": "RESUME", "topic": "t", "group": "paused"})).await;
    assert_eq!(client.event().await["group"], "paused");
}

#[tokio::test]
async fn a_connection_whose_token_has_expired_is_closed_unless_it_renews_it() {
    let settings = [&*format!("auth.jwt.secret={SECRET}"), "gateway.expired_token_grace_ms=500"];
    let running = started(&settings).await;
    let token = token_with_seconds_left(2);
    let mut idle = authenticated(&running, &token).await;
    let mut busy = authenticated(&running, &token).await;
    let mut renewed = authenticated(&running, &token).await;
    idle.subscribe("t", "g", json!({})).await;
    renewed.ok(json!({"op": "AUTH", "token": token_with_seconds_left(600)})).await;
    // Frames that are refused, or a token that is rejected, do not extend its stay.
    let closed = loop {
        for frame in [publish("u"), json!({"op": "AUTH", "token": "guess"})] {
            if busy.try_send(Message::text(frame.to_string())).await.is_err() {
                break;
            }
        }
        match busy.receive().await {
            Received::Text(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Received::Closed(code) => break code,
            Received::Lost => panic!("the connection was lost without a close frame"),
        }
    };
    assert_eq!(closed, 4401);
    assert_eq!(idle.close_code().await, 4401);
    renewed.assert_lives().await;
}
