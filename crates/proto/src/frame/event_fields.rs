//! The fields of an incoming event, `payload` and `opts`: the same in PUBLISH, in its `events` and in
//! an ACK's `publish`.

use bytes::Bytes;

use super::error::FrameError;
use super::json::{Cursor, Json, members};
use super::{FrameLimits, field, write};
use crate::limits::{MAX_HEADERS, MAX_PAYLOAD_NESTING};
use crate::{ErrorCode, Headers, Key, NewEvent, Payload, Timestamp};

members! {
    /// One element of a list of events.
    EventMembers { topic = "topic", payload = "payload", opts = "opts", }
}

members! {
    /// The `opts` of an event.
    OptMembers {
        id = "id",
        ts = "ts",
        key = "key",
        headers = "headers",
        tags = "tags",
        caused_by = "caused_by",
        sid = "sid",
    }
}

/// Builds events from parsed members. Payloads are sliced out of `frame`.
#[derive(Clone, Copy)]
pub(super) struct EventReader<'a> {
    pub(super) frame: &'a Bytes,
    pub(super) limits: &'a FrameLimits,
}

impl<'a> EventMembers<'a> {
    /// Reads the element at `cursor`, the one at `index` of `list`.
    pub(super) fn at(
        cursor: &mut Cursor<'a>,
        list: &str,
        index: usize,
    ) -> Result<Self, FrameError> {
        if !cursor.is_at_object() {
            let msg = format_args!("{list}[{index}] must be an object with a payload");
            return Err(FrameError::bad_frame(msg));
        }
        let mut members = Self::default();
        members.read(cursor)?;
        Ok(members)
    }
}

impl EventReader<'_> {
    pub(super) fn event(
        self,
        payload: Option<Json<'_>>,
        opts: Option<Json<'_>>,
    ) -> Result<NewEvent, FrameError> {
        let mut event = NewEvent::of(self.payload(payload)?);
        if let Some(opts) = field::present(opts) {
            let mut cursor = opts.cursor();
            if !cursor.is_at_object() {
                return Err(FrameError::bad_frame("opts must be an object"));
            }
            let mut opts = OptMembers::default();
            opts.read(&mut cursor)?;
            fill(&opts, &mut event).map_err(|error| error.within("opts"))?;
        }
        Ok(event)
    }

    pub(super) fn payload(self, payload: Option<Json<'_>>) -> Result<Payload, FrameError> {
        let Some(payload) = payload else {
            return Err(FrameError::bad_frame("payload is missing"));
        };
        let (size, limit) = (payload.raw().len(), self.limits.max_payload_bytes);
        if size > limit {
            let msg = format_args!("payload has {size} bytes; the limit is {limit}");
            return Err(FrameError::new(ErrorCode::PayloadTooLarge, msg));
        }
        let (nesting, limit) = (payload.nesting(), MAX_PAYLOAD_NESTING);
        if nesting > limit {
            let msg = format_args!("payload nests {nesting} levels; the limit is {limit}");
            return Err(FrameError::bad_frame(msg));
        }
        Ok(Payload::within(self.frame, payload))
    }
}

/// Sets the fields of `event` from `members`.
pub(super) fn fill(members: &OptMembers<'_>, event: &mut NewEvent) -> Result<(), FrameError> {
    if let Some(id) = field::present(members.id) {
        event.id = Some(field::event_id("id", id)?);
    }
    event.ts = field::number("ts", members.ts, 0..=u64::MAX)?.map(Timestamp);
    if let Some(key) = field::present(members.key) {
        let wrong = |reason| FrameError::bad_frame(format_args!("key: {reason}"));
        event.key = Some(Key::new(&field::text("key", key)?).map_err(wrong)?);
    }
    if let Some(headers) = field::present(members.headers) {
        event.headers = read_headers(headers)?;
    }
    if let Some(tags) = field::present(members.tags) {
        event.tags = field::list("tags", "strings", tags, 0..=usize::MAX, |index, cursor| {
            let tag = cursor.value()?;
            let wrong = || FrameError::bad_frame(format_args!("tags[{index}] must be a string"));
            tag.text().map(String::from).ok_or_else(wrong)
        })?;
    }
    if let Some(ids) = field::present(members.caused_by) {
        event.caused_by =
            field::list("caused_by", "event ids", ids, 0..=usize::MAX, |index, cursor| {
                field::event_id_in("caused_by", index, cursor.value()?)
            })?;
    }
    if let Some(sid) = field::present(members.sid) {
        event.sid = Some(field::text("sid", sid)?.into_owned());
    }
    Ok(())
}

fn read_headers(value: Json<'_>) -> Result<Headers, FrameError> {
    serde_json::from_str(value.raw()).map_err(|_| {
        FrameError::bad_frame(format_args!(
            "headers must be an object with at most {MAX_HEADERS} members, each a string"
        ))
    })
}

/// Appends `,"payload":…` and `,"opts":…`.
pub(super) fn write_members(out: &mut Vec<u8>, event: &NewEvent) {
    write::member(out, "payload");
    out.extend_from_slice(event.payload.as_bytes());
    write::object_unless_empty(out, "opts", |out| {
        if let Some(id) = &event.id {
            write::member(out, "id");
            write::event_id(out, id);
        }
        if let Some(ts) = event.ts {
            write::member(out, "ts");
            write::number(out, ts.0);
        }
        if let Some(key) = &event.key {
            write::member(out, "key");
            write::text(out, key.as_str());
        }
        if !event.headers.is_empty() {
            write::member(out, "headers");
            write::value(out, &event.headers);
        }
        if !event.tags.is_empty() {
            write::member(out, "tags");
            write::value(out, &event.tags);
        }
        if !event.caused_by.is_empty() {
            write::member(out, "caused_by");
            write::value(out, &event.caused_by);
        }
        if let Some(sid) = &event.sid {
            write::member(out, "sid");
            write::text(out, sid);
        }
    });
}
