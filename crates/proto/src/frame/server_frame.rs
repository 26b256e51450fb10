//! What the server sends, as a client reads it.

use bytes::Bytes;

use super::corr::Corr;
use super::error::FrameError;
use super::json::{Cursor, Json, members};
use super::{answer, cursor_at_object, field, text_of};
use crate::{ErrorCode, EventId, Group, Seq, Topic};

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// Done.
    Ok {
        /// The mark of the frame it answers.
        corr: Option<Corr>,
        /// What came of it.
        outcome: Outcome,
    },
    /// Refused.
    Err {
        /// The mark of the frame it answers.
        corr: Option<Corr>,
        /// The stable word. One that this version does not know is `internal`, and begins `msg`.
        code: ErrorCode,
        /// The sentence.
        msg: String,
        /// When trying again may help.
        retry_after_ms: Option<u64>,
    },
    /// An event on lease.
    Event {
        /// Where it is.
        topic: Topic,
        /// For whom it is.
        group: Group,
        /// Its JSON, as [`crate::Event::decode`] reads it.
        event: Bytes,
        /// Which delivery to this group it is, from 1.
        attempt: u32,
        /// How long the lease lasts from now.
        ack_deadline_ms: u64,
    },
}

/// What came of a frame that was answered OK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Done,
    /// One event has its place.
    Published(Published),
    /// Several have theirs.
    Results(Vec<Published>),
    /// The lease was not there any more: no effect.
    Stale,
    /// Those of the ids asked for that are marked.
    Seen(Vec<EventId>),
}

/// Where a published event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its identity.
    pub id: EventId,
    /// Its place.
    pub seq: Seq,
    /// Whether it was there already.
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
    }
}

members! {
    ContextMembers { attempt = "attempt", ack_deadline_ms = "ack_deadline_ms", }
}

members! {
    PlaceMembers { id = "id", seq = "seq", duplicate = "duplicate", }
}

impl ServerFrame {
    /// The words for all of them on the wire.
    pub const NAMES: &'static [&'static str] = &["OK", "ERR", "EVENT"];

    /// Reads a frame. An event stays a slice of it.
    pub fn parse(frame: &Bytes) -> Result<Self, FrameError> {
        let mut cursor = cursor_at_object(text_of(frame).map_err(FrameError::bad_json)?)?;
        let mut members = ServerMembers::default();
        members.read(&mut cursor)?;
        cursor.end()?;
        let corr = Corr::read(frame, members.corr)?;
        match &*field::required_text("op", members.op)? {
            "OK" => Ok(Self::Ok { corr, outcome: Outcome::read(&members)? }),
            "ERR" => Self::read_err(&members, corr),
            "EVENT" => Self::read_event(&members, frame),
            unknown => Err(super::unknown_op(unknown)),
        }
    }

    /// Appends the frame's JSON, in the order that [`answer`] says.
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

impl Outcome {
    fn read(members: &ServerMembers<'_>) -> Result<Self, FrameError> {
        if let Some(results) = field::present(members.results) {
            let read = |index, cursor: &mut Cursor<'_>| {
                if !cursor.is_at_object() {
                    let msg = format_args!("results[{index}] must be an object");
                    return Err(FrameError::bad_frame(msg));
                }
                let mut place = PlaceMembers::default();
                place.read(cursor)?;
                Published::read(&place)
                    .map_err(|error| error.within(format_args!("results[{index}]")))
            };
            let results = field::list("results", "places", results, 0..=usize::MAX, read)?;
            return Ok(Self::Results(results));
        }
        if let Some(seen) = field::present(members.seen) {
            let read =
                |index, cursor: &mut Cursor<'_>| field::event_id_in("seen", index, cursor.value()?);
            return Ok(Self::Seen(field::list("seen", "event ids", seen, 0..=usize::MAX, read)?));
        }
        if field::present(members.id).is_some() {
            let (id, seq, duplicate) = (members.id, members.seq, members.duplicate);
            return Ok(Self::Published(Published::read(&PlaceMembers { id, seq, duplicate })?));
        }
        Ok(if is_true(members.stale) { Self::Stale } else { Self::Done })
    }

    fn write(&self, out: &mut Vec<u8>, corr: Option<&Corr>) {
        match self {
            Self::Done => answer::write_ok(out, corr),
            Self::Stale => answer::write_stale(out, corr),
            Self::Seen(seen) => answer::write_seen(out, corr, seen),
            Self::Published(Published { id, seq, duplicate }) => {
                answer::write_published(out, corr, id, *seq, *duplicate);
            }
            Self::Results(results) => {
                let places = results.iter().map(|place| (&place.id, place.seq, place.duplicate));
                answer::write_results(out, corr, places);
            }
        }
    }
}

impl Published {
    fn read(members: &PlaceMembers<'_>) -> Result<Self, FrameError> {
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
