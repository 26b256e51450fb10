//! The frames of the WebSocket protocol: JSON text to types and back. No I/O.
//!
//! - `auth`, `publish`, `subscribe`, `ack`, `nack`, `modack`, `seen`, `mark`: one client operation
//!   each; `membership` is shared by UNSUBSCRIBE, PAUSE and RESUME
//! - `event_fields`: the event inside a PUBLISH or an ACK
//! - `ids`: the `id` or `ids` of a frame
//! - `corr`: the correlation id that an answer repeats
//! - `unframed`: events without a frame, as HTTP accepts them
//! - [`answer`]: writes the server's frames; `server_frame`: reads them, for clients
//! - `end_reason`: why the server ended a subscription
//! - `error`: why a frame cannot be accepted
//! - `field`: typed access to the members of a frame
//! - `json` on top of `json_scan`: reads JSON in place; `write`: appends JSON
//!
//! Unknown members are ignored, whatever their value. Of a repeated member, the last one wins.
//! `null` means absent, except as a payload.

mod ack;
pub mod answer;
mod auth;
mod corr;
mod end_reason;
mod error;
mod event_fields;
mod field;
mod ids;
mod json;
mod json_scan;
mod mark;
mod membership;
mod modack;
mod nack;
mod publish;
mod seen;
mod server_frame;
mod subscribe;
mod unframed;
pub(crate) mod write;

use bytes::Bytes;

pub use ack::Ack;
pub use auth::{Auth, Token};
pub use corr::Corr;
pub use end_reason::EndReason;
pub use error::FrameError;
pub use ids::Ids;
pub(crate) use json::{Json, lone_value};
pub use mark::{AckMark, Mark};
pub use membership::Membership;
pub use modack::ModAck;
pub use nack::{AfterNack, Nack};
pub use publish::{Publish, PublishEvents};
pub use seen::Seen;
pub use server_frame::{JoinedGroup, Outcome, Published, ServerFrame};
pub use subscribe::{StartFrom, Subscribe, SubscribeOptions};
pub use unframed::{parse_event_line, parse_payload};

use crate::ErrorCode;
use crate::limits::MAX_PAYLOAD_BYTES;
use event_fields::EventReader;
use json::Cursor;

/// A frame from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFrame {
    /// The correlation id that the answer repeats, if any.
    pub corr: Option<Corr>,
    /// The requested operation.
    pub op: ClientOp,
}

/// A client operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOp {
    /// Authenticates the connection.
    Auth(Auth),
    /// Stores events.
    Publish(Publish),
    /// Joins a consumer group on a topic.
    Subscribe(Subscribe),
    /// Leaves a consumer group.
    Unsubscribe(Membership),
    /// Completes deliveries.
    Ack(Ack),
    /// Ends leases of events that failed.
    Nack(Nack),
    /// Moves the deadline of a lease.
    ModAck(ModAck),
    /// Stops deliveries to a subscription until RESUME.
    Pause(Membership),
    /// Restarts deliveries after PAUSE.
    Resume(Membership),
    /// Asks which events are marked as handled.
    Seen(Seen),
    /// Marks events as handled.
    Mark(Mark),
}

/// The limits that a server can configure.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// The largest payload accepted, in bytes.
    pub max_payload_bytes: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { max_payload_bytes: MAX_PAYLOAD_BYTES }
    }
}

json::members! {
    /// The members of a client's frame, whatever its operation.
    Members {
        op = "op",
        corr = "corr",
        token = "token",
        topic = "topic",
        group = "group",
        payload = "payload",
        opts = "opts",
        events = "events",
        id = "id",
        ids = "ids",
        publish = "publish",
        reason = "reason",
        delay_ms = "delay_ms",
        dead = "dead",
        extend_ms = "extend_ms",
        mark = "mark",
        ttl_ms = "ttl_ms",
    }
}

impl ClientFrame {
    /// Parses a frame. Payloads stay slices of it.
    ///
    /// # Errors
    ///
    /// `bad_json` if it is not JSON, `unknown_op`, `bad_topic`, `bad_group` or `payload_too_large`
    /// for those members, `bad_frame` for every other violation of the protocol.
    pub fn parse(frame: &Bytes, limits: &FrameLimits) -> Result<Self, FrameError> {
        Self::parse_text(text_of(frame).map_err(FrameError::bad_json)?, frame, limits)
    }

