//! The topics of a batch, and the notification of their followers.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Position;
use prombus_proto::EncodedEvent;

use crate::time::now;
use crate::topics::{TopicInUse, Topics};

/// The topics of a batch in event order, each with the number of its consecutive events.
pub(super) struct TopicRuns(Vec<(Arc<TopicInUse>, usize)>);

impl TopicRuns {
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

    pub(super) fn have_followers(&self) -> bool {
        self.0.iter().any(|(topic, _)| topic.feed.has_followers())
    }

    /// Updates the metrics of the topics.
    pub(super) fn count(self, positions: &[Position]) {
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.created();
            topic.series().committed(stored);
        }
    }

    /// Updates the metrics of the topics, and passes the stored events to their followers. Without
    /// `events`, followers are woken and read the events from the engine.
    pub(super) fn notify_followers(
        self,
        events: Option<Vec<EncodedEvent>>,
        publish_times: impl Iterator<Item = Option<Instant>>,
        positions: &[Position],
    ) {
        let mut events = events.map(|events| events.into_iter().zip(publish_times));
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.created();
            topic.series().committed(stored);
            let is_followed = topic.feed.has_followers();
            match events.as_mut().map(|events| events.take(count)) {
                Some(run) if is_followed => {
                    let new = stored.iter().zip(run).filter(|(position, _)| !position.duplicate);
                    topic
                        .feed
                        .append(new.map(|(position, (event, time))| (position.seq, event, time)));
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
