//! Spans as a request of OTLP, in its JSON encoding: ids in hexadecimal, 64-bit numbers as strings.

use bytes::Bytes;
use prombus_bus::{FinishedSpan, SpanKind};
use serde_json::{Value, json};

const SCOPE: &str = "prombus";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// `SPAN_KIND_PRODUCER` and `SPAN_KIND_CONSUMER`.
const PRODUCER: u8 = 4;
const CONSUMER: u8 = 5;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// What produced the spans.
pub(super) struct Resource(Value);

impl Resource {
    pub(super) fn of(service_name: &str) -> Self {
        let attributes = [("service.name", service_name), ("service.version", VERSION)];
        Self(json!({ "attributes": attributes.map(|(key, value)| text(key, value)) }))
    }
}

/// Returns the body of a request.
pub(super) fn request(resource: &Resource, spans: &[FinishedSpan]) -> Bytes {
    let spans: Vec<_> = spans.iter().map(span).collect();
    let scope = json!({ "name": SCOPE, "version": VERSION });
    let request = json!({
        "resourceSpans": [{
            "resource": resource.0,
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }],
    });
    Bytes::from(request.to_string())
}

fn span(span: &FinishedSpan) -> Value {
    let FinishedSpan { ids, kind, topic, event, started, ended, error } = span;
    let (topic, event) = (topic.as_str(), event.to_string());
    let (operation, number) = match kind {
        SpanKind::Publish { .. } => ("publish", PRODUCER),
        SpanKind::Delivery { .. } => ("deliver", CONSUMER),
    };
    let mut attributes = vec![
        text("messaging.system", SCOPE),
        text("messaging.operation.name", operation),
        text("messaging.destination.name", topic),
        text("messaging.message.id", &event),
    ];
    let seq = match kind {
        SpanKind::Publish { seq, is_duplicate } => {
            attributes.push(text("messaging.operation.type", "send"));
            if *is_duplicate {
                attributes
                    .push(json!({ "key": "prombus.duplicate", "value": { "boolValue": true } }));
            }
            *seq
        }
        SpanKind::Delivery { group, seq, attempt, outcome } => {
            attributes.extend([
                text("messaging.operation.type", "process"),
                text("messaging.consumer.group.name", group.as_str()),
                number_of("prombus.attempt", u64::from(*attempt)),
                text("prombus.outcome", outcome),
            ]);
            Some(*seq)
        }
    };
    attributes.extend(seq.map(|seq| number_of("prombus.seq", seq.0)));
    let mut span = json!({
        "traceId": format!("{:032x}", ids.trace_id),
        "spanId": format!("{:016x}", ids.span_id),
        "name": format!("{operation} {topic}"),
        "kind": number,
        "startTimeUnixNano": started.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &ids.parent {
        let (trace, id) = (format!("{:032x}", parent.trace_id), format!("{:016x}", parent.span_id));
        if matches!(kind, SpanKind::Delivery { .. }) {
            span["links"] = json!([{ "traceId": trace, "spanId": id }]);
        }
        span["parentSpanId"] = Value::from(id);
    }
    if let Some(error) = error {
        span["status"] = json!({ "code": ERROR, "message": error });
    }
    span
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number_of(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}
