//! The progress of a consumer group.

use std::time::Duration;

use prombus_engine::{InvalidStateKey, StateKey, StateKind};
use prombus_proto::limits::MAX_STATE_VALUE_BYTES;
use prombus_proto::{EventId, Group, Seq, Timestamp, Topic};
use serde::{Deserialize, Serialize, Serializer};

use super::versioned::{DecodeError, Versioned};
use super::{PARTITION, SEPARATOR};

/// The progress of a group: every event up to `floor` is done, and some above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Every event up to this one is done.
    pub floor: Seq,
    /// The id of the event at the floor; `None` if the group never received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<EventId>,
    /// The timestamp of the event at the floor; `None` if the group never received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ts: Option<Timestamp>,
    /// When the group was created.
    pub created: Timestamp,
    /// The epoch of the group lease under which it was stored, if several gateways share the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The events above the floor as runs of equal progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<Run>,
}

/// Events with the same progress, stored as `[count, code, failures, disconnects, retry at, retry in]`
/// without trailing zeros behind the code. Version 1 had only the first two, version 2 only the first four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Run(
    u64,
    u32,
    #[serde(default)] u16,
    #[serde(default)] u16,
    #[serde(default)] u64,
    #[serde(default)] u64,
);

/// The progress of one event above the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Acknowledged or dead-lettered.
    Done,
    /// Delivered without being done.
    Tried(Attempts),
    /// The same, and not to be delivered again for a while.
    BackingOff(Attempts, RetryTime),
}

/// When an event is delivered again. Whole seconds, so that events that failed together are one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryTime {
    /// Seconds since 1970.
    pub at_secs: u64,
    /// How long that was ahead when the cursor was stored, at least one second. Bounds the wait if the clock
    /// was set back since then.
    pub in_secs: u64,
}

/// How often an event was delivered, and how its leases ended. The counts of ends saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    pub deliveries: u32,
    /// NACKs, missed deadlines, and disconnects while the event was the only one in flight: what counts
    /// towards its dead letter.
    pub failures: u16,
    /// Connections that were lost while the event was in flight on them.
    pub disconnects: u16,
}

pub(super) const PREFIX: &str = "cursor/";
pub(super) const KIND: StateKind = StateKind {
    prefix: PREFIX,
    separator: SEPARATOR,
    suffix: PARTITION,
    collection: Some("cursors"),
    fields: &[("last_id", "lastId"), ("last_ts", "lastTs"), ("epoch", "epoch")],
    marker: None,
};
/// By how much a [`RetryTime`] may be early.
pub(crate) const ROUNDING_MS: u64 = 50;

/// The code of [`Progress::Done`]; any other code is the number of deliveries plus one.
const DONE: u32 = 0;

impl RetryTime {
    /// The time that is `wait` after `now`, rounded up.
    ///
    /// It stays the same however often it is stored and loaded again, although neither clock is read to the
    /// nanosecond and not both at once: what exceeds a second by less than [`ROUNDING_MS`] is not rounded up.
    pub(crate) fn after(wait: Duration, now: Timestamp) -> Self {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let at_ms = now.0.saturating_add(wait_ms).saturating_sub(ROUNDING_MS);
        let at_secs = at_ms.div_ceil(1000);
        Self { at_secs, in_secs: secs_until(at_secs, now).max(1) }
    }

    /// Returns `true` if the clock was set back since this was stored: the wait then counts from `now`.
    pub(crate) const fn is_ahead_of(self, now: Timestamp) -> bool {
        secs_until(self.at_secs, now) > self.in_secs
    }

    /// How long it still takes at `now`.
    pub(crate) fn wait_from(self, now: Timestamp) -> Duration {
        let left = Duration::from_millis(self.at_secs.saturating_mul(1000).saturating_sub(now.0));
        left.min(Duration::from_secs(self.in_secs))
    }
}

/// Returns the seconds from `now` to `at_secs`, rounded up.
const fn secs_until(at_secs: u64, now: Timestamp) -> u64 {
    at_secs.saturating_mul(1000).saturating_sub(now.0).div_ceil(1000)
}

