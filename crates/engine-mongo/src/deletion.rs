//! Deletes topics: first the topic's document says so, in the transaction of the commit, and all gateways
//! see the topic as one that does not exist. Then its events are removed in the background, and the
//! document itself last. A gateway that ends in between leaves the rest to the next pass of any gateway.
//!
//! The document says so by `deletedAt`: the topic is deleted as long as that is its end. So the numbering goes
//! on while the document is there: an event that is published meanwhile, also by a program that does not know
//! `deletedAt`, moves the end, and what is left of the deleted events lies below the first position.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use parking_lot::Mutex;
use prombus_proto::{Seq, Topic};
use tokio::time::timeout;

use crate::layout::collections::TOPICS;
use crate::layout::topic_document::TopicDocument;
use crate::store::Store;

/// How often to look for deletions that another gateway did not finish.
const INTERVAL: Duration = Duration::from_secs(60);

/// Finishes deletions of this gateway at once, and those of others from time to time.
pub(crate) async fn finish_periodically(store: Weak<Store>) {
    loop {
        let Some(open) = store.upgrade() else { return };
        if let Err(error) = open.finish_deletions().await {
            tracing::warn!(
                "cannot remove the events of deleted topics: {error}; retrying in a minute"
            );
        }
        let requested = open.deletion_requested.clone();
        drop(open);
        // Either way it is time to look again.
        let _ = timeout(INTERVAL, requested.notified()).await;
    }
}

/// The deletions of this gateway that the change stream has not reported yet: its watchers have been told.
#[derive(Debug, Default)]
pub(crate) struct OwnDeletions(Mutex<HashMap<String, Pending>>);

#[derive(Debug, Default)]
struct Pending {
    deletions: usize,
    /// The last position that the stream reported meanwhile, which is one of the deleted events.
    held_back: Option<Seq>,
}

impl OwnDeletions {
    pub(crate) fn begin(&self, topics: &[String]) {
        let mut pending = self.0.lock();
        topics.iter().for_each(|topic| pending.entry(topic.clone()).or_default().deletions += 1);
    }

    /// The commit failed, so nothing will be reported. Returns what was held back.
    pub(crate) fn undo(&self, topics: &[String]) -> Vec<(Topic, Seq)> {
        let mut pending = self.0.lock();
        let undone = topics.iter().filter_map(|name| {
            let held_back = pending.get(name)?.held_back;
            take(&mut pending, name);
            Some((Topic::new(name).ok()?, held_back?))
        });
        undone.collect()
    }

    /// Returns `true` if the deletion that was reported is one of this gateway.
    pub(crate) fn take_reported(&self, topic: &str) -> bool {
        take(&mut self.0.lock(), topic)
    }

    /// Returns `true` if the stream reports `last` late: this gateway has deleted the event since, or is about to.
    pub(crate) fn hold_back(&self, topic: &str, last: Seq) -> bool {
        let mut pending = self.0.lock();
        let Some(pending) = pending.get_mut(topic) else { return false };
        pending.held_back = pending.held_back.max(Some(last));
        true
    }

    /// A new change stream does not report what was before it.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Returns `false` if no deletion of the topic is pending.
fn take(pending: &mut HashMap<String, Pending>, topic: &str) -> bool {
    let Some(of_topic) = pending.get_mut(topic) else { return false };
    of_topic.deletions -= 1;
    if of_topic.deletions == 0 {
        pending.remove(topic);
    }
    true
}

impl Store {
    async fn finish_deletions(&self) -> Result<(), Error> {
        let topics = self.collections.database().collection::<TopicDocument>(TOPICS);
        let mut deleted = topics.find(TopicDocument::deleted()).await?;
        while let Some(document) = deleted.next().await {
            self.finish_deletion(&document?).await?;
        }
        Ok(())
    }

    async fn finish_deletion(&self, document: &TopicDocument) -> Result<(), Error> {
        let (name, next) = (document.name.as_str(), document.next);
        let still_deleted = doc! { "_id": name, "deletedAt": next, "next": next };
        let has_transactions = self.deployment.has_transactions();
        let _guard = match has_transactions {
            true => None,
            false => Some(self.topic_locks.lock_exclusive().await),
        };
        let mut gone = doc! { "topic": name, "seq": { "$lt": next } };
        // Without transactions, a failed commit may have left events behind the end. There they are not
        // those of a later commit, as long as the topic is deleted and nobody else can commit.
        if !has_transactions
            && self.collections.topics().find_one(still_deleted.clone()).await?.is_some()
        {
            gone.remove("seq");
        }
        self.collections.parts().delete_many(gone.clone()).await?;
        self.collections.events().delete_many(gone).await?;
        // Unless an event was published in the meantime.
        self.collections.topics().delete_one(still_deleted).await?;
        Ok(())
    }
}

/// The update of a topic that is deleted. With `appended`, those are the fields that change because the same
/// commit appends events.
pub(crate) fn deletion_update(document: &TopicDocument, appended: Document) -> Document {
    let mut fields = doc! {
        "first": document.first,
        "next": document.next,
        "bytes": document.bytes,
        "forgottenBytes": document.forgotten_bytes,
        "latestTs": document.latest_ts,
        "forgottenLatestTs": document.forgotten_latest_ts,
        "deletedAt": document.deleted_at,
    };
    fields.extend(appended);
    doc! { "$set": fields, "$unset": { "rule": "", "ttlMs": "", "ttlChange": "" } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_stream_reports_late_is_held_back_until_it_reports_the_deletion() {
        let deletions = OwnDeletions::default();
        let names = ["orders".to_owned()];
        assert!(!deletions.hold_back("orders", Seq(1)));
        deletions.begin(&names);
        assert!(deletions.hold_back("orders", Seq(1)) && deletions.hold_back("orders", Seq(2)));
        assert!(!deletions.hold_back("others", Seq(1)));
        assert!(deletions.take_reported("orders"));
        assert!(!deletions.hold_back("orders", Seq(3)), "it was published after the deletion");
    }

    #[test]
    fn a_deletion_that_failed_gives_back_what_was_held_back() {
        let deletions = OwnDeletions::default();
        let names = ["orders".to_owned(), "others".to_owned()];
        deletions.begin(&names);
        deletions.hold_back("orders", Seq(2));
        let orders = Topic::new("orders").expect("a name");
        assert_eq!(deletions.undo(&names), [(orders, Seq(2))]);
        assert!(!deletions.take_reported("orders"));
    }
}
