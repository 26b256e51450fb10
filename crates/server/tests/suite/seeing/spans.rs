//! Spans from publish to commit and from delivery to acknowledgement, as a collector receives them.

use serde_json::{Value, json};

use super::collector::{Collector, Span};
use super::observed::Observed;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PUBLISHER: &str = "00f067aa0ba902b7";

fn traced(collector: &Collector, ratio: &str) -> Observed {
    let endpoint = format!("tracing.otlp_endpoint={}", collector.url());
    let ratio = format!("tracing.sample_ratio={ratio}");
    Observed::start(&["--engine", "memory"], &[&endpoint, &ratio, "tracing.service_name=bus-1"])
}

fn publish(traceparent: &str, id: &str) -> Value {
    json!({
        "op": "PUBLISH", "topic": "orders", "payload": {"traceparent": "not this one"},
        "opts": {"id": id, "headers": {"traceparent": traceparent}},
    })
}

fn sampled() -> String {
    format!("00-{TRACE}-{PUBLISHER}-01")
}

fn find<'a>(spans: &'a [Span], name: &str, attribute: (&str, &str)) -> &'a Span {
    let (key, value) = attribute;
    let found = spans
        .iter()
        .find(|span| span.name() == name && span.attribute(key).as_deref() == Some(value));
    found.unwrap_or_else(|| panic!("no {name} with {attribute:?} in {spans:#?}"))
}

/// A publisher's trace goes on in the spans of the server, and the consumer sees the header.
#[tokio::test]
async fn a_trace_goes_from_the_publisher_through_the_store_to_the_acknowledgement() {
    let mut collector = Collector::start().await;
    let observed = traced(&collector, "0");
    let mut client = observed.connect().await;
    client.subscribe("orders", "billing", json!({})).await;
    let stored = client.ok(publish(&sampled(), "a")).await;
    let first = client.event().await;
    assert_eq!(first["event"]["headers"]["traceparent"], sampled());
    let nack = json!({
        "op": "NACK", "topic": "orders", "group": "billing", "id": "a", "reason": "busy", "delay_ms": 0,
    });
    client.ok(nack).await;
    let second = client.event().await;
    client.ack(&second).await;

    let spans = collector.spans(3).await;
    for span in &spans {
        assert_eq!(span.json["traceId"], TRACE);
        assert_eq!(span.json["parentSpanId"], PUBLISHER);
        assert_ne!(span.json["spanId"], PUBLISHER);
        assert_eq!(span.of_resource("service.name").as_deref(), Some("bus-1"));
        assert_eq!(span.attribute("messaging.system").as_deref(), Some("prombus"));
        assert_eq!(span.attribute("messaging.destination.name").as_deref(), Some("orders"));
        assert_eq!(span.attribute("messaging.message.id").as_deref(), Some("a"));
        let seq = stored["seq"].as_u64().unwrap().to_string();
        assert_eq!(span.attribute("prombus.seq"), Some(seq));
    }
    let published = find(&spans, "publish orders", ("messaging.operation.type", "send"));
    assert_eq!((&published.json["kind"], &published.json["links"]), (&json!(4), &Value::Null));
    assert_eq!(published.json["status"], Value::Null);
    let failed = find(&spans, "deliver orders", ("prombus.attempt", "1"));
    assert_eq!(failed.attribute("prombus.outcome").as_deref(), Some("nacked"));
    assert_eq!(failed.json["status"], json!({"code": 2, "message": "busy"}));
    let acked = find(&spans, "deliver orders", ("prombus.attempt", "2"));
    assert_eq!(acked.attribute("prombus.outcome").as_deref(), Some("acked"));
    for delivery in [failed, acked] {
        assert_eq!(delivery.json["kind"], 5);
        let link = json!([{"traceId": TRACE, "spanId": PUBLISHER}]);
        assert_eq!(delivery.json["links"], link);
        let group = delivery.attribute("messaging.consumer.group.name");
        assert_eq!(group.as_deref(), Some("billing"));
    }
    let metrics = observed.metrics().await;
    assert_eq!(metrics["prombus_spans_total{outcome=\"dropped\"}"], 0.0);
}

