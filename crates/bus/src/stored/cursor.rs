//! What a group has done, as it is stored.

use prombus_engine::{InvalidStateKey, StateKey};
use prombus_proto::{EventId, Group, Seq, Timestamp, Topic};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a group has done: everything up to `floor`, and some events above it.
///
/// Stored as JSON, so that other programs can read it where the engine lets them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The version of this form.
    v: u32,
    /// All events up to this one are done.
    pub floor: Seq,
    /// The id of the event at the floor, if the group had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<EventId>,
    /// The time of the event at the floor, if the group had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ts: Option<Timestamp>,
    /// When the group was made.
    pub created: Timestamp,
    /// Which group_lease stored it, where several gateways use one store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The events behind the floor, run by run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<(u64, u32)>,
}

/// What is known of an event above the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Acknowledged, or gone to the dead letters.
    Done,
    /// Delivered so many times, and not done.
    Tried(u32),
}

/// Why a stored cursor cannot be used.
#[derive(Debug, Error)]
pub enum CursorError {
    /// Made by a newer program.
    #[error("has form {0}; this program reads up to {VERSION}: use a newer one")]
    Newer(u32),
    /// Not a cursor.
    #[error("cannot be read: {0}")]
    Invalid(#[from] serde_json::Error),
}

const VERSION: u32 = 1;
const PREFIX: &str = "cursor/";
/// In a run's second number 0 says done, more says how often it was tried, and one.
const DONE: u32 = 0;

impl Cursor {
    /// The cursor of a group that starts behind `floor`.
    #[must_use]
    pub const fn starting_behind(floor: Seq, created: Timestamp) -> Self {
        Self {
            v: VERSION,
            floor,
            last_id: None,
            last_ts: None,
            created,
            epoch: None,
            above: Vec::new(),
        }
    }

    /// Says what became of the events behind the floor, in order. What was never tried at the end
    /// is left out: it is what comes next anyway.
    #[must_use]
    pub fn with_above(mut self, above: impl IntoIterator<Item = Progress>) -> Self {
        self.above.clear();
        for progress in above {
            let code = match progress {
                Progress::Done => DONE,
                Progress::Tried(times) => times.saturating_add(1),
            };
            match self.above.last_mut() {
                Some((run, last)) if *last == code => *run += 1,
                _ => self.above.push((1, code)),
            }
        }
        if self.above.last().is_some_and(|(_, code)| *code == DONE + 1) {
            self.above.pop();
        }
        self
    }

    /// What became of the events behind the floor, in order.
    pub fn above(&self) -> impl Iterator<Item = Progress> {
        self.above.iter().flat_map(|&(run, code)| {
            let progress = match code {
                DONE => Progress::Done,
                more => Progress::Tried(more - 1),
            };
            std::iter::repeat_n(progress, usize::try_from(run).unwrap_or(usize::MAX))
        })
    }

    /// Its stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain value always serialises into memory")
    }

    /// Reads a stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, CursorError> {
        #[derive(Deserialize)]
        struct Form {
            v: u32,
        }
        let Form { v } = serde_json::from_slice(bytes)?;
        if v > VERSION {
            return Err(CursorError::Newer(v));
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Where the cursor of `group` on `topic` is kept. A group has one partition so far, 0.
    pub fn key(topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
        StateKey::new(format!("{PREFIX}{topic}::{group}/0"))
    }

    /// What the keys of all groups start with.
    #[must_use]
    pub const fn prefix() -> &'static [u8] {
        PREFIX.as_bytes()
    }

    /// What the keys of all groups of `topic` start with.
    #[must_use]
    pub fn prefix_of(topic: &Topic) -> Vec<u8> {
        format!("{PREFIX}{topic}::").into()
    }

    /// Whose cursor is kept at `key`.
    #[must_use]
    pub fn names_at(key: &StateKey) -> Option<(Topic, Group)> {
        let names = key.as_bytes().strip_prefix(PREFIX.as_bytes())?.strip_suffix(b"/0")?;
        let (topic, group) = std::str::from_utf8(names).ok()?.split_once("::")?;
        Some((Topic::new(topic).ok()?, Group::new(group).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first form, as it was written; it has to be read for ever.
    const FORM_1: &str = r#"{"v":1,"floor":41,"last_id":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab","last_ts":1700000000000,"created":1690000000000,"above":[[2,0],[1,3],[1,1],[1,0]]}"#;

    #[test]
    fn the_first_form_is_read_and_written_as_it_was() {
        let cursor = Cursor::decode(FORM_1.as_bytes()).unwrap();
        assert_eq!(cursor.floor, Seq(41));
        assert_eq!(
            cursor.above().collect::<Vec<_>>(),
            [
                Progress::Done,
                Progress::Done,
                Progress::Tried(2),
                Progress::Tried(0),
                Progress::Done
            ]
        );
        assert_eq!(String::from_utf8(cursor.encode()).unwrap(), FORM_1);
    }

    #[test]
    fn a_newer_form_is_refused_by_its_number() {
        let error = Cursor::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("has form 2"), "{error}");
        assert!(Cursor::decode(b"nonsense").is_err());
    }

    #[test]
    fn a_key_says_whose_cursor_it_has() {
        let (topic, group) = (Topic::new("orders.eu").unwrap(), Group::new("billing").unwrap());
        let key = Cursor::key(&topic, &group).unwrap();
        assert!(key.as_bytes().starts_with(&Cursor::prefix_of(&topic)));
        assert_eq!(Cursor::names_at(&key), Some((topic, group)));
        assert_eq!(Cursor::names_at(&StateKey::new("topic/orders").unwrap()), None);
    }

    proptest! {
        #[test]
        fn is_read_as_it_was_written(
            floor in any::<u64>(),
            codes in proptest::collection::vec(0..4_u32, 0..200),
        ) {
            let above = codes.iter().map(|code| match code {
                0 => Progress::Done,
                more => Progress::Tried(more - 1),
            });
            let cursor = Cursor::starting_behind(Seq(floor), Timestamp(7)).with_above(above.clone());
            let read = Cursor::decode(&cursor.encode()).unwrap();
            let known: Vec<_> = read.above().collect();
            let written: Vec<_> = above.collect();
            prop_assert_eq!(&written[..known.len()], &known[..]);
            prop_assert!(written[known.len()..].iter().all(|rest| *rest == Progress::Tried(0)));
        }
    }
}
