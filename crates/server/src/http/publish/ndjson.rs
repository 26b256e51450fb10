//! Many events, one per line (NDJSON), stored all or none.

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use prombus_bus::{
    Bus, Connection, Metrics, NdjsonStage, Position, Principal, PublishBatch, Refusal,
};
use prombus_proto::frame::parse_event_line;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use prombus_proto::{ErrorCode, FrameLimits, NewEvent, Seq, Topic};
use serde::Serialize;

use super::event_headers;
use super::shared_memory::{Room, SharedMemory};
use crate::http::body::RequestBody;
use crate::http::error::HttpError;
use crate::http::query::{QueryParams, invalid};
use crate::http::{HttpState, response};

/// Memory of the NDJSON requests of all connections. A request is buffered whole until it is stored.
pub(in crate::http) struct NdjsonMemory {
    receiving: SharedMemory,
    /// For requests that were received. Waiting for tokens may take minutes, and must not hold up those that
    /// arrive.
    waiting: SharedMemory,
}

/// A request has memory for this much more than it has received: a slow one does not hold much.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// When to retry a request that may not wait for tokens.
const RETRY_TIME: Duration = Duration::from_secs(5);

impl NdjsonMemory {
    pub(in crate::http) fn new(bytes: usize, metrics: &Metrics) -> Self {
        let half = |stage| SharedMemory::new(bytes / 2, metrics.ndjson_memory(stage));
        Self { receiving: half(NdjsonStage::Receiving), waiting: half(NdjsonStage::Waiting) }
    }
}

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
    caller: Principal,
    topic: &Topic,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    reject_single_event_parameters(&QueryParams::parse(&head.uri, &["key", "id", "ts"])?)?;
    if !event_headers::parse(&head.headers)?.is_empty() {
        let message = "X-Event headers apply to a single payload; set headers in each line";
        return Err(HttpError::new(ErrorCode::BadFrame, message));
    }
    let stall_timeout = http.gateway.settings.slow_consumer_timeout;
    let body = RequestBody::new(&head.headers, body, MAX_BATCH_BYTES, stall_timeout)?;
    let limits = FrameLimits { max_payload_bytes: http.gateway.settings.max_frame_bytes };
    let mut received = http.ndjson_memory.receiving.room(caller.clone());
    let events = read_events(body, &mut received, http.bus(), &limits).await?;
    if events.is_empty() {
        return Ok(response::json(&PublishedBatch::new(&[])));
    }
    let mut batch = PublishBatch::new();
    // Kept until the events are stored.
    let _room = match http.ndjson_memory.waiting.try_room(caller, received.bytes()) {
        Some(waiting) => {
            drop(received);
            batch.push_paced(http.bus(), connection, topic, events).await?;
            waiting
        }
        None => {
            batch
                .push(http.bus(), connection, topic, events.into_iter())
                .map_err(no_room_to_wait)?;
            received
        }
    };
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

/// Reads only as fast as `room` grows.
async fn read_events(
    mut body: RequestBody,
    room: &mut Room<'_>,
    bus: &Bus,
    limits: &FrameLimits,
) -> Result<Vec<NewEvent>, HttpError> {
    let mut parser = LineParser { bus, limits, events: Vec::new(), lines: 0 };
    let mut partial = BytesMut::new();
    let mut received = 0;
    // The events, and the encoded ones that are made of them.
    let held = |received, events: &Vec<_>| 2 * (received + size_of_val(events.as_slice()));
    loop {
        room.grow_to(held(received, &parser.events) + READ_AHEAD_BYTES).await;
        let Some(mut chunk) = body.next_by(room.ends_at()).await? else { break };
        received += chunk.len();
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
    room.shrink_to(held(received, &parser.events));
    Ok(parser.events)
}

/// The request may not wait for its tokens, because too many others do.
fn no_room_to_wait(mut refusal: Refusal) -> Refusal {
    if refusal.code == ErrorCode::RateLimited {
        // Also if it asks for more tokens than there ever are at once: it may wait for them then.
        refusal.retry_after.get_or_insert(RETRY_TIME);
    }
    refusal
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
