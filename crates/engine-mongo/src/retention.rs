//! Trims topics: first the topic document moves its first position, then the events are deleted.
//!
//! - `age`: when events were stored.
//! - `ttl`: when the events of a topic with a time to live expire.
//! - `expired_events`: events that the servers removed at that time.
//! - `ttl_warnings`: warns once about a TTL shorter than the retention.

mod age;
mod expired_events;
pub(crate) mod ttl;
pub(crate) mod ttl_warnings;

use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::ReturnDocument;
use prombus_engine::{Bounds, CommitError, Retention};
use prombus_proto::{Seq, Topic};

use crate::error::{commit_error, is_duplicate_key};
use crate::layout::event_document::Totals;
use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::retention::age::stored_at;
use crate::retention::expired_events::set_first;
use crate::store::Store;

enum TrimOutcome {
    Done(TopicDocument),
    /// Another gateway changed the topic in the meantime.
    Retry,
    /// A newer retention rule was applied.
    StaleRule,
}

impl Store {
    pub(crate) async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        let mut session = self.read_session().await.map_err(commit_error)?;
        loop {
            let document = self.topic(&mut session, topic).await.map_err(commit_error)?;
            let outcome =
                self.trim_below(&mut session, topic, &document, to_bson(below.0), None).await;
            if let TrimOutcome::Done(trimmed) = outcome.map_err(commit_error)? {
                return Ok(trimmed.bounds());
            }
        }
    }

    pub(crate) async fn retain(
        &self,
        topic: &Topic,
        rule: &Retention,
    ) -> Result<Bounds, CommitError> {
        let mut session = self.read_session().await.map_err(commit_error)?;
        let revision = to_bson(rule.revision);
        self.record_rule(&mut session, topic, revision).await?;
        loop {
            let document = self.topic(&mut session, topic).await.map_err(commit_error)?;
            let advanced = self.advance_past_expired(&mut session, topic, document).await;
            let document = advanced.map_err(commit_error)?;
            self.warn_of_a_shorter_ttl(&document, rule);
            let below = self.first_retained(&mut session, topic, &document, rule).await;
            let below = below.map_err(commit_error)?;
            let outcome =
                self.trim_below(&mut session, topic, &document, below, Some(revision)).await;
            match outcome.map_err(commit_error)? {
                TrimOutcome::Done(trimmed) => return Ok(trimmed.bounds()),
                TrimOutcome::Retry => {}
                TrimOutcome::StaleRule => {
                    return Err(self.stale_rule(&mut session, topic, revision).await);
                }
            }
        }
    }

    /// A rule cannot retain events that the servers remove earlier.
    fn warn_of_a_shorter_ttl(&self, document: &TopicDocument, rule: &Retention) {
        let Some(ttl) = document.ttl_ms.map(from_bson) else { return };
        let is_shorter = rule.max_age_ms.is_none_or(|age| age > ttl);
        if is_shorter && self.ttl_warnings.insert(&document.name, ttl) {
            tracing::warn!(
                topic = document.name,
                "the database removes events after {ttl} ms, before the topic's retention ends; \
                 run prombus migrate"
            );
        }
    }

    /// Records `revision` as the newest rule, unless a newer one was applied.
    async fn record_rule(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        revision: i64,
    ) -> Result<(), CommitError> {
        let not_newer = doc! {
            "_id": topic.as_str(),
            "$or": [{ "rule": { "$exists": false } }, { "rule": { "$lte": revision } }],
        };
        let topics = self.collections.topics();
        let recorded = topics
            .update_one(not_newer, doc! { "$set": { "rule": revision } })
            .upsert(true)
            .session(&mut *session)
            .await;
        match recorded {
            Ok(_) => Ok(()),
            // The document exists and did not match, so its rule is newer.
            Err(error) if is_duplicate_key(&error) => {
                Err(self.stale_rule(session, topic, revision).await)
            }
            Err(error) => Err(commit_error(error)),
        }
    }

    async fn stale_rule(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        offered: i64,
    ) -> CommitError {
        match self.topic(session, topic).await {
            Ok(document) => CommitError::StaleRule {
                topic: topic.clone(),
                offered: from_bson(offered),
                applied: from_bson(document.rule.unwrap_or(offered)),
            },
            Err(error) => commit_error(error),
        }
    }

    /// Returns the first event that `rule` retains.
    async fn first_retained(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        rule: &Retention,
    ) -> Result<i64, Error> {
        let mut below = document.first;
        if let Some(age) = rule.max_age_ms {
            let oldest = self.clock.now().minus_ms(age);
            let range = (document.first, document.next);
            let (stored_at, oldest) = (stored_at(self.clock.now()), to_bson(oldest.0));
            let first = self.first_at_least(session, topic, range, stored_at, oldest).await?;
            below = below.max(first);
        }
        if let Some(max_bytes) = rule.max_bytes {
            // The first event whose total reaches this many bytes is the last to be trimmed: what
            // follows it fits.
            let excess = document.bytes.saturating_sub(to_bson(max_bytes));
            if excess > document.forgotten_bytes {
                let range = (document.first, document.next);
                let last = self.first_at_least(session, topic, range, "$bytes", excess).await?;
                below = below.max((last + 1).min(document.next));
            }
        }
        Ok(below)
    }

    /// Trims the events below `below`, provided that the topic is still as `document`, and that no
    /// rule newer than `revision` was applied.
    async fn trim_below(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        below: i64,
        revision: Option<i64>,
    ) -> Result<TrimOutcome, Error> {
        let below = below.min(document.next);
        if below <= document.first {
            // An earlier trim may have been interrupted before it deleted the events.
            self.delete_before(session, topic, document.first).await?;
            return Ok(TrimOutcome::Done(document.clone()));
        }
        let events = self.collections.events();
        let last_trimmed = events
            .find_one(doc! { "topic": topic.as_str(), "seq": below - 1 })
            .projection(doc! { "_id": 0, "bytes": 1, "latestTs": 1 })
            .session(&mut *session)
            .await?;
        let Some(last_trimmed) = last_trimmed else {
            return self.trim_below_a_gap(session, topic, document, below, revision).await;
        };
        let before = Totals {
            bytes: number_in(&last_trimmed, "bytes").unwrap_or(document.forgotten_bytes),
            latest_ts: number_in(&last_trimmed, "latestTs").unwrap_or(document.latest_ts),
        };
        self.move_first(session, topic, document, below, set_first(below, before), revision).await
    }

    /// Like [`Store::trim_below`] if the last event to trim is missing: another gateway trimmed it,
    /// or it has expired, or it is damaged, which must not keep the others from being trimmed.
    async fn trim_below_a_gap(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        below: i64,
        revision: Option<i64>,
    ) -> Result<TrimOutcome, Error> {
        let now = self.topic(session, topic).await?;
        if now.first != document.first {
            return Ok(TrimOutcome::Retry);
        }
        let (_, before) = self.first_existing(session, topic, document, below).await?;
        self.move_first(session, topic, document, below, set_first(below, before), revision).await
    }

    /// Applies `change`, which moves the first position to `first`, provided that the topic is
    /// still as `document`. Then deletes what precedes it.
    async fn move_first(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        first: i64,
        change: Document,
        revision: Option<i64>,
    ) -> Result<TrimOutcome, Error> {
        // The document of a topic that was never trimmed may lack `first`.
        let same_first = match document.first {
            1 => doc! { "$in": [1, null] },
            first => doc! { "$eq": first },
        };
        let mut unchanged = doc! { "_id": topic.as_str(), "first": same_first };
        if let Some(revision) = revision {
            unchanged.insert("rule", revision);
        }
        let topics = self.collections.topics();
        let changed = topics
            .find_one_and_update(unchanged, change)
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?;
        let Some(trimmed) = changed else {
            let now = self.topic(session, topic).await?;
            let is_stale = revision.is_some_and(|mine| now.rule.is_some_and(|rule| rule > mine));
            return Ok(if is_stale { TrimOutcome::StaleRule } else { TrimOutcome::Retry });
        };
        self.delete_before(session, topic, first).await?;
        self.causality.advance_to(session.operation_time());
        Ok(TrimOutcome::Done(trimmed))
    }

    async fn delete_before(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        first: i64,
    ) -> Result<(), Error> {
        let trimmed = doc! { "topic": topic.as_str(), "seq": { "$lt": first } };
        // Usually there are none, and a query costs less than two deletes that match nothing.
        let events = self.collections.events();
        let one = events.find_one(trimmed.clone()).projection(doc! { "_id": 1 });
        if one.session(&mut *session).await?.is_none() {
            return Ok(());
        }
        self.collections.parts().delete_many(trimmed.clone()).session(&mut *session).await?;
        let by_position = mongodb::options::Hint::Keys(doc! { "topic": 1, "seq": 1 });
        events.delete_many(trimmed).hint(by_position).session(session).await?;
        Ok(())
    }
}
