//! Many events, one per line (NDJSON), stored all or none.

use axum::extract::Request;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use prombus_bus::{Bus, Connection, Position, PublishBatch};
use prombus_proto::frame::parse_event_line;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use prombus_proto::{ErrorCode, FrameLimits, NewEvent, Seq, Topic};
use serde::Serialize;

use super::event_headers;
use crate::http::body::RequestBody;
use crate::http::error::HttpError;
use crate::http::query::{QueryParams, invalid};
use crate::http::{HttpState, response};

#[derive(Serialize)]
struct PublishedBatch {
    count: usize,
    duplicates: usize,
    first_seq: Option<Seq>,
    last_seq: Option<Seq>,
}

pub(super) async fn publish(
    http: &HttpState,
    connection: &Connection,
    topic: &Topic,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    reject_single_event_parameters(&QueryParams::parse(&head.uri, &["key", "id", "ts"])?)?;
    if !event_headers::parse(&head.headers)?.is_empty() {
        let message = "X-Event headers apply to a single payload; set headers in each line";
        return Err(HttpError::new(ErrorCode::BadFrame, message));
    }
    let body = RequestBody::new(&head.headers, body, MAX_BATCH_BYTES)?;
    // Reads nothing until there is memory for all of it.
    let _room = http.ndjson_bytes.acquire_many(body.max_bytes()).await;
    let limits = FrameLimits { max_payload_bytes: http.gateway.settings.max_frame_bytes };
    let events = read_events(body, http.bus(), &limits).await?;
    if events.is_empty() {
        return Ok(response::json(&PublishedBatch::new(&[])));
    }
    let mut batch = PublishBatch::new();
    batch.push_paced(http.bus(), connection, topic, events).await?;
    if batch.bytes() > MAX_BATCH_BYTES {
        let message = format!(
            "the events have {} bytes including metadata, more than the {MAX_BATCH_BYTES} allowed \
             in one request",
            batch.bytes()
        );
        return Err(HttpError::new(ErrorCode::PayloadTooLarge, message));
    }
    let positions = batch.submit(http.bus()).await?.stored().await?;
    Ok(response::json(&PublishedBatch::new(&positions)))
}

async fn read_events(
    mut body: RequestBody,
    bus: &Bus,
    limits: &FrameLimits,
) -> Result<Vec<NewEvent>, HttpError> {
    let mut parser = LineParser { bus, limits, events: Vec::new(), lines: 0 };
    let mut partial = BytesMut::new();
    while let Some(mut chunk) = body.next().await? {
        while let Some(end) = memchr(b'\n', &chunk) {
            let rest = chunk.split_to(end);
            chunk.advance(1);
            if partial.is_empty() {
                parser.push(&rest)?;
            } else {
                partial.extend_from_slice(&rest);
                parser.push(&partial.split().freeze())?;
            }
        }
        partial.extend_from_slice(&chunk);
    }
    parser.push(&partial.freeze())?;
    Ok(parser.events)
}

struct LineParser<'a> {
    bus: &'a Bus,
    limits: &'a FrameLimits,
    events: Vec<NewEvent>,
    /// Lines seen, including blank ones.
    lines: usize,
}

impl LineParser<'_> {
    fn push(&mut self, line: &Bytes) -> Result<(), HttpError> {
        self.lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let at_line = |error: HttpError| error.with_context(format_args!("line {}", self.lines));
        if self.events.len() == MAX_BATCH_EVENTS {
            let message = format!("more than the {MAX_BATCH_EVENTS} events allowed in one request");
            return Err(at_line(HttpError::new(ErrorCode::PayloadTooLarge, message)));
        }
        let event = parse_event_line(line, self.limits).map_err(|error| at_line(error.into()))?;
        self.bus.check_ts(&event).map_err(|refusal| at_line(refusal.into()))?;
        self.events.push(event);
        Ok(())
    }
}

impl PublishedBatch {
    fn new(positions: &[Position]) -> Self {
        let seqs = || positions.iter().map(|position| position.seq);
        Self {
            count: positions.len(),
            duplicates: positions.iter().filter(|position| position.duplicate).count(),
            first_seq: seqs().min(),
            last_seq: seqs().max(),
        }
    }
}

fn reject_single_event_parameters(query: &QueryParams) -> Result<(), HttpError> {
    match ["key", "id", "ts"].into_iter().find(|name| query.text(name).is_some()) {
        Some(name) => Err(invalid(name, "applies to a single payload; set it in each line")),
        None => Ok(()),
    }
}
