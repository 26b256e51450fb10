//! What other gateways wrote, for those who follow a topic here.

use std::sync::{Arc, Weak};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use prombus_engine::Engine;
use prombus_proto::Seq;
use tokio::sync::watch;

use crate::topics::TopicInUse;

/// How long a feed gets to hear of what was written here, before it is told by the engine: then it
/// has the events in memory, and nobody has to read them back.
const HEAD_START: Duration = Duration::from_millis(2);

/// Tells the feed of `topic` what the engine tells, for as long as somebody follows it.
pub(crate) fn tell(engine: &Arc<dyn Engine>, topic: &Arc<TopicInUse>) {
    let mut is_told = is_told(topic);
    if !*is_told {
        *is_told = true;
        tokio::spawn(run(engine.watch(&topic.topic), Arc::downgrade(topic)));
    }
}

fn is_told(topic: &TopicInUse) -> MutexGuard<'_, bool> {
    topic.is_told.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(mut growth: watch::Receiver<Seq>, topic: Weak<TopicInUse>) {
    // What is there when it begins, followers find by themselves.
    loop {
        let Some(topic) = topic.upgrade() else { return };
        tokio::select! {
            changed = growth.changed() => {
                if changed.is_err() {
                    // The engine is closed.
                    return;
                }
                tokio::time::sleep(HEAD_START).await;
                topic.feed.wake(*growth.borrow_and_update());
            }
            () = topic.feed.abandoned() => {
                let mut is_told = is_told(&topic);
                // Somebody may have come just now, and relies on this.
                if !topic.feed.has_followers() {
                    *is_told = false;
                    return;
                }
            }
        }
    }
}
