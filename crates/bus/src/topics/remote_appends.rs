//! Notifies the followers of a topic about events that other gateways append.

use std::sync::{Arc, Weak};
use std::time::Duration;

use prombus_engine::{Condition, Engine};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use crate::topics::TopicInUse;

/// The delay before followers hear of an append from the engine. Events of this process reach the feed
/// within it, and do not have to be read back.
const HEAD_START: Duration = Duration::from_millis(2);

/// Wakes the feed of `topic` when the engine reports new events, for as long as it has followers.
pub(crate) fn watch(engine: &Arc<dyn Engine>, topic: &Arc<TopicInUse>) {
    let mut is_watched = topic.watches_remote_appends.lock();
    if !*is_watched {
        *is_watched = true;
        tokio::spawn(run(Arc::clone(engine), topic.topic.clone(), Arc::downgrade(topic)));
    }
}

async fn run(engine: Arc<dyn Engine>, name: Topic, topic: Weak<TopicInUse>) {
    let mut growth: watch::Receiver<Seq> = engine.watch(&name);
    // Followers read the events that exist already.
    loop {
        let Some(topic) = topic.upgrade() else { return };
        let deletions = topic.feed.deletions();
        tokio::select! {
            changed = growth.changed() => {
                tokio::time::sleep(HEAD_START).await;
                if changed.is_err() {
                    if engine.health().condition == Condition::Closed {
                        return;
                    }
                    // The topic was deleted, and another one may have followed.
                    growth = engine.watch(&name);
                    topic.feed.reset();
                    growth.mark_changed();
                    continue;
                }
                let last = *growth.borrow_and_update();
                topic.feed.wake_unless_deleted(last, deletions);
            }
            () = topic.feed.abandoned() => {
                let mut is_watched = topic.watches_remote_appends.lock();
                // A new follower may have seen the flag and rely on this task.
                if !topic.feed.has_followers() {
                    *is_watched = false;
                    return;
                }
            }
        }
    }
}
