//! The log names who was refused, throttled or closed, and which events became dead letters: once a second, with
//! counts that agree with the metrics.

use futures_util::StreamExt;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::observed::Observed;
use crate::gateway::client::{Client, parsed};

const TOKENS: &str = r#"auth.tokens=[
    {name="billing",token="billing-secret",scopes=["publish:**","subscribe:**"]},
    {name="operator",token="operator-secret",scopes=["admin"]},
]"#;

async fn authenticated(observed: &Observed, token: &str) -> Client {
    let mut client = observed.connect().await;
    client.ok(json!({"op": "AUTH", "token": token})).await;
    client
}

#[tokio::test]
async fn failed_logins() {
    let observed =
        Observed::start(&["--engine", "memory"], &[TOKENS]).with_token("operator-secret");
    let mut guesser = observed.connect().await;
    let guess = json!({"op": "AUTH", "token": "guessed-secret"});
    assert_eq!(parsed(&guesser.ask(guess).await)["code"], "bad_token");
    let line = observed.line("login refused");
    assert_eq!((&line["address"], &line["target"]), (&json!("127.0.0.1"), &json!("audit")));
    assert_eq!((&line["transport"], &line["count"]), (&json!("ws"), &json!(1)));
    assert!(!line.to_string().contains("guessed-secret"), "{line}");
    assert_eq!(observed.metrics().await["prombus_failed_logins_total"], 1.0);
}

#[tokio::test]
async fn refused_origins() {
    let observed = Observed::start(&["--engine", "memory"], &[]);
    let before = observed.metrics().await;
    for transport in ["ws", "http"] {
        let series = format!("prombus_refused_origins_total{{transport=\"{transport}\"}}");
        assert_eq!(before[&series], 0.0);
    }
    let evil = "https://evil.example";
    let mut request = observed.server.url.as_str().into_client_request().unwrap();
    request.headers_mut().insert("origin", evil.parse().unwrap());
    let stream = TcpStream::connect(observed.ws()).await.unwrap();
    client_async(request, stream).await.unwrap_err();
    let line = observed.line("refused a web page of another origin");
    let expected = (&json!(evil), &json!("127.0.0.1"), &json!("ws"));
    assert_eq!((&line["origin"], &line["address"], &line["transport"]), expected);
    assert!(line["message"].as_str().unwrap().contains("auth.allowed_origins"), "{line}");

    // A page may claim anything, as often as it likes.
    let mut client = observed.client().await;
    for number in 0..50 {
        let claimed = format!("https://{}{number}.example", "x".repeat(1000));
        client.ask("GET", "/topics", &[("origin", &claimed)], "").await.refused(403, "forbidden");
    }
    // DNS rebinding: the page is one of a name that points here.
    client.ask("GET", "/topics", &[("host", "evil.example")], "").await.refused(403, "forbidden");
    let lines = observed.lines_about("refused a web page of another origin", 51);
    assert!(lines.iter().all(|line| line.to_string().len() < 1000));
    let metrics = observed.metrics().await;
    assert_eq!(metrics["prombus_refused_origins_total{transport=\"ws\"}"], 1.0);
    assert_eq!(metrics["prombus_refused_origins_total{transport=\"http\"}"], 51.0);
}

#[tokio::test]
async fn dead_letters() {
    let observed = Observed::start(&["--engine", "memory"], &[]);
    let mut consumer = observed.connect().await;
    for topic in ["orders", "payments"] {
        consumer.subscribe(topic, "billing", json!({"maxAttempts": 1})).await;
        for number in 0..20 {
            consumer.publish(topic, json!(number)).await;
        }
    }
    for _ in 0..40 {
        let event = consumer.event().await;
        let nack = json!({
            "op": "NACK", "topic": event["topic"], "group": "billing",
            "id": event["event"]["id"], "reason": "no such customer",
        });
        consumer.ok(nack).await;
    }
    let lines = observed.lines_about("events became dead letters", 40);
    for topic in ["orders", "payments"] {
        let of_topic = lines.iter().filter(|line| line["topic"] == topic);
        assert_eq!(of_topic.map(|line| line["count"].as_u64().unwrap()).sum::<u64>(), 20);
    }
    for line in &lines {
        let expected = (&json!("billing"), &json!("no such customer"));
        assert_eq!((&line["group"], &line["error"]), expected);
        let message = line["message"].as_str().unwrap();
        assert!(message.contains(&format!("dlq.{}", line["topic"].as_str().unwrap())), "{line}");
    }
    let series = "prombus_events_dead_lettered_total{group=\"billing\",topic=\"orders\"}";
    assert_eq!(observed.metrics().await[series], 20.0);
}

