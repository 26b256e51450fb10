//! One event: the whole body is its payload, whatever its `Content-Type`.

use std::iter;

use axum::extract::Request;
use axum::response::Response;
use prombus_bus::{Connection, PublishBatch};
use prombus_proto::frame::parse_payload;
use prombus_proto::{EventId, FrameLimits, Key, NewEvent, Seq, Timestamp, Topic};
use serde::Serialize;

use super::event_headers;
use crate::http::body::RequestBody;
use crate::http::error::HttpError;
use crate::http::query::QueryParams;
use crate::http::{HttpState, response};

#[derive(Serialize)]
struct Published {
    id: EventId,
    seq: Seq,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

pub(super) async fn publish(
    http: &HttpState,
    connection: &Connection,
    topic: &Topic,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let query = QueryParams::parse(&head.uri, &["key", "id", "ts"])?;
    let id = query.parsed("id", EventId::new)?;
    let key = query.parsed("key", Key::new)?;
    let ts = query.number("ts", 0..=u64::MAX)?.map(Timestamp);
    let headers = event_headers::parse(&head.headers)?;
    let settings = &http.gateway.settings;
    let limits = FrameLimits { max_payload_bytes: settings.max_frame_bytes };
    let (limit, stall_timeout) = (settings.max_frame_bytes, settings.slow_consumer_timeout);
    let body = RequestBody::new(&head.headers, body, limit, stall_timeout)?.collect().await?;
    let payload = parse_payload(&body, &limits)
        .map_err(|error| HttpError::from(error).with_context("the body"))?;
    let event = NewEvent { id, key, ts, headers, ..NewEvent::of(payload) };
    let mut batch = PublishBatch::new();
    batch.push(http.bus(), connection, topic, iter::once(event))?;
    let id = batch.ids().next().expect("one event has one id").clone();
    let positions = batch.submit(http.bus()).await?.stored().await?;
    let position = positions.first().expect("one event has one position");
    Ok(response::json(&Published { id, seq: position.seq, duplicate: position.duplicate }))
}