impl Versioned for Cursor {
    const VERSION: u32 = 3;
}

impl Attempts {
    /// Deliveries that ended without fault of the event.
    #[must_use]
    pub const fn of_deliveries(deliveries: u32) -> Self {
        Self { deliveries, failures: 0, disconnects: 0 }
    }
}

impl Progress {
    const fn without_retry_time(self) -> Self {
        match self {
            Self::BackingOff(attempts, _) => Self::Tried(attempts),
            Self::Done | Self::Tried(_) => self,
        }
    }

    const fn without_failures(self) -> Self {
        match self {
            Self::Tried(Attempts { deliveries, .. })
            | Self::BackingOff(Attempts { deliveries, .. }, _) => {
                Self::Tried(Attempts::of_deliveries(deliveries))
            }
            Self::Done => self,
        }
    }
}

impl Run {
    const fn of(progress: Progress) -> Self {
        match progress {
            Progress::Done => Self(1, DONE, 0, 0, 0, 0),
            Progress::Tried(Attempts { deliveries, failures, disconnects }) => {
                Self(1, deliveries.saturating_add(1), failures, disconnects, 0, 0)
            }
            Progress::BackingOff(attempts, RetryTime { at_secs, in_secs }) => {
                let Self(count, code, failures, disconnects, ..) =
                    Self::of(Progress::Tried(attempts));
                Self(count, code, failures, disconnects, at_secs, in_secs)
            }
        }
    }

    const fn progress(self) -> Progress {
        match self {
            Self(_, DONE, ..) => Progress::Done,
            Self(_, code, failures, disconnects, at_secs, in_secs) => {
                let attempts = Attempts { deliveries: code - 1, failures, disconnects };
                match in_secs {
                    0 => Progress::Tried(attempts),
                    _ => Progress::BackingOff(attempts, RetryTime { at_secs, in_secs }),
                }
            }
        }
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self(count, code, 0, 0, _, 0) => (count, code).serialize(serializer),
            Self(count, code, failures, 0, _, 0) => (count, code, failures).serialize(serializer),
            Self(count, code, failures, disconnects, _, 0) => {
                (count, code, failures, disconnects).serialize(serializer)
            }
            Self(count, code, failures, disconnects, at_secs, in_secs) => {
                (count, code, failures, disconnects, at_secs, in_secs).serialize(serializer)
            }
        }
    }
}

impl Cursor {
    /// The cursor of a group that starts after `floor`.
    #[must_use]
    pub const fn starting_behind(floor: Seq, created: Timestamp) -> Self {
        Self { floor, last_id: None, last_ts: None, created, epoch: None, above: Vec::new() }
    }

    /// Sets the progress of the events above the floor, in order. Trailing events that were never
    /// delivered are left out.
    #[must_use]
    pub fn with_above(mut self, above: impl IntoIterator<Item = Progress>) -> Self {
        self.above.clear();
        for progress in above {
            let run = Run::of(progress);
            match self.above.last_mut() {
                Some(last) if last.progress() == progress => last.0 += 1,
                _ => self.above.push(run),
            }
        }
        if self.above.last().map(|run| run.progress()) == Some(Progress::Tried(Attempts::default()))
        {
            self.above.pop();
        }
        self
    }

    /// Returns the progress of the events above the floor, in order.
    pub fn above(&self) -> impl Iterator<Item = Progress> {
        self.above.iter().flat_map(|run| {
            std::iter::repeat_n(run.progress(), usize::try_from(run.0).unwrap_or(usize::MAX))
        })
    }

    /// The last event that the group has finished or received.
    pub(crate) fn last_delivered(&self) -> Seq {
        self.floor.plus(self.above.iter().map(|run| run.0).sum())
    }

