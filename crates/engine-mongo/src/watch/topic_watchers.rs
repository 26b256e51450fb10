//! The last position of every topic, for those who watch.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

/// One channel a topic that was watched or that ever grew; nothing once it is over.
#[derive(Debug)]
pub(crate) struct Growth(Mutex<Option<HashMap<Topic, watch::Sender<Seq>>>>);

impl Growth {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<Topic, watch::Sender<Seq>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells that `topic` reaches to `last`; what is known already wakes nobody.
    pub(crate) fn tell(&self, topic: &Topic, last: Seq) {
        let mut topics = self.lock();
        let Some(topics) = topics.as_mut() else { return };
        match topics.get(topic) {
            Some(growth) => {
                growth.send_if_modified(|known| {
                    let has_grown = last > *known;
                    *known = last.max(*known);
                    has_grown
                });
            }
            None => {
                topics.insert(topic.clone(), watch::channel(last).0);
            }
        }
    }

    pub(crate) fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        match self.lock().as_mut() {
            Some(topics) => topics
                .entry(topic.clone())
                .or_insert_with(|| watch::channel(Seq::ZERO).0)
                .subscribe(),
            // Without a sender it has ended before it began.
            None => watch::channel(Seq::ZERO).1,
        }
    }

    /// Ends all watches.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }
}
