//! The events of a batch by their topics, and telling those who follow.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Position;
use prombus_proto::EncodedEvent;

use super::now;
use crate::topics::{TopicInUse, Topics};

/// The topics of a batch, and how many events in a row each has.
pub(super) struct Runs(Vec<(Arc<TopicInUse>, usize)>);

impl Runs {
    pub(super) fn of(events: &[EncodedEvent], topics: &Topics) -> Self {
        let mut runs: Vec<(Arc<TopicInUse>, usize)> = Vec::new();
        let now = now();
        for event in events {
            match runs.last_mut() {
                Some((run, count)) if run.topic == *event.topic() => *count += 1,
                _ => runs.push((topics.get(event.topic(), now), 1)),
            }
        }
        Self(runs)
    }

    /// Counts what is stored now.
    pub(super) fn count(self, positions: &[Position]) {
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.series().committed(stored);
        }
    }

    pub(super) fn are_followed(&self) -> bool {
        self.0.iter().any(|(topic, _)| topic.feed.has_followers())
    }

    /// Tells followers what is stored now, and counts it. Those who came since the events were not
    /// kept for them read them from the engine.
    pub(super) fn tell(
        self,
        kept: Option<Vec<EncodedEvent>>,
        taken: impl Iterator<Item = Option<Instant>>,
        positions: &[Position],
    ) {
        let mut events = kept.map(|kept| kept.into_iter().zip(taken));
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.series().committed(stored);
            let is_followed = topic.feed.has_followers();
            match events.as_mut().map(|events| events.take(count)) {
                Some(run) if is_followed => {
                    let new = stored.iter().zip(run).filter(|(position, _)| !position.duplicate);
                    topic
                        .feed
                        .append(new.map(|(position, (event, taken))| (position.seq, event, taken)));
                }
                Some(run) => run.for_each(drop),
                None => {
                    let last = stored.iter().rfind(|position| !position.duplicate);
                    if let Some(last) = last.filter(|_| is_followed) {
                        topic.feed.wake(last.seq);
                    }
                }
            }
        }
    }
}