    /// Returns `true` if the clock was set back since the cursor was stored, as far as its waits tell. It has
    /// to be stored again: each time it is loaded, the waits would start from the beginning.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.above.iter().any(|run| match run.progress() {
            Progress::BackingOff(_, retry) => retry.is_ahead_of(now),
            Progress::Done | Progress::Tried(_) => false,
        })
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Tens of thousands of events, each with other times or counts than the next, do not fit. Forgotten
        // waits and failures mean that an event is delivered earlier or more often, never not at all.
        let mut encoded = self.encode_versioned();
        for forget in [Progress::without_retry_time, Progress::without_failures] {
            if encoded.len() <= MAX_STATE_VALUE_BYTES {
                break;
            }
            encoded = self.clone().with_above(self.above().map(forget)).encode_versioned();
        }
        encoded
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_versioned(bytes)
    }

    pub fn key(topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
        super::group_key(PREFIX, topic, group)
    }

    /// The prefix of the keys of all cursors.
    #[must_use]
    pub const fn prefix() -> &'static [u8] {
        PREFIX.as_bytes()
    }

    /// The prefix of the keys of all cursors on `topic`.
    #[must_use]
    pub fn prefix_of(topic: &Topic) -> Vec<u8> {
        format!("{PREFIX}{topic}{SEPARATOR}").into()
    }

    /// Returns the topic and the group in `key`, or `None` if it is not the key of a cursor.
    #[must_use]
    pub fn names_at(key: &StateKey) -> Option<(Topic, Group)> {
        let names =
            key.as_bytes().strip_prefix(Self::prefix())?.strip_suffix(PARTITION.as_bytes())?;
        let (topic, group) = std::str::from_utf8(names).ok()?.split_once(SEPARATOR)?;
        Some((Topic::new(topic).ok()?, Group::new(group).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Stored cursors of every version must stay readable for ever.
    const VERSION_1: &str = r#"{"v":1,"floor":41,"last_id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","last_ts":1700000000000,"created":1690000000000,"above":[[2,0],[1,3],[1,1],[1,0]]}"#;
    const VERSION_2: &str = r#"{"v":2,"floor":41,"last_id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","last_ts":1700000000000,"created":1690000000000,"above":[[2,0],[1,3],[1,1],[2,6,2],[1,6,0,3],[1,6,1,1],[1,0]]}"#;

    const VERSION_3: &str = r#"{"v":3,"floor":41,"created":1690000000000,"above":[[2,6,2],[3,6,0,3,1700000025,25],[1,6,1,1,1700000001,1],[1,0]]}"#;

    fn tried(deliveries: u32, failures: u16, disconnects: u16) -> Progress {
        Progress::Tried(Attempts { deliveries, failures, disconnects })
    }

    #[test]
    fn reads_version_1() {
        let cursor = Cursor::decode(VERSION_1.as_bytes()).unwrap();
        assert_eq!(cursor.floor, Seq(41));
        assert_eq!(
            cursor.above().collect::<Vec<_>>(),
            [Progress::Done, Progress::Done, tried(2, 0, 0), tried(0, 0, 0), Progress::Done]
        );
    }

    #[test]
    fn reads_and_writes_version_3() {
        let cursor = Cursor::decode(VERSION_3.as_bytes()).unwrap();
        let backing_off = |failures, disconnects, at_secs, in_secs| {
            let attempts = Attempts { deliveries: 5, failures, disconnects };
            Progress::BackingOff(attempts, RetryTime { at_secs, in_secs })
        };
        let crashed = backing_off(0, 3, 1_700_000_025, 25);
        assert_eq!(
            cursor.above().collect::<Vec<_>>(),
            [
                tried(5, 2, 0),
                tried(5, 2, 0),
                crashed,
                crashed,
                crashed,
                backing_off(1, 1, 1_700_000_001, 1),
                Progress::Done
            ]
        );
        assert_eq!(String::from_utf8(cursor.encode()).unwrap(), VERSION_3);
    }

    #[test]
    fn reads_version_2() {
        let cursor = Cursor::decode(VERSION_2.as_bytes()).unwrap();
        assert_eq!(cursor.floor, Seq(41));
        assert_eq!(
            cursor.above().collect::<Vec<_>>(),
            [
                Progress::Done,
                Progress::Done,
                tried(2, 0, 0),
                tried(0, 0, 0),
                tried(5, 2, 0),
                tried(5, 2, 0),
                tried(5, 0, 3),
                tried(5, 1, 1),
                Progress::Done
            ]
        );
    }

    #[test]
    fn a_wait_ends_in_time_whatever_the_clock_does() {
        let now = Timestamp(1_700_000_000_400);
        let retry = RetryTime::after(Duration::from_millis(24_100), now);
        assert_eq!(retry, RetryTime { at_secs: 1_700_000_025, in_secs: 25 });
        let year_ms = 365 * 86_400_000;
        for (time, wait_ms) in [
            (now.0, 24_600),
            (now.0 + 10_000, 14_600),
            (now.0 + 25_000, 0),
            (now.0 + year_ms, 0),
            (now.0 - year_ms, 25_000),
        ] {
            let wait = retry.wait_from(Timestamp(time));
            assert_eq!(wait, Duration::from_millis(wait_ms), "at {time}");
        }
    }

    proptest! {
        /// A group that is loaded and stored again all the time retries no later than one that stays.
        #[test]
        fn a_wait_does_not_grow_by_being_stored(
            start_us in 0..1_000_000_u64,
            wait_us in 1_000_000..20_000_000_u64,
            stays_us in proptest::collection::vec((1_000..900_000_u64, 0..5_000_u64), 1..20),
        ) {
            let mut clock_us = 1_700_000_000_000_000 + start_us;
            let due_us = clock_us + wait_us;
            let time = |us: u64| Timestamp(us / 1000);
            let mut retry = RetryTime::after(Duration::from_micros(wait_us), time(clock_us));
            // The wall clock is read a little after the other one.
            for (stay_us, later_us) in stays_us.into_iter().cycle() {
                let wait = retry.wait_from(time(clock_us + later_us));
                let until_us = clock_us + u64::try_from(wait.as_micros()).unwrap();
                if until_us <= clock_us + stay_us {
                    clock_us = until_us;
                    break;
                }
                clock_us += stay_us;
                let left = Duration::from_micros(until_us - clock_us);
                retry = RetryTime::after(left, time(clock_us));
            }
            prop_assert!(clock_us <= due_us + 1_000_000, "{} us late", clock_us - due_us);
            prop_assert!(clock_us + 60_000 >= due_us, "{} us early", due_us - clock_us);
        }
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = Cursor::decode(br#"{"v":4,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 4"), "{error}");
        assert!(Cursor::decode(b"nonsense").is_err());
    }

    #[test]
    fn a_key_names_the_topic_and_the_group() {
        let (topic, group) = (Topic::new("orders.eu").unwrap(), Group::new("billing").unwrap());
        let key = Cursor::key(&topic, &group).unwrap();
        assert!(key.as_bytes().starts_with(&Cursor::prefix_of(&topic)));
        assert_eq!(Cursor::names_at(&key), Some((topic, group)));
        assert_eq!(Cursor::names_at(&StateKey::new("topic/orders").unwrap()), None);
    }

    proptest! {
        #[test]
        fn encoding_round_trips(
            floor in any::<u64>(),
            codes in proptest::collection::vec((0..4_u32, 0..3_u16, 0..3_u16, 0..3_u64), 0..200),
        ) {
            let above = codes.iter().map(|code| match *code {
                (0, ..) => Progress::Done,
                (code, failures, disconnects, 0) => tried(code - 1, failures, disconnects),
                (code, failures, disconnects, in_secs) => Progress::BackingOff(
                    Attempts { deliveries: code - 1, failures, disconnects },
                    RetryTime { at_secs: 1_700_000_000 + in_secs, in_secs },
                ),
            });
            let cursor = Cursor::starting_behind(Seq(floor), Timestamp(7)).with_above(above.clone());
            let read = Cursor::decode(&cursor.encode()).unwrap();
            let decoded: Vec<_> = read.above().collect();
            let written: Vec<_> = above.collect();
            prop_assert_eq!(&written[..decoded.len()], &decoded[..]);
            prop_assert!(written[decoded.len()..].iter().all(|rest| *rest == tried(0, 0, 0)));
        }
    }
}
