//! The server's frames as a client reads them.

use std::borrow::Cow;
use std::num::NonZeroU32;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::corr::Corr;
use super::end_reason::EndReason;
use super::error::FrameError;
use super::json::{Cursor, Json, Malformed, members};
use super::{answer, cursor_at_object, field, text_of};
use crate::{ErrorCode, EventId, Group, Seq, Topic};

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// The operation succeeded.
    Ok {
        /// The `corr` of the answered frame.
        corr: Option<Corr>,
        /// The result of the operation.
        outcome: Outcome,
    },
    /// The operation failed.
    Err {
        /// The `corr` of the answered frame.
        corr: Option<Corr>,
        /// The stable error code. A code that this version does not know becomes `internal`, and is
        /// prefixed to `msg`.
        code: ErrorCode,
        /// The message for humans.
        msg: String,
        /// When a retry may succeed, in milliseconds from now; `None` if unknown.
        retry_after_ms: Option<u64>,
    },
    /// A delivery: an event on lease to this connection.
    Event {
        /// The topic of the event.
        topic: Topic,
        /// The group it is delivered to.
        group: Group,
        /// The event's JSON, see [`crate::Event::decode`]. A slice of the frame.
        event: Bytes,
        /// The number of this delivery to the group, from 1.
        attempt: u32,
        /// The time left on the lease, in milliseconds from now.
        ack_deadline_ms: u64,
    },
    /// A subscription of this connection is over although the client did not end it. Nothing more of it is
    /// delivered, and its leases are void.
    Ended {
        /// The topic of the subscription.
        topic: Topic,
        /// Its group.
        group: Group,
        /// Why it ended.
        reason: EndReason,
    },
}

/// The result of an operation that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with nothing more to say.
    Done,
    /// The published event's position.
    Published(Published),
    /// The positions of several published events, in the order of the request.
    Results(Vec<Published>),
    /// The lease had already ended, so nothing changed.
    Stale,
    /// Those of the requested ids that are marked.
    Seen(Vec<EventId>),
    /// The subscription is part of this group.
    Subscribed(JoinedGroup),
}

/// The group that a subscription joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedGroup {
    /// Failures of an event before it becomes a dead letter.
    pub max_attempts: u32,
    /// The group did not exist before.
    pub created: bool,
}

/// The position of a published event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The event's id; the bus assigns one if the publisher did not.
    pub id: EventId,
    /// Its position in the topic.
    pub seq: Seq,
    /// The event was already stored; `seq` is its first position.
    pub duplicate: bool,
}

members! {
    ServerMembers {
        op = "op",
        corr = "corr",
        id = "id",
        seq = "seq",
        duplicate = "duplicate",
        results = "results",
        stale = "stale",
        seen = "seen",
        code = "code",
        msg = "msg",
        retry_after_ms = "retry_after_ms",
        topic = "topic",
        group = "group",
        event = "event",
        ctx = "ctx",
        reason = "reason",
    }
}

members! {
    ContextMembers { attempt = "attempt", ack_deadline_ms = "ack_deadline_ms", }
}

members! {
    GroupMembers { max_attempts = "max_attempts", created = "created", }
}

members! {
    PublishedMembers { id = "id", seq = "seq", duplicate = "duplicate", }
}

impl ServerFrame {
    /// The `op` of every server frame.
    pub const NAMES: &'static [&'static str] = &["OK", "ERR", "EVENT", "ENDED"];

    /// Parses a frame. The event stays a slice of it.
    ///
    /// # Errors
    ///
    /// `bad_json`, `bad_frame` or `unknown_op` if `frame` is not a server frame of this protocol.
    pub fn parse(frame: &Bytes) -> Result<Self, FrameError> {
        let mut cursor = cursor_at_object(text_of(frame).map_err(FrameError::bad_json)?)?;
        let mut members = ServerMembers::default();
        match members.read(&mut cursor) {
            Ok(()) => {}
            Err(malformed @ Malformed::TooDeep { .. }) => {
                return Self::read_deep_event(frame).ok_or_else(|| malformed.into());
            }
            Err(malformed) => return Err(malformed.into()),
        }
        cursor.end()?;
        let corr = Corr::read(frame, members.corr)?;
        match &*field::required_text("op", members.op)? {
            "OK" => Ok(Self::Ok { corr, outcome: Outcome::read(&members)? }),
            "ERR" => Self::read_err(&members, corr),
            "EVENT" => Self::read_event(&members, frame),
            "ENDED" => Ok(Self::Ended {
                topic: field::topic(members.topic)?,
                group: field::group(members.group)?,
                reason: EndReason::parse(&field::required_text("reason", members.reason)?),
            }),
            unknown => Err(super::unknown_op(unknown)),
        }
    }

    /// Appends the frame's JSON. [`answer`] documents the order of members.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok { corr, outcome } => outcome.write(out, corr.as_ref()),
            Self::Err { corr, code, msg, retry_after_ms } => {
                answer::write_err(out, *code, msg, corr.as_ref(), *retry_after_ms);
            }
            Self::Event { topic, group, event, attempt, ack_deadline_ms } => {
                answer::write_event(
                    out,
                    topic,
                    group,
                    |out| out.extend_from_slice(event),
                    *attempt,
                    *ack_deadline_ms,
                );
            }
            Self::Ended { topic, group, reason } => answer::write_ended(out, topic, group, *reason),
        }
    }

    fn read_err(members: &ServerMembers<'_>, corr: Option<Corr>) -> Result<Self, FrameError> {
        let word = field::required_text("code", members.code)?;
        let msg = field::required_text("msg", members.msg)?;
        let (code, msg) = match ErrorCode::parse(&word) {
            Some(code) => (code, msg.into_owned()),
            None => (ErrorCode::Internal, format!("{word}: {msg}")),
        };
        let retry_after_ms = field::number("retry_after_ms", members.retry_after_ms, 0..=u64::MAX)?;
        Ok(Self::Err { corr, code, msg, retry_after_ms })
    }

    fn read_event(members: &ServerMembers<'_>, frame: &Bytes) -> Result<Self, FrameError> {
        let object = |name: &str, member: Option<Json<'_>>| match member {
            Some(value) if value.cursor().is_at_object() => Ok(()),
            _ => Err(FrameError::bad_frame(format_args!("{name} must be an object"))),
        };
        object("event", members.event)?;
        object("ctx", members.ctx)?;
        let event = members.event.map_or("", Json::raw);
        let mut cursor = Cursor::new(members.ctx.map_or("", Json::raw));
        let mut ctx = ContextMembers::default();
        ctx.read(&mut cursor)?;
        let attempt = field::count("ctx.attempt", ctx.attempt, u32::MAX)?;
        let missing = || FrameError::bad_frame("ctx.attempt is missing");
        let left = ctx.ack_deadline_ms;
        Ok(Self::Event {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            event: frame.slice_ref(event.as_bytes()),
            attempt: attempt.ok_or_else(missing)?,
            ack_deadline_ms: field::required_number("ctx.ack_deadline_ms", left, 0..=u64::MAX)?,
        })
    }
}

