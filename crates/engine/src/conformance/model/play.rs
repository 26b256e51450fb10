//! Applies each operation to the engine and to the model, and compares the results.

use std::fmt::Debug;

use bytes::Bytes;
use prombus_proto::{Clock, Event, EventId, Seq, Timestamp, Topic};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::expected::Expected;
use super::step::{Change, EventSpec, Guess, GuessedState, KEYS, PREFIXES, Step, TOPICS};
use crate::conformance::Subject;
use crate::conformance::test_store::{EVERYTHING, TestStore, ends, payload, topic};
use crate::{Batch, CommitError, Expect, ReadBudget, Retention, StateKey, StateOp, Version};

/// A version that no commit will ever reach.
const NEVER_GIVEN: Version = Version(u64::MAX);

type Checked = Result<(), TestCaseError>;

struct Play {
    store: TestStore,
    model: Expected,
    start: Timestamp,
}

/// Applies all operations, then compares everything.
pub(super) async fn play(subject: Box<dyn Subject>, steps: &[Step]) -> Checked {
    let store = TestStore::open(subject).await;
    let mut play = Play { start: store.clock.now(), store, model: Expected::default() };
    for step in steps {
        play.step(step).await?;
    }
    play.compare_everything().await
}

fn topic_name(topic: usize) -> &'static str {
    ["t", "t.u", "v"][topic]
}

fn key_of(key: usize) -> StateKey {
    StateKey::new(Bytes::from_static(KEYS[key])).unwrap()
}

/// Alternates between UUIDs of version 7, of version 4, and text.
fn id_of(id: usize) -> EventId {
    let text = match id % 3 {
        0 => format!("018bcfe5-68{id:02x}-7c3a-9f2e-0123456789ab"),
        1 => format!("9b2f4d6e-1c3a-4f5b-8e7d-6a5c4b3d2e{id:02x}"),
        _ => format!("id {id}"),
    };
    EventId::new(&text).unwrap()
}

fn succeeds<T, E: Debug>(answer: Result<T, E>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("{error:?}")))
}

impl Play {
    async fn step(&mut self, step: &Step) -> Checked {
        let now = self.store.clock.now();
        match step {
            Step::Commit { events, expected_last, deleted, state, durability } => {
                let batch = Batch {
                    deleted_topics: deleted.iter().map(|of| topic(topic_name(*of))).collect(),
                    events: events.iter().map(|new| self.event(new).encode()).collect(),
                    expected_last: expected_last
                        .iter()
                        .map(|(of, guess)| self.guessed_last(*of, *guess))
                        .collect(),
                    state: state.iter().map(|change| self.op(change)).collect(),
                    durability: *durability,
                };
                self.commit(batch, now).await
            }
            Step::AdvanceClock { ms } => {
                self.store.clock.advance_ms(*ms);
                Ok(())
            }
            Step::Read { topic, from, events, bytes } => {
                let budget = ReadBudget { events: *events, bytes: *bytes };
                self.read(topic_name(*topic), *from, budget).await
            }
            Step::SeekTime { topic, offset_ms } => {
                let ts = Timestamp(self.start.0 - 500 + offset_ms);
                self.seek_time(topic_name(*topic), ts).await
            }
            Step::SeekId { topic, id } => {
                let name = topic_name(*topic);
                let expected = self.model.topic(name).seq_of(&id_of(*id));
                prop_assert_eq!(self.store.seek_id(name, &id_of(*id)).await, expected);
                Ok(())
            }
            Step::Trim { topic, below } => self.trim(topic_name(*topic), *below).await,
            Step::Retain { topic, max_age_ms, max_percent, revision } => {
                let name = topic_name(*topic);
                let bytes = self.store.bounds(name).await.bytes;
                let rule = Retention {
                    max_age_ms: *max_age_ms,
                    max_bytes: max_percent.map(|percent| bytes * percent / 100),
                    revision: *revision,
                };
                let all_fits = max_percent.is_none_or(|percent| percent >= 100);
                self.retain(name, &rule, all_fits, now).await
            }
            Step::Get { key } => {
                let found = succeeds(self.store.engine().get(&key_of(*key)).await)?;
                prop_assert_eq!(found.as_ref(), self.model.get(KEYS[*key], now));
                Ok(())
            }
            Step::Scan { prefix, after, limit } => {
                let after = after.map(key_of);
                let found =
                    self.store.engine().scan(PREFIXES[*prefix], after.as_ref(), *limit).await;
                let after = after.as_ref().map(StateKey::as_bytes);
                let mut expected = self.model.scan(PREFIXES[*prefix], after, now);
                expected.truncate(*limit);
                prop_assert_eq!(succeeds(found)?, expected);
                Ok(())
            }
            Step::Restart => {
                self.store.restart().await;
                self.compare_everything().await
            }
        }
    }

    fn event(&self, new: &EventSpec) -> Event {
        let name = topic_name(new.topic);
        Event {
            id: id_of(new.id),
            ts: self.store.clock.now().minus_ms(new.age_ms),
            payload: payload(&format!("\"{}\"", "x".repeat(new.text_bytes))),
            ..self.store.event(name)
        }
    }

    fn guessed_last(&self, of: usize, guess: Guess) -> (Topic, Seq) {
        let name = topic_name(of);
        let last = self.model.topic(name).appended;
        let guessed = match guess {
            Guess::Right => last,
            Guess::OneTooFew => last.wrapping_sub(1),
            Guess::OneTooMany => last + 1,
        };
        (topic(name), Seq(guessed))
    }