/// The publisher decides about its own traces, and the ratio about events without one. A header that is no
/// trace is none, and is delivered as it is.
#[tokio::test]
async fn unsampled_traces_have_no_spans_and_others_are_sampled_by_ratio() {
    let mut collector = Collector::start().await;
    let observed = traced(&collector, "1");
    let mut client = observed.connect().await;
    client.ok(publish(&format!("00-{TRACE}-{PUBLISHER}-00"), "unsampled")).await;
    client.ok(publish("nonsense", "nonsense")).await;
    client.publish("orders", json!(1)).await;
    client.ok(publish(&sampled(), "nonsense")).await;
    let events: Vec<_> = (0..3).map(|number| json!({"payload": number})).collect();
    client.ok(json!({"op": "PUBLISH", "topic": "batch", "events": events})).await;
    let mut spans = collector.spans(6).await;
    let duplicate = find(&spans, "publish orders", ("prombus.duplicate", "true")).clone();
    assert_eq!(duplicate.json["traceId"], TRACE);
    assert_eq!(duplicate.attribute("messaging.message.id").as_deref(), Some("nonsense"));
    spans.retain(|span| span.json["spanId"] != duplicate.json["spanId"]);
    let traces: std::collections::BTreeSet<_> =
        spans.iter().map(|span| span.json["traceId"].to_string()).collect();
    assert_eq!(traces.len(), 5, "each is the root of its own trace");
    for span in &spans {
        assert_eq!(span.json["parentSpanId"], Value::Null);
        assert_ne!(span.attribute("messaging.message.id").as_deref(), Some("unsampled"));
    }
    let mut batch: Vec<_> = spans
        .iter()
        .filter(|span| span.name() == "publish batch")
        .map(|span| span.attribute("prombus.seq").unwrap())
        .collect();
    batch.sort_unstable();
    assert_eq!(batch, ["1", "2", "3"]);
    client.subscribe("orders", "billing", json!({"from": "earliest"})).await;
    let delivered = [client.event().await, client.event().await, client.event().await];
    assert_eq!(delivered[1]["event"]["headers"]["traceparent"], "nonsense");
}

/// A consumer that goes away ends its span, and events that an ACK publishes have theirs.
#[tokio::test]
async fn deliveries_end_with_their_consumer_and_acks_publish() {
    let mut collector = Collector::start().await;
    let observed = traced(&collector, "0");
    let mut publisher = observed.connect().await;
    let mut lost = observed.connect().await;
    lost.subscribe("orders", "billing", json!({})).await;
    publisher.ok(publish(&sampled(), "a")).await;
    lost.event().await;
    drop(lost);
    let spans = collector.spans(2).await;
    let left = find(&spans, "deliver orders", ("prombus.outcome", "member_left"));
    assert_eq!(left.json["status"]["code"], 2);

    let mut consumer = observed.connect().await;
    consumer.subscribe("orders", "billing", json!({})).await;
    let event = consumer.event().await;
    let headers = json!({"traceparent": sampled()});
    let ack = json!({
        "op": "ACK", "topic": "orders", "group": "billing", "id": event["event"]["id"],
        "publish": [
            {"topic": "plain", "payload": 1},
            {"topic": "invoices", "payload": 2, "opts": {"headers": headers}},
        ],
    });
    consumer.ok(ack).await;
    let spans = collector.spans(2).await;
    find(&spans, "deliver orders", ("prombus.outcome", "acked"));
    find(&spans, "publish invoices", ("prombus.seq", "1"));
}

/// Publishers do not notice that the collector is down, spans that cannot be sent are counted, and a server that
/// stops sends what it has.
#[tokio::test]
async fn a_collector_that_fails_costs_spans_and_nothing_else() {
    let mut collector = Collector::start().await;
    let observed = traced(&collector, "1");
    collector.refuse(true);
    let mut client = observed.connect().await;
    // Far more than the queue has room for.
    let events = vec![json!({"payload": 1}); 1000];
    for _ in 0..20 {
        client.ok(json!({"op": "PUBLISH", "topic": "orders", "events": events})).await;
    }
    let line = observed.line("cannot send spans");
    assert!(line["message"].as_str().unwrap().contains(&collector.url()), "{line}");
    let metrics = observed.metrics().await;
    let of = |outcome: &str| metrics[&format!("prombus_spans_total{{outcome=\"{outcome}\"}}")];
    assert!(of("failed") >= 512.0 && of("dropped") > 0.0, "{metrics:?}");
    assert_eq!(of("exported"), 0.0);
    collector.refuse(false);
    observed.server.stop();
    assert!(!collector.next_request().await.is_empty(), "what waits is sent in the end");
}

/// Off is the default, and then nothing is sent.
#[tokio::test]
async fn without_an_endpoint_there_are_no_spans() {
    let observed = Observed::start(&["--engine", "memory"], &["tracing.sample_ratio=1"]);
    let mut client = observed.connect().await;
    client.ok(publish(&sampled(), "a")).await;
    let metrics = observed.metrics().await;
    for outcome in ["exported", "failed", "dropped"] {
        assert_eq!(metrics[&format!("prombus_spans_total{{outcome=\"{outcome}\"}}")], 0.0);
    }
}
