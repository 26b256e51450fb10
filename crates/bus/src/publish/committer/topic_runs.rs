//! The topics of a batch, and the notification of their followers.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Position;
use prombus_proto::{EncodedEvent, Seq};

use crate::time::now;
use crate::topics::{TopicInUse, Topics};

/// The topics of a batch in event order.
pub(super) struct TopicRuns(Vec<TopicRun>);

/// Consecutive events of one topic.
struct TopicRun {
    topic: Arc<TopicInUse>,
    count: usize,
    /// The last new event, once it is stored and followers may read it.
    newest: Option<Seq>,
}

impl TopicRuns {
    pub(super) fn of(events: &[EncodedEvent], topics: &Topics) -> Self {
        let mut runs: Vec<TopicRun> = Vec::new();
        let now = now();
        for event in events {
            match runs.last_mut() {
                Some(run) if run.topic.topic == *event.topic() => run.count += 1,
                _ => {
                    let topic = topics.get(event.topic(), now);
                    runs.push(TopicRun { topic, count: 1, newest: None });
                }
            }
        }
        Self(runs)
    }

    pub(super) fn have_followers(&self) -> bool {
        self.0.iter().any(|run| run.topic.feed.has_followers())
    }

    /// Updates the metrics of the topics.
    pub(super) fn count(&self, positions: &[Position]) {
        let mut positions = positions;
        for run in &self.0 {
            let (stored, others) = positions.split_at(run.count);
            positions = others;
            run.topic.created();
            run.topic.count(stored);
        }
    }

    /// Passes the stored events to the feeds of topics with followers. Without `events`, followers read
    /// them from the engine.
    pub(super) fn feed(
        &mut self,
        events: Option<Vec<EncodedEvent>>,
        publish_times: impl Iterator<Item = Option<Instant>>,
        positions: &[Position],
    ) {
        let mut events = events.map(|events| events.into_iter().zip(publish_times));
        let mut positions = positions;
        for run in &mut self.0 {
            let (stored, others) = positions.split_at(run.count);
            positions = others;
            let is_followed = run.topic.feed.has_followers();
            if is_followed {
                let newest = stored.iter().rfind(|position| !position.duplicate);
                run.newest = newest.map(|position| position.seq);
            }
            match events.as_mut().map(|events| events.take(run.count)) {
                Some(events) if is_followed => {
                    let new = stored.iter().zip(events).filter(|(position, _)| !position.duplicate);
                    let new = new.map(|(position, (event, time))| (position.seq, event, time));
                    run.topic.feed.append(new);
                }
                Some(events) => events.for_each(drop),
                None => {}
            }
        }
    }

    /// Wakes the followers of the topics, however many there are.
    pub(super) fn wake_followers(self) {
        for run in self.0 {
            if let Some(newest) = run.newest {
                run.topic.feed.wake(newest);
            }
        }
    }
}
