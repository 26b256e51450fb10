//! Many events, one a line as export writes them (NDJSON); all are stored or none.

use axum::extract::Request;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use prombus_bus::{Connection, Position};
use prombus_proto::frame::parse_event_line;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use prombus_proto::{ErrorCode, FrameLimits, NewEvent, Seq, Topic};
use serde::Serialize;

use super::event_headers;
use crate::http::body::RequestBody;
use crate::http::error::HttpError;
use crate::http::query::{Query, bad};
use crate::http::{Http, answer};

#[derive(Serialize)]
struct Stored {
    count: usize,
    duplicates: usize,
    first_seq: Option<Seq>,
    last_seq: Option<Seq>,
}

pub(super) async fn publish(
    http: &Http,
    connection: &Connection,
    topic: &Topic,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    refuse_what_lines_say(&Query::read(&head.uri, &["key", "id", "ts"])?)?;
    if !event_headers::read(&head.headers)?.is_empty() {
        let message = "X-Event headers are for a single payload; a line has its own headers";
        return Err(HttpError::new(ErrorCode::BadFrame, message));
    }
    let body = RequestBody::new(&head.headers, body, MAX_BATCH_BYTES)?;
    // Nothing is read before there is room for it.
    let _room = http.many_events.acquire_many(body.max_bytes()).await;
    let limits = FrameLimits { max_payload_bytes: http.gateway.settings.max_frame_bytes };
    let events = read(body, &limits).await?;
    if events.is_empty() {
        return Ok(answer::json(&Stored::of(&[])));
    }
    let prepared = http.bus().prepare_in_turn(connection, topic, events).await?;
    if prepared.bytes() > MAX_BATCH_BYTES {
        let message = format!(
            "the events have {} bytes with all that belongs to them, more than the \
             {MAX_BATCH_BYTES} allowed in one request",
            prepared.bytes()
        );
        return Err(HttpError::new(ErrorCode::PayloadTooLarge, message));
    }
    let positions = http.bus().submit(prepared).await?.stored().await?;
    Ok(answer::json(&Stored::of(&positions)))
}

/// The events of all lines.
async fn read(mut body: RequestBody, limits: &FrameLimits) -> Result<Vec<NewEvent>, HttpError> {
    let mut events = Events { limits, events: Vec::new(), lines: 0 };
    let mut begun = BytesMut::new();
    while let Some(mut chunk) = body.next().await? {
        while let Some(end) = memchr(b'\n', &chunk) {
            let rest = chunk.split_to(end);
            chunk.advance(1);
            if begun.is_empty() {
                events.take(&rest)?;
            } else {
                begun.extend_from_slice(&rest);
                events.take(&begun.split().freeze())?;
            }
        }
        begun.extend_from_slice(&chunk);
    }
    events.take(&begun.freeze())?;
    Ok(events.events)
}

struct Events<'a> {
    limits: &'a FrameLimits,
    events: Vec<NewEvent>,
    lines: usize,
}

impl Events<'_> {
    fn take(&mut self, line: &Bytes) -> Result<(), HttpError> {
        self.lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let at_line = |error: HttpError| error.within(format_args!("line {}", self.lines));
        if self.events.len() == MAX_BATCH_EVENTS {
            let message = format!("more than the {MAX_BATCH_EVENTS} events allowed in one request");
            return Err(at_line(HttpError::new(ErrorCode::PayloadTooLarge, message)));
        }
        let event = parse_event_line(line, self.limits).map_err(|error| at_line(error.into()))?;
        self.events.push(event);
        Ok(())
    }
}

impl Stored {
    fn of(positions: &[Position]) -> Self {
        let seqs = || positions.iter().map(|position| position.seq);
        Self {
            count: positions.len(),
            duplicates: positions.iter().filter(|position| position.duplicate).count(),
            first_seq: seqs().min(),
            last_seq: seqs().max(),
        }
    }
}

fn refuse_what_lines_say(query: &Query) -> Result<(), HttpError> {
    match ["key", "id", "ts"].into_iter().find(|name| query.text(name).is_some()) {
        Some(name) => Err(bad(name, "is for a single payload; a line has its own")),
        None => Ok(()),
    }
}
