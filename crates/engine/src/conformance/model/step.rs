//! The operations of the model test. Few topics, ids, keys and times, so that operations collide.

use std::ops::Range;

use proptest::prelude::*;

use crate::{Capabilities, Durability};

const TICK_MS: u64 = 50;
pub(super) const TOPICS: usize = 3;
pub(super) const IDS: usize = 24;
pub(super) const KEYS: [&[u8]; 6] = [b"a", b"a/", b"a/1", b"a\xff", b"a\xff\xff", b"\xff"];
pub(super) const PREFIXES: [&[u8]; 6] = [b"", b"a", b"a/", b"a\xff", b"\xff", b"none"];

#[derive(Clone, Debug)]
pub(super) enum Step {
    Commit {
        events: Vec<EventSpec>,
        expected_last: Option<(usize, Guess)>,
        deleted: Option<usize>,
        state: Vec<Change>,
        durability: Durability,
    },
    AdvanceClock {
        ms: u64,
    },
    Read {
        topic: usize,
        from: u64,
        events: usize,
        bytes: usize,
    },
    SeekTime {
        topic: usize,
        /// Relative to some time before the first step.
        offset_ms: u64,
    },
    SeekId {
        topic: usize,
        id: usize,
    },
    Trim {
        topic: usize,
        below: u64,
    },
    Retain {
        topic: usize,
        max_age_ms: Option<u64>,
        /// In percent of the topic's current size.
        max_percent: Option<u64>,
        revision: u64,
    },
    Get {
        key: usize,
    },
    Scan {
        prefix: usize,
        after: Option<usize>,
        limit: usize,
    },
    Restart,
}

#[derive(Clone, Debug)]
pub(super) struct EventSpec {
    pub(super) topic: usize,
    pub(super) id: usize,
    pub(super) age_ms: u64,
    pub(super) text_bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: usize,
    /// `None` deletes.
    pub(super) value: Option<u8>,
    /// The lifetime from now on; zero is already expired.
    pub(super) life_ms: Option<u64>,
    pub(super) expect: GuessedState,
}

/// The last position that a batch expects of a topic, relative to the actual one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guess {
    Right,
    OneTooFew,
    OneTooMany,
}

/// What a change expects of its key, relative to the state before the batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum GuessedState {
    Any,
    Absent,
    /// The version before the batch, or an unused one if the key was absent.
    AsBefore,
    /// A version that no commit has.
    NeverGiven,
}

pub(super) fn any_step(capabilities: Capabilities) -> BoxedStrategy<Step> {
    let restarts = u32::from(capabilities.survives_restart);
    prop_oneof![
        10 => any_commit(),
        3 => ticks(1..8).prop_map(|ms| Step::AdvanceClock { ms }),
        4 => (0..TOPICS, 0..12u64, 0..6usize, prop_oneof![0..1200usize, Just(usize::MAX)])
            .prop_map(|(topic, from, events, bytes)| Step::Read { topic, from, events, bytes }),
        3 => (0..TOPICS, ticks(0..40))
            .prop_map(|(topic, offset_ms)| Step::SeekTime { topic, offset_ms }),
        2 => (0..TOPICS, 0..IDS).prop_map(|(topic, id)| Step::SeekId { topic, id }),
        1 => (0..TOPICS, 0..12u64).prop_map(|(topic, below)| Step::Trim { topic, below }),
        1 => (
            0..TOPICS,
            proptest::option::of(ticks(0..12)),
            proptest::option::of(50..150u64),
            0..5u64,
        )
            .prop_map(|(topic, max_age_ms, max_percent, revision)| Step::Retain {
                topic,
                max_age_ms,
                max_percent,
                revision,
            }),
        2 => (0..KEYS.len()).prop_map(|key| Step::Get { key }),
        3 => (0..PREFIXES.len(), proptest::option::of(0..KEYS.len()), 0..5usize)
            .prop_map(|(prefix, after, limit)| Step::Scan { prefix, after, limit }),
        restarts => Just(Step::Restart),
    ]
    .boxed()
}

/// Times are multiples of a tick, so that equal ones are common: bugs hide there.
fn ticks(count: Range<u64>) -> impl Strategy<Value = u64> {
    count.prop_map(|ticks| ticks * TICK_MS)
}

fn any_commit() -> impl Strategy<Value = Step> {
    let guess = prop_oneof![
        4 => Just(Guess::Right),
        1 => Just(Guess::OneTooFew),
        1 => Just(Guess::OneTooMany),
    ];
    (
        proptest::collection::vec(any_event(), 0..6),
        proptest::option::weighted(0.3, (0..TOPICS, guess)),
        proptest::option::weighted(0.1, 0..TOPICS),
        proptest::collection::vec(any_change(), 0..4),
        prop_oneof![Just(Durability::Buffered), Just(Durability::Fsync)],
    )
        .prop_map(|(events, expected_last, deleted, state, durability)| Step::Commit {
            events,
            expected_last,
            deleted,
            state,
            durability,
        })
}

fn any_event() -> impl Strategy<Value = EventSpec> {
    (0..TOPICS, 0..IDS, ticks(0..10), 0..200usize)
        .prop_map(|(topic, id, age_ms, text_bytes)| EventSpec { topic, id, age_ms, text_bytes })
}

fn any_change() -> impl Strategy<Value = Change> {
    let expect = prop_oneof![
        4 => Just(GuessedState::Any),
        2 => Just(GuessedState::Absent),
        3 => Just(GuessedState::AsBefore),
        1 => Just(GuessedState::NeverGiven),
    ];
    (
        0..KEYS.len(),
        proptest::option::weighted(0.75, any::<u8>()),
        proptest::option::of(ticks(0..6)),
        expect,
    )
        .prop_map(|(key, value, life_ms, expect)| Change { key, value, life_ms, expect })
}
