//! SUBSCRIBE: joins a consumer group on a topic.

use super::error::FrameError;
use super::json::{Json, members};
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_ATTEMPTS, MAX_IN_FLIGHT, MAX_LEASE_MS, MIN_ACK_TIMEOUT_MS};
use crate::{EventId, Group, Timestamp, Topic};

/// The SUBSCRIBE operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The topic to consume.
    pub topic: Topic,
    /// The consumer group to join. It is created if it does not exist.
    pub group: Group,
    /// Flow control and the start position.
    pub opts: SubscribeOptions,
}

/// The options of a subscription. `None` is the server's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Where a group starts that does not exist yet; an existing group continues at its cursor.
    pub from: StartFrom,
    /// How many events may be on lease at a time, 1 to [`MAX_IN_FLIGHT`].
    pub max_in_flight: Option<u32>,
    /// How long a lease lasts, [`MIN_ACK_TIMEOUT_MS`] to [`MAX_LEASE_MS`] milliseconds.
    pub ack_timeout_ms: Option<u64>,
    /// Failures before an event becomes a dead letter, 1 to [`MAX_ATTEMPTS`]; from now on for the whole
    /// group.
    pub max_attempts: Option<u32>,
}

/// Where a new group starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// After the last event: only new events are delivered.
    #[default]
    Latest,
    /// At the first retained event.
    Earliest,
    /// At the first event with this timestamp or a later one.
    Ts(Timestamp),
    /// After the event with this id.
    AfterId(EventId),
}

members! {
    OptMembers {
        from = "from",
        ts = "ts",
        after_id = "afterId",
        max_in_flight = "maxInFlight",
        ack_timeout_ms = "ackTimeoutMs",
        max_attempts = "maxAttempts",
    }
}

impl Subscribe {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        let topic = field::topic(members.topic)?;
        let group = field::group(members.group)?;
        let opts = match field::present(members.opts) {
            Some(opts) => SubscribeOptions::read(opts)?,
            None => SubscribeOptions::default(),
        };
        Ok(Self { topic, group, opts })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        write::object_unless_empty(out, "opts", |out| self.opts.write_members(out));
    }
}

impl SubscribeOptions {
    fn read(opts: Json<'_>) -> Result<Self, FrameError> {
        let mut cursor = opts.cursor();
        if !cursor.is_at_object() {
            return Err(FrameError::bad_frame("opts must be an object"));
        }
        let mut members = OptMembers::default();
        members.read(&mut cursor)?;
        Self::from_members(&members).map_err(|error| error.within("opts"))
    }

    fn from_members(members: &OptMembers<'_>) -> Result<Self, FrameError> {
        let lease = MIN_ACK_TIMEOUT_MS..=MAX_LEASE_MS;
        Ok(Self {
            from: StartFrom::read(members)?,
            max_in_flight: field::count("maxInFlight", members.max_in_flight, MAX_IN_FLIGHT)?,
            ack_timeout_ms: field::number("ackTimeoutMs", members.ack_timeout_ms, lease)?,
            max_attempts: field::count("maxAttempts", members.max_attempts, MAX_ATTEMPTS)?,
        })
    }

    fn write_members(&self, out: &mut Vec<u8>) {
        match &self.from {
            StartFrom::Latest => {}
            StartFrom::Earliest => write::raw(out, ",\"from\":\"earliest\""),
            StartFrom::Ts(ts) => {
                write::raw(out, ",\"from\":\"ts\",\"ts\":");
                write::number(out, ts.0);
            }
            StartFrom::AfterId(id) => {
                write::raw(out, ",\"from\":\"afterId\",\"afterId\":");
                write::event_id(out, id);
            }
        }
        let numbers = [
            ("maxInFlight", self.max_in_flight.map(u64::from)),
            ("ackTimeoutMs", self.ack_timeout_ms),
            ("maxAttempts", self.max_attempts.map(u64::from)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write::member(out, name);
                write::number(out, number);
            }
        }
    }
}

impl StartFrom {
    fn read(members: &OptMembers<'_>) -> Result<Self, FrameError> {
        let Some(from) = field::present(members.from) else { return Ok(Self::Latest) };
        match from.text().as_deref() {
            Some("latest") => Ok(Self::Latest),
            Some("earliest") => Ok(Self::Earliest),
            Some("ts") => {
                let ts = field::required_number("ts", members.ts, 0..=u64::MAX)?;
                Ok(Self::Ts(Timestamp(ts)))
            }
            Some("afterId") => {
                Ok(Self::AfterId(field::required_event_id("afterId", members.after_id)?))
            }
            _ => Err(FrameError::bad_frame("from must be latest, earliest, ts or afterId")),
        }
    }
}