#[tokio::test]
async fn throttled_principals() {
    let limits = [
        TOKENS,
        "limits.enabled=true",
        "limits.connection.capacity=950",
        "limits.connection.refill_per_sec=1",
        "limits.principal.capacity=1500",
        "limits.principal.refill_per_sec=1",
    ];
    let observed = Observed::start(&["--engine", "memory"], &limits).with_token("operator-secret");
    let mut one = authenticated(&observed, "billing-secret").await;
    let mut other = authenticated(&observed, "billing-secret").await;
    let batch = |count: usize| {
        let events = vec![json!({"payload": 1}); count];
        json!({"op": "PUBLISH", "topic": "orders", "events": events})
    };
    one.ok(batch(900)).await;
    // More than a connection ever has, and more than is left for both together.
    assert_eq!(parsed(&one.ask(batch(1000)).await)["code"], "rate_limited");
    let line = observed.line("events were refused by a rate limit");
    let expected = (&json!("token billing"), &json!("connection"), &json!(1000), &json!("orders"));
    assert_eq!((&line["client"], &line["limit"], &line["count"], &line["topic"]), expected);
    assert!(line["message"].as_str().unwrap().ends_with("or raise limits.connection"), "{line}");
    assert_eq!(parsed(&other.ask(batch(900)).await)["code"], "rate_limited");
    let line = observed.line("events were refused by a rate limit");
    assert_eq!((&line["limit"], &line["count"]), (&json!("principal"), &json!(900)));
    let metrics = observed.metrics().await;
    assert_eq!(metrics["prombus_events_rate_limited_total{scope=\"connection\"}"], 1000.0);
    assert_eq!(metrics["prombus_events_rate_limited_total{scope=\"principal\"}"], 900.0);
}

#[tokio::test]
async fn slow_consumers() {
    let set = [
        TOKENS,
        "gateway.slow_consumer_timeout_ms=300",
        "gateway.ping_interval_ms=3600000",
        "gateway.max_frame_bytes=16777216",
    ];
    let observed = Observed::start(&["--engine", "memory"], &set).with_token("operator-secret");
    let mut slow = Client::connect_narrow(observed.ws()).await;
    slow.ok(json!({"op": "AUTH", "token": "billing-secret"})).await;
    slow.subscribe("orders", "billing", json!({})).await;
    let mut publisher = authenticated(&observed, "billing-secret").await;
    publisher.publish("orders", json!("x".repeat(14 << 20))).await;
    let line = observed.line("closed a slow consumer (4008)");
    let (principal, address) = (&json!("billing"), &json!("127.0.0.1"));
    assert_eq!((&line["principal"], &line["address"]), (principal, address));
    assert_eq!((&line["topic"], &line["group"]), (&json!("orders"), &json!("billing")));
    assert_eq!((&line["subscriptions"], &line["count"]), (&json!(1), &json!(1)));
    assert!(line["unread_bytes"].as_u64().unwrap() > 1 << 20, "{line}");
    assert_eq!(observed.metrics().await["prombus_slow_consumers_total"], 1.0);
    // It reads again, and finds out.
    while let Some(Ok(_)) = slow.socket.next().await {}
}

#[tokio::test]
async fn refused_connections() {
    let set = ["gateway.max_connections_per_address=2"];
    let observed = Observed::start(&["--engine", "memory"], &set);
    let held = [observed.connect().await, observed.connect().await];
    let refused = TcpStream::connect(observed.ws()).await.unwrap();
    client_async(observed.server.url.as_str(), refused).await.unwrap_err();
    let line = observed.line("refused connections");
    assert_eq!((&line["address"], &line["count"]), (&json!("127.0.0.1"), &json!(1)));
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("gateway.max_connections_per_address"), "{line}");
    // The machine of the server may read the metrics even then.
    let series = "prombus_connections_refused_total{limit=\"address\"}";
    assert!(observed.metrics().await[series] >= 1.0);
    drop(held);
}

#[tokio::test]
async fn groups_and_topics_that_are_too_many_are_counted() {
    let set = [
        "limits.enabled=true",
        "limits.max_topics=2",
        "limits.max_groups_per_topic=1",
        "limits.connection.capacity=1000",
    ];
    let observed = Observed::start(&["--engine", "memory"], &set);
    let mut client = observed.connect().await;
    client.subscribe("orders", "billing", json!({})).await;
    client.publish("payments", json!(1)).await;
    // It exists: joining it again is refused by no limit.
    observed.connect().await.subscribe("orders", "billing", json!({})).await;
    let exceeded = |answer: String| assert_eq!(parsed(&answer)["code"], "limit_exceeded");
    for _ in 0..2 {
        let subscribe = json!({"op": "SUBSCRIBE", "topic": "orders", "group": "mail"});
        exceeded(client.ask(subscribe).await);
    }
    for _ in 0..3 {
        let publish = json!({"op": "PUBLISH", "topic": "returns", "payload": 1});
        exceeded(client.ask(publish).await);
    }
    let metrics = observed.metrics().await;
    assert_eq!(metrics["prombus_limit_exceeded_total{limit=\"groups\"}"], 2.0);
    assert_eq!(metrics["prombus_limit_exceeded_total{limit=\"topics\"}"], 3.0);
}