    /// Like [`ClientFrame::parse`], for a caller that has already validated the UTF-8: `text` must
    /// be the bytes of `frame`.
    ///
    /// # Errors
    ///
    /// As [`ClientFrame::parse`].
    ///
    /// # Panics
    ///
    /// May panic if `text` is not a slice of `frame`.
    pub fn parse_text(text: &str, frame: &Bytes, limits: &FrameLimits) -> Result<Self, FrameError> {
        let mut cursor = cursor_at_object(text)?;
        let mut members = Members::default();
        members.read(&mut cursor)?;
        cursor.end()?;
        let corr = Corr::read(frame, members.corr)?;
        match ClientOp::read(&members, EventReader { frame, limits }) {
            Ok(op) => Ok(Self { corr, op }),
            Err(error) => Err(error.answering(corr)),
        }
    }

    /// Appends the frame's JSON: `op`, `corr`, then the operation's own members.
    pub fn write(&self, out: &mut Vec<u8>) {
        write::raw(out, "{\"op\":");
        write::name(out, self.op.name());
        write::corr(out, self.corr.as_ref());
        self.op.write_members(out);
        out.push(b'}');
    }
}

impl ClientOp {
    /// The `op` of every client operation.
    pub const NAMES: &'static [&'static str] = &[
        "AUTH",
        "PUBLISH",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "ACK",
        "NACK",
        "MODACK",
        "PAUSE",
        "RESUME",
        "SEEN",
        "MARK",
    ];

    /// Returns the operation's `op` on the wire.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Auth(_) => "AUTH",
            Self::Publish(_) => "PUBLISH",
            Self::Subscribe(_) => "SUBSCRIBE",
            Self::Unsubscribe(_) => "UNSUBSCRIBE",
            Self::Ack(_) => "ACK",
            Self::Nack(_) => "NACK",
            Self::ModAck(_) => "MODACK",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Seen(_) => "SEEN",
            Self::Mark(_) => "MARK",
        }
    }

    fn read(members: &Members<'_>, reader: EventReader<'_>) -> Result<Self, FrameError> {
        Ok(match &*field::required_text("op", members.op)? {
            "PUBLISH" => Self::Publish(Publish::read(members, reader)?),
            "ACK" => Self::Ack(Ack::read(members, reader)?),
            "NACK" => Self::Nack(Nack::read(members)?),
            "MODACK" => Self::ModAck(ModAck::read(members)?),
            "SUBSCRIBE" => Self::Subscribe(Subscribe::read(members)?),
            "UNSUBSCRIBE" => Self::Unsubscribe(Membership::read(members)?),
            "PAUSE" => Self::Pause(Membership::read(members)?),
            "RESUME" => Self::Resume(Membership::read(members)?),
            "SEEN" => Self::Seen(Seen::read(members)?),
            "MARK" => Self::Mark(Mark::read(members)?),
            "AUTH" => Self::Auth(Auth::read(members)?),
            unknown => return Err(unknown_op(unknown)),
        })
    }

    fn write_members(&self, out: &mut Vec<u8>) {
        match self {
            Self::Auth(auth) => auth.write_members(out),
            Self::Publish(publish) => publish.write_members(out),
            Self::Subscribe(subscribe) => subscribe.write_members(out),
            Self::Unsubscribe(membership) | Self::Pause(membership) | Self::Resume(membership) => {
                membership.write_members(out);
            }
            Self::Ack(ack) => ack.write_members(out),
            Self::Nack(nack) => nack.write_members(out),
            Self::ModAck(modack) => modack.write_members(out),
            Self::Seen(seen) => seen.write_members(out),
            Self::Mark(mark) => mark.write_members(out),
        }
    }
}

fn unknown_op(op: &str) -> FrameError {
    let shown = &op[..op.floor_char_boundary(40)];
    let msg = format_args!("unknown operation {shown:?} (operations are upper-case)");
    FrameError::new(ErrorCode::UnknownOp, msg)
}

/// Returns a cursor at the object that a frame has to be.
fn cursor_at_object(text: &str) -> Result<Cursor<'_>, FrameError> {
    let cursor = Cursor::new(text);
    if cursor.is_at_object() {
        return Ok(cursor);
    }
    // Any other JSON value is a bad frame; everything else is not even JSON.
    let mut cursor = cursor;
    cursor.value()?;
    cursor.end()?;
    Err(FrameError::bad_frame("a frame must be a JSON object"))
}

fn text_of(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes)
        .map_err(|error| format!("invalid UTF-8 at byte {}", error.valid_up_to()))
}

#[cfg(test)]
mod tests;
