//! Does each step on the engine and on the model, and compares.

use std::fmt::Debug;

use bytes::Bytes;
use prombus_proto::{Clock, Event, EventId, Seq, Timestamp, Topic};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::expected::Expected;
use super::step::{Change, Guess, GuessedState, KEYS, NewEvent, PREFIXES, Step, TOPICS};
use crate::conformance::Subject;
use crate::conformance::store::{EVERYTHING, Store, ends, payload, topic};
use crate::{Batch, CommitError, Expect, ReadBudget, Retention, StateKey, StateOp, Version};

/// A version that no commit gets within a life.
const NEVER_GIVEN: Version = Version(u64::MAX);

type Checked = Result<(), TestCaseError>;

struct Play {
    store: Store,
    model: Expected,
    began: Timestamp,
}

/// Plays all steps, then compares everything there is.
pub(super) async fn play(subject: Box<dyn Subject>, steps: &[Step]) -> Checked {
    let store = Store::open(subject).await;
    let mut play = Play { began: store.clock.now(), store, model: Expected::default() };
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

/// Version 7, version 4 and text, by turns.
fn id_of(id: usize) -> EventId {
    let text = match id % 3 {
        0 => format!("018bcfe5-68{id:02x}-7c3a-9f2e-0123456789ab"),
        1 => format!("9b2f4d6e-1c3a-4f5b-8e7d-6a5c4b3d2e{id:02x}"),
        _ => format!("id {id}"),
    };
    EventId::new(&text).unwrap()
}

fn works<T, E: Debug>(answer: Result<T, E>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("{error:?}")))
}

impl Play {
    async fn step(&mut self, step: &Step) -> Checked {
        let now = self.store.clock.now();
        match step {
            Step::Commit { events, expected_last, state, durability } => {
                let batch = Batch {
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
                let ts = Timestamp(self.began.0 - 500 + offset_ms);
                self.seek_time(topic_name(*topic), ts).await
            }
            Step::SeekId { topic, id } => {
                let name = topic_name(*topic);
                let due = self.model.topic(name).place_of(&id_of(*id));
                prop_assert_eq!(self.store.seek_id(name, &id_of(*id)).await, due);
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
                let found = works(self.store.engine().get(&key_of(*key)).await)?;
                prop_assert_eq!(found.as_ref(), self.model.get(KEYS[*key], now));
                Ok(())
            }
            Step::Scan { prefix, after, limit } => {
                let after = after.map(key_of);
                let found =
                    self.store.engine().scan(PREFIXES[*prefix], after.as_ref(), *limit).await;
                let after = after.as_ref().map(StateKey::as_bytes);
                let mut due = self.model.scan(PREFIXES[*prefix], after, now);
                due.truncate(*limit);
                prop_assert_eq!(works(found)?, due);
                Ok(())
            }
            Step::Restart => {
                self.store.restart().await;
                self.compare_everything().await
            }
        }
    }

    fn event(&self, new: &NewEvent) -> Event {
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
        let last = self.model.topic(name).ever;
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
            // Stands for the one it would have had, which nobody can have expected.
            Err(_) => Version(NEVER_GIVEN.0 - 1),
        };
        let due = self.model.after(&batch, version, now);
        match (answer, due) {
            (Ok(committed), Some((after, places))) => {
                prop_assert!(Some(committed.version) > self.model.last_version);
                let answered: Vec<_> = committed
                    .positions
                    .iter()
                    .map(|position| (position.seq.0, position.duplicate))
                    .collect();
                prop_assert_eq!(answered, places);
                self.model = after;
                Ok(())
            }
            (Err(CommitError::Conflict(_)), None) => Ok(()),
            (answer, due) => Err(TestCaseError::fail(format!(
                "{answer:?}, the model has it go through: {}",
                due.is_some()
            ))),
        }
    }

    async fn read(&self, name: &str, from: u64, budget: ReadBudget) -> Checked {
        let mut due = Vec::new();
        let mut bytes = 0;
        for event in self.model.topic(name).kept {
            if event.seq.0 < from {
                continue;
            }
            bytes += event.json.len();
            if !due.is_empty() && (due.len() == budget.events || bytes > budget.bytes) {
                break;
            }
            due.push(event);
            if due.len() >= budget.events {
                break;
            }
        }
        prop_assert_eq!(self.store.read(name, from, budget).await, due);
        Ok(())
    }

    async fn seek_time(&self, name: &str, ts: Timestamp) -> Checked {
        let topic = self.model.topic(name);
        let found = topic.kept.iter().find(|event| event.ts >= ts);
        let due = found.map_or(topic.ever + 1, |event| event.seq.0);
        prop_assert_eq!(self.store.seek_time(name, ts.0).await, due);
        Ok(())
    }

    async fn trim(&mut self, name: &str, below: u64) -> Checked {
        let left = works(self.store.engine().trim(&topic(name), Seq(below)).await)?;
        let model = self.model.topic_mut(name);
        model.forget_below(below);
        prop_assert_eq!(ends(left), (model.first(), model.ever + 1));
        Ok(())
    }

    /// What the rule keeps must be kept. Where the size says that something may go, how much
    /// depends on how the engine counts bytes; that a suffix is left is checked everywhere.
    async fn retain(
        &mut self,
        name: &str,
        rule: &Retention,
        all_fits: bool,
        now: Timestamp,
    ) -> Checked {
        let answer = self.store.engine().retain(&topic(name), rule).await;
        let model = self.model.topic_mut(name);
        if let Some(applied) = model.applied_rule.filter(|applied| rule.revision < *applied) {
            return match answer {
                Err(CommitError::StaleRule { offered, applied: named, .. })
                    if (offered, named) == (rule.revision, applied) =>
                {
                    Ok(())
                }
                other => Err(TestCaseError::fail(format!("stale, but {other:?}"))),
            };
        }
        let left = works(answer)?;
        model.applied_rule = Some(rule.revision);
        prop_assert_eq!(left.next.0, model.ever + 1);
        prop_assert!(left.first.0 >= model.first());
        prop_assert!(left.first <= left.next);
        if all_fits {
            let old = |ts: Timestamp| match rule.max_age_ms {
                Some(age) => ts.0 + age < now.0,
                None => false,
            };
            let kept = model.kept.iter().find(|event| !old(event.ts));
            if let Some(kept) = kept {
                prop_assert!(left.first <= kept.seq, "{:?} must stay", kept.seq);
            }
        }
        model.forget_below(left.first.0);
        Ok(())
    }

    async fn compare_everything(&self) -> Checked {
        let now = self.store.clock.now();
        prop_assert_eq!(self.store.topic_names().await, self.model.topic_names());
        for name in (0..TOPICS).map(topic_name) {
            let due = self.model.topic(name);
            prop_assert_eq!(ends(self.store.bounds(name).await), (due.first(), due.ever + 1));
            prop_assert_eq!(self.store.read(name, 0, EVERYTHING).await, &due.kept[..]);
            prop_assert_eq!(self.store.engine().watch(&topic(name)).borrow().0, due.ever);
        }
        let found = works(self.store.engine().scan(b"", None, usize::MAX).await)?;
        prop_assert_eq!(found, self.model.scan(b"", None, now));
        Ok(())
    }
}
