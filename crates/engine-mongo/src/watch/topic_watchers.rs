//! The last position of every topic, for watchers.

use std::collections::HashMap;

use parking_lot::Mutex;
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

/// One channel for every topic that is watched or that has grown; `None` once the engine is closed.
#[derive(Debug)]
pub(crate) struct TopicWatchers(Mutex<Option<Channels>>);

#[derive(Debug, Default)]
struct Channels {
    by_topic: HashMap<Topic, watch::Sender<Seq>>,
    /// How often a topic ended.
    endings: u64,
}

impl TopicWatchers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(Channels::default())))
    }

    /// Reports that the last event of `topic` is `last`. Wakes nobody if that is not news.
    pub(crate) fn notify(&self, topic: &Topic, last: Seq) {
        if let Some(channels) = self.0.lock().as_mut() {
            channels.notify(topic, last);
        }
    }

    /// Returns how often a topic ended so far.
    pub(crate) fn endings(&self) -> u64 {
        self.0.lock().as_ref().map_or(0, |channels| channels.endings)
    }

    /// Reports the last events of all topics, and closes the receivers of topics that had events and are not among
    /// them any more. Does nothing and returns `false` if a topic ended since there were `endings`.
    pub(crate) fn replace_all(&self, positions: &HashMap<Topic, Seq>, endings: u64) -> bool {
        let mut channels = self.0.lock();
        let Some(channels) = channels.as_mut() else { return true };
        if channels.endings != endings {
            return false;
        }
        positions.iter().for_each(|(topic, last)| channels.notify(topic, *last));
        channels.by_topic.retain(|topic, channel| {
            *channel.borrow() == Seq::ZERO || positions.contains_key(topic)
        });
        true
    }

    pub(crate) fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        match self.0.lock().as_mut() {
            Some(channels) => channels
                .by_topic
                .entry(topic.clone())
                .or_insert_with(|| watch::channel(Seq::ZERO).0)
                .subscribe(),
            // The sender is dropped, so the receiver is closed from the start.
            None => watch::channel(Seq::ZERO).1,
        }
    }

    /// Closes the receivers of `topic`, which was deleted.
    pub(crate) fn end(&self, topic: &Topic) {
        if let Some(channels) = self.0.lock().as_mut() {
            channels.by_topic.remove(topic);
            channels.endings += 1;
        }
    }

    /// Closes all receivers.
    pub(crate) fn close(&self) {
        *self.0.lock() = None;
    }
}

impl Channels {
    fn notify(&mut self, topic: &Topic, last: Seq) {
        match self.by_topic.get(topic) {
            Some(channel) => {
                channel.send_if_modified(|known| {
                    let has_grown = last > *known;
                    *known = last.max(*known);
                    has_grown
                });
            }
            None => {
                self.by_topic.insert(topic.clone(), watch::channel(last).0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_before_a_topic_ended_are_not_reported() {
        let watchers = TopicWatchers::new();
        let topic = Topic::new("orders").expect("a name");
        let positions = HashMap::from([(topic.clone(), Seq(3))]);
        let endings = watchers.endings();
        watchers.end(&topic);
        assert!(!watchers.replace_all(&positions, endings));
        assert_eq!(*watchers.watch(&topic).borrow(), Seq::ZERO);
        assert!(watchers.replace_all(&positions, watchers.endings()));
        let watched = watchers.watch(&topic);
        assert_eq!(*watched.borrow(), Seq(3));
        assert!(watchers.replace_all(&HashMap::new(), watchers.endings()));
        assert!(watched.has_changed().is_err(), "its topic is gone");
    }
}
