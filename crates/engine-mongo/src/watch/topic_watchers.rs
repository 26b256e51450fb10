//! The last position of every topic, for watchers.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

/// One channel for every topic that is watched or that has grown; `None` once the engine is closed.
#[derive(Debug)]
pub(crate) struct TopicWatchers(Mutex<Option<HashMap<Topic, watch::Sender<Seq>>>>);

impl TopicWatchers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }

    /// Reports that the last event of `topic` is `last`. Wakes nobody if that is not news.
    pub(crate) fn notify(&self, topic: &Topic, last: Seq) {
        let mut channels = self.0.lock();
        let Some(channels) = channels.as_mut() else { return };
        match channels.get(topic) {
            Some(channel) => {
                channel.send_if_modified(|known| {
                    let has_grown = last > *known;
                    *known = last.max(*known);
                    has_grown
                });
            }
            None => {
                channels.insert(topic.clone(), watch::channel(last).0);
            }
        }
    }

    pub(crate) fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        match self.0.lock().as_mut() {
            Some(channels) => channels
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
            channels.remove(topic);
        }
    }

    /// Closes the receivers of topics that had events and are not among `topics` any more.
    pub(crate) fn end_others(&self, topics: &HashSet<Topic>) {
        if let Some(channels) = self.0.lock().as_mut() {
            channels
                .retain(|topic, channel| *channel.borrow() == Seq::ZERO || topics.contains(topic));
        }
    }

    /// Closes all receivers.
    pub(crate) fn close(&self) {
        *self.0.lock() = None;
    }
}