impl ServerFrame {
    /// Reads a delivery that nests deeper than the scanner goes: its event is from an older version
    /// without a limit for payloads, or the dead letter of one. `serde_json` skips values of any depth.
    fn read_deep_event(frame: &Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        struct Delivery<'a> {
            op: Cow<'a, str>,
            topic: Topic,
            group: Group,
            #[serde(borrow)]
            event: &'a RawValue,
            ctx: Context,
        }
        #[derive(Deserialize)]
        struct Context {
            attempt: NonZeroU32,
            ack_deadline_ms: u64,
        }
        let read: Delivery<'_> = serde_json::from_slice(frame).ok()?;
        let Context { attempt, ack_deadline_ms } = read.ctx;
        let event = read.event.get();
        (read.op == "EVENT" && event.starts_with('{')).then(|| Self::Event {
            topic: read.topic,
            group: read.group,
            event: frame.slice_ref(event.as_bytes()),
            attempt: attempt.get(),
            ack_deadline_ms,
        })
    }
}

impl Outcome {
    fn read(members: &ServerMembers<'_>) -> Result<Self, FrameError> {
        if let Some(results) = field::present(members.results) {
            let read = |index, cursor: &mut Cursor<'_>| {
                if !cursor.is_at_object() {
                    let msg = format_args!("results[{index}] must be an object");
                    return Err(FrameError::bad_frame(msg));
                }
                let mut published = PublishedMembers::default();
                published.read(cursor)?;
                Published::read(&published)
                    .map_err(|error| error.within(format_args!("results[{index}]")))
            };
            let results = field::list("results", "objects", results, 0..=usize::MAX, read)?;
            return Ok(Self::Results(results));
        }
        if let Some(seen) = field::present(members.seen) {
            let read =
                |index, cursor: &mut Cursor<'_>| field::event_id_in("seen", index, cursor.value()?);
            return Ok(Self::Seen(field::list("seen", "event ids", seen, 0..=usize::MAX, read)?));
        }
        if field::present(members.id).is_some() {
            let (id, seq, duplicate) = (members.id, members.seq, members.duplicate);
            return Ok(Self::Published(Published::read(&PublishedMembers { id, seq, duplicate })?));
        }
        if let Some(group) = field::present(members.group) {
            return Ok(Self::Subscribed(JoinedGroup::read(group)?));
        }
        Ok(if is_true(members.stale) { Self::Stale } else { Self::Done })
    }

    fn write(&self, out: &mut Vec<u8>, corr: Option<&Corr>) {
        match self {
            Self::Done => answer::write_ok(out, corr),
            Self::Stale => answer::write_stale(out, corr),
            Self::Seen(seen) => answer::write_seen(out, corr, seen),
            Self::Subscribed(group) => answer::write_subscribed(out, corr, *group),
            Self::Published(Published { id, seq, duplicate }) => {
                answer::write_published(out, corr, id, *seq, *duplicate);
            }
            Self::Results(results) => {
                let results =
                    results.iter().map(|result| (&result.id, result.seq, result.duplicate));
                answer::write_results(out, corr, results);
            }
        }
    }
}

impl JoinedGroup {
    fn read(group: Json<'_>) -> Result<Self, FrameError> {
        let mut cursor = group.cursor();
        if !cursor.is_at_object() {
            return Err(FrameError::bad_frame("group must be an object"));
        }
        let mut members = GroupMembers::default();
        members.read(&mut cursor)?;
        let max_attempts = field::count("group.max_attempts", members.max_attempts, u32::MAX)?;
        let missing = || FrameError::bad_frame("group.max_attempts is missing");
        Ok(Self {
            max_attempts: max_attempts.ok_or_else(missing)?,
            created: is_true(members.created),
        })
    }
}

impl Published {
    fn read(members: &PublishedMembers<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            id: field::required_event_id("id", members.id)?,
            seq: Seq(field::required_number("seq", members.seq, 0..=u64::MAX)?),
            duplicate: is_true(members.duplicate),
        })
    }
}

fn is_true(member: Option<Json<'_>>) -> bool {
    member.is_some_and(|value| value.raw() == "true")
}
