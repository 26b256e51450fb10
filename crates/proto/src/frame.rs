//! The frames of the WebSocket gateway: JSON text in and out. No I/O.
//!
//! | idea | file |
//! |---|---|
//! | what a client sends, one file an operation | `auth`, `publish`, `subscribe`, `ack`, `nack`, `modack`, `seen`, `mark`; `membership` for UNSUBSCRIBE, PAUSE and RESUME |
//! | the event within | `event_in` |
//! | which events it is about | `ids` |
//! | the same without a frame around it, as HTTP takes it | `event_alone` |
//! | the mark that an answer repeats | `corr` |
//! | why a frame is refused | `error` |
//! | what the server sends, written | [`answer`] |
//! | the same, read by a client | `server_frame` |
//! | what a member has to be | `field` |
//! | JSON read in place, and written | `json` on top of `json_scan`, `write` |
//!
//! Unknown members are ignored whatever they are, of doubled ones the last counts, and `null`
//! stands for an absent one, except as a payload.

mod ack;
pub mod answer;
mod auth;
mod corr;
mod error;
mod event_alone;
mod event_in;
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
pub(crate) mod write;

use bytes::Bytes;

pub use ack::Ack;
pub use auth::{Auth, Token};
pub use corr::Corr;
pub use error::FrameError;
pub use event_alone::{parse_event_line, parse_payload};
pub use ids::Ids;
pub(crate) use json::{Json, lone_value};
pub use mark::{AckMark, Mark};
pub use membership::Membership;
pub use modack::ModAck;
pub use nack::Nack;
pub use publish::{Publish, PublishEvents};
pub use seen::Seen;
pub use server_frame::{Outcome, Published, ServerFrame};
pub use subscribe::{StartFrom, Subscribe, SubscribeOptions};

use crate::ErrorCode;
use crate::limits::MAX_PAYLOAD_BYTES;
use event_in::Source;
use json::Cursor;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFrame {
    /// What the answer repeats.
    pub corr: Option<Corr>,
    /// What to do.
    pub op: ClientOp,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOp {
    /// Say who this is.
    Auth(Auth),
    /// Store events.
    Publish(Publish),
    /// Follow a topic.
    Subscribe(Subscribe),
    /// Follow it no longer.
    Unsubscribe(Membership),
    /// End leases: done.
    Ack(Ack),
    /// End a lease: not done.
    Nack(Nack),
    /// Change when a lease ends.
    ModAck(ModAck),
    /// Deliver nothing for a while.
    Pause(Membership),
    /// Deliver again.
    Resume(Membership),
    /// Ask what is marked as handled.
    Seen(Seen),
    /// Mark as handled.
    Mark(Mark),
}

/// What configuration has a say in.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// The size of one payload.
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
        extend_ms = "extend_ms",
        mark = "mark",
        ttl_ms = "ttl_ms",
    }
}

impl ClientFrame {
    /// Reads a frame. Payloads stay slices of it.
    pub fn parse(frame: &Bytes, limits: &FrameLimits) -> Result<Self, FrameError> {
        Self::parse_text(text_of(frame).map_err(FrameError::bad_json)?, frame, limits)
    }

    /// As [`ClientFrame::parse`], where `text` is known to be what `frame` has.
    ///
    /// # Panics
    ///
    /// May panic where it is not.
    pub fn parse_text(text: &str, frame: &Bytes, limits: &FrameLimits) -> Result<Self, FrameError> {
        let mut cursor = cursor_at_object(text)?;
        let mut members = Members::default();
        members.read(&mut cursor)?;
        cursor.end()?;
        let corr = Corr::read(frame, members.corr)?;
        match ClientOp::read(&members, Source { frame, limits }) {
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
    /// The words for all of them on the wire.
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

    /// The word for it on the wire.
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

    fn read(members: &Members<'_>, source: Source<'_>) -> Result<Self, FrameError> {
        Ok(match &*field::required_text("op", members.op)? {
            "PUBLISH" => Self::Publish(Publish::read(members, source)?),
            "ACK" => Self::Ack(Ack::read(members, source)?),
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
    let msg = format_args!("no operation is called {shown:?} (operations are upper-case)");
    FrameError::new(ErrorCode::UnknownOp, msg)
}

/// The text of a frame, at the object that it has to be.
fn cursor_at_object(text: &str) -> Result<Cursor<'_>, FrameError> {
    let cursor = Cursor::new(text);
    if cursor.is_at_object() {
        return Ok(cursor);
    }
    // JSON of another kind is a bad frame; anything else is not even JSON.
    let mut cursor = cursor;
    cursor.value()?;
    cursor.end()?;
    Err(FrameError::bad_frame("a frame must be a JSON object"))
}

fn text_of(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))
}

#[cfg(test)]
mod tests;