    fn op(&self, change: &Change) -> StateOp {
        let now = self.store.clock.now();
        let key = key_of(change.key);
        let before = self.model.get(key.as_bytes(), now);
        let expect = match change.expect {
            GuessedState::Any => Expect::Any,
            GuessedState::Absent => Expect::Absent,
            GuessedState::AsBefore => Expect::Version(before.map_or(NEVER_GIVEN, |e| e.version)),
            GuessedState::NeverGiven => Expect::Version(NEVER_GIVEN),
        };
        match change.value {
            Some(byte) => StateOp::Put {
                key,
                value: vec![byte; usize::from(byte)].into(),
                expires_at: change.life_ms.map(|ms| now.plus_ms(ms)),
                expect,
            },
            None => StateOp::Delete { key, expect },
        }
    }

    async fn commit(&mut self, batch: Batch, now: Timestamp) -> Checked {
        let answer = self.store.try_commit(batch.clone()).await;
        let version = match &answer {
            Ok(committed) => committed.version,
            // Stands for the version it would have got, which no expectation can name.
            Err(_) => Version(NEVER_GIVEN.0 - 1),
        };
        let answered = answer.as_ref().map_or(&[][..], |committed| &committed.positions);
        let expected = self.model.after(&batch, version, answered, now);
        match (answer, expected) {
            (Ok(committed), Some((after, positions))) => {
                prop_assert!(Some(committed.version) > self.model.last_version);
                let answered: Vec<_> = committed
                    .positions
                    .iter()
                    .map(|position| (position.seq.0, position.duplicate))
                    .collect();
                prop_assert_eq!(answered, positions);
                self.model = after;
                Ok(())
            }
            (Err(CommitError::Conflict(_)), None) => Ok(()),
            (answer, expected) => Err(TestCaseError::fail(format!(
                "{answer:?}, but in the model the commit succeeds: {}",
                expected.is_some()
            ))),
        }
    }

    async fn read(&self, name: &str, from: u64, budget: ReadBudget) -> Checked {
        let mut expected = Vec::new();
        let mut bytes = 0;
        for event in self.model.topic(name).retained {
            if event.seq.0 < from {
                continue;
            }
            bytes += event.json.len();
            if !expected.is_empty() && (expected.len() == budget.events || bytes > budget.bytes) {
                break;
            }
            expected.push(event);
            if expected.len() >= budget.events {
                break;
            }
        }
        prop_assert_eq!(self.store.read(name, from, budget).await, expected);
        Ok(())
    }

    async fn seek_time(&self, name: &str, ts: Timestamp) -> Checked {
        let topic = self.model.topic(name);
        let found = topic.retained.iter().find(|event| event.ts >= ts);
        let expected = found.map_or(topic.appended + 1, |event| event.seq.0);
        prop_assert_eq!(self.store.seek_time(name, ts.0).await, expected);
        Ok(())
    }

    async fn trim(&mut self, name: &str, below: u64) -> Checked {
        let left = succeeds(self.store.engine().trim(&topic(name), Seq(below)).await)?;
        let model = self.model.topic_mut(name);
        model.drop_below(below);
        prop_assert_eq!(ends(left), (model.first(), model.appended + 1));
        Ok(())
    }

    /// Checks that everything the rule retains is retained. By size, how much may be dropped depends
    /// on how the engine counts bytes; it is only checked that a suffix remains.
    async fn retain(
        &mut self,
        name: &str,
        rule: &Retention,
        all_fits: bool,
        now: Timestamp,
    ) -> Checked {
        let model = self.model.topic_mut(name);
        if model.deleted_at.is_some() {
            // The engine may forget this rule when the topic is created again.
            return Ok(());
        }
        let answer = self.store.engine().retain(&topic(name), rule).await;
        if let Some(applied) = model.applied_rule.filter(|applied| rule.revision < *applied) {
            return match answer {
                Err(CommitError::StaleRule { offered, applied: named, .. })
                    if (offered, named) == (rule.revision, applied) =>
                {
                    Ok(())
                }
                other => Err(TestCaseError::fail(format!("expected a stale rule, got {other:?}"))),
            };
        }
        let left = succeeds(answer)?;
        model.applied_rule = Some(rule.revision);
        prop_assert_eq!(left.next.0, model.appended + 1);
        prop_assert!(left.first.0 >= model.first());
        prop_assert!(left.first <= left.next);
        if all_fits {
            let old = |ts: Timestamp| match rule.max_age_ms {
                Some(age) => ts.0 + age < now.0,
                None => false,
            };
            let kept = model.retained.iter().find(|event| !old(event.ts));
            if let Some(kept) = kept {
                prop_assert!(left.first <= kept.seq, "{:?} must stay", kept.seq);
            }
        }
        model.drop_below(left.first.0);
        Ok(())
    }

    async fn compare_everything(&self) -> Checked {
        let now = self.store.clock.now();
        prop_assert_eq!(self.store.topic_names().await, self.model.topic_names());
        for name in (0..TOPICS).map(topic_name) {
            let expected = self.model.topic(name);
            prop_assert_eq!(
                ends(self.store.bounds(name).await),
                (expected.first(), expected.appended + 1)
            );
            prop_assert_eq!(self.store.read(name, 0, EVERYTHING).await, &expected.retained[..]);
            prop_assert_eq!(self.store.engine().watch(&topic(name)).borrow().0, expected.appended);
        }
        let found = succeeds(self.store.engine().scan(b"", None, usize::MAX).await)?;
        prop_assert_eq!(found, self.model.scan(b"", None, now));
        Ok(())
    }
}
