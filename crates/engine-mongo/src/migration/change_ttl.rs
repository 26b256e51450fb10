//! Changes the TTL of a topic, including its existing events.
//!
//! The servers remove whatever has expired. For that to be the front of the topic at any moment,
//! even if the migration is interrupted for days, events that expire sooner must precede those that
//! expire later. A shorter TTL is therefore applied from the front on, and to new events last; a
//! longer one to new events first, and then from the end backwards.

use std::time::{Duration, Instant};

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::options::{ReadConcern, ReturnDocument};
use prombus_engine::Durability;
use prombus_proto::Topic;

use super::Report;
use crate::MongoError;
use crate::commit::commit_transaction;
use crate::layout::collections::{EVENTS, PARTS, TOPICS, write_concern};
use crate::layout::numbers::{from_bson, number_in};
use crate::layout::topic_document::{TopicDocument, TtlChange};
use crate::retention::ttl::{expire_at, expiry_start, set_expire_at};
use crate::store::Store;

/// Small enough that no write blocks publishers for long.
const EVENTS_PER_WRITE: i64 = 1000;
/// How many events the final transaction may change, including those published in the meantime.
const MAX_FINAL_EVENTS: i64 = 5 * EVENTS_PER_WRITE;
const MAX_PAUSE: Duration = Duration::from_secs(1);
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Changes the TTL of `topic` to `ttl_ms`.
pub(super) struct TtlChanger<'a> {
    pub(super) store: &'a Store,
    pub(super) topic: &'a Topic,
    pub(super) ttl_ms: Option<i64>,
    pub(super) report: Report<'a>,
}

impl TtlChanger<'_> {
    /// Starts the change, or resumes it from wherever it was interrupted.
    pub(super) async fn run(&self) -> Result<(), MongoError> {
        loop {
            let document = self.document().await?;
            match document.ttl_change {
                Some(TtlChange { shorter_ms: Some(to), position }) if self.ttl_ms == Some(to) => {
                    self.shorten(to, position).await?;
                }
                Some(TtlChange { shorter_ms: Some(_), position }) => {
                    // Undone: the events that have the shorter TTL get the longer one back.
                    let undo = doc! { "$set": { "ttlChange": { "place": position } } };
                    self.update_topic(doc! {}, undo).await?;
                }
                Some(TtlChange { shorter_ms: None, position }) => self.lengthen(position).await?,
                None if document.ttl_ms == self.ttl_ms => return Ok(()),
                None => match self.ttl_ms {
                    Some(to) if document.ttl_ms.is_none_or(|current| current > to) => {
                        let change = doc! { "shorterMs": to, "place": document.first };
                        self.update_topic(doc! {}, doc! { "$set": { "ttlChange": change } })
                            .await?;
                    }
                    longer => self.start_lengthening(longer).await?,
                },
            }
        }
    }

    async fn document(&self) -> Result<TopicDocument, MongoError> {
        let mut session = self.store.read_session().await?;
        Ok(self.store.topic(&mut session, self.topic).await?)
    }

    /// Updates the topic if `condition` holds; creates it if there is no condition.
    async fn update_topic(&self, condition: Document, update: Document) -> Result<(), MongoError> {
        let mut filter = doc! { "_id": self.topic.as_str() };
        let is_conditional = !condition.is_empty();
        filter.extend(condition);
        let topics = self.store.collections.topics();
        topics.update_one(filter, update).upsert(!is_conditional).await?;
        Ok(())
    }

    /// Applies a shorter TTL from the front on, and to new events last.
    async fn shorten(&self, to: i64, mut position: i64) -> Result<(), MongoError> {
        loop {
            let document = self.document().await?;
            position = position.max(document.first);
            (self.report)(from_bson(position - document.first), document.bounds().count())?;
            if document.next - position <= EVENTS_PER_WRITE {
                match self.finish_shortening(to, position).await? {
                    true => return Ok(()),
                    false => continue,
                }
            }
            let started = Instant::now();
            let end = position + EVENTS_PER_WRITE;
            self.set_expiry(&mut None, (position, end), Some(to)).await?;
            self.save_position(position, end).await?;
            position = end;
            pause_after(started).await;
        }
    }

    /// Applies the shorter TTL to the last events and to all future ones at once. Returns `false`
    /// if too many events were published in the meantime.
    async fn finish_shortening(&self, to: i64, position: i64) -> Result<bool, MongoError> {
        let started = Instant::now();
        loop {
            let finished = match self.store.deployment.has_transactions() {
                true => self.finish_in_transaction(to, position).await,
                false => self.finish_standalone(to, position).await,
            };
            match finished {
                Err(error)
                    if error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                        && started.elapsed() < RETRY_FOR =>
                {
                    // A publisher committed at the same moment.
                    (self.report)(0, 0)?;
                    let pause = 1 + self.store.random.next_u64() % 20;
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                finished => return Ok(finished?),
            }
        }
    }

    async fn finish_in_transaction(&self, to: i64, position: i64) -> Result<bool, Error> {
        let mut session = self.store.client.start_session().await?;
        let start = session.start_transaction().read_concern(ReadConcern::local());
        start.write_concern(write_concern(Durability::Fsync)).await?;
        let topics = self.store.collections.database().collection::<TopicDocument>(TOPICS);
        let update = doc! { "$set": { "ttlMs": to }, "$unset": { "ttlChange": "" } };
        let document = topics
            .find_one_and_update(doc! { "_id": self.topic.as_str() }, update)
            .return_document(ReturnDocument::After)
            .session(&mut session)
            .await?;
        let next = document.map_or(1, |document| document.next);
        if next - position > MAX_FINAL_EVENTS {
            session.abort_transaction().await?;
            return Ok(false);
        }
        let mut session = Some(session);
        self.set_expiry(&mut session, (position, next), Some(to)).await?;
        let Some(mut session) = session else { return Ok(false) };
        commit_transaction(&mut session).await.map(|()| true)
    }

    /// Like [`TtlChanger::finish_in_transaction`], except that an event committed at this very
    /// moment may keep the longer TTL.
    async fn finish_standalone(&self, to: i64, position: i64) -> Result<bool, Error> {
        let topics = self.store.collections.topics();
        let by_name = doc! { "_id": self.topic.as_str() };
        let document = topics
            .find_one_and_update(by_name.clone(), doc! { "$set": { "ttlMs": to } })
            .return_document(ReturnDocument::After)
            .await?;
        let next = document.map_or(1, |document| document.next);
        self.set_expiry(&mut None, (position, next), Some(to)).await?;
        topics.update_one(by_name, doc! { "$unset": { "ttlChange": "" } }).await?;
        Ok(true)
    }

    /// Applies a longer TTL to new events.
    async fn start_lengthening(&self, to: Option<i64>) -> Result<(), MongoError> {
        let ttl = match to {
            Some(to) => Bson::from(to),
            None => "$$REMOVE".into(),
        };
        let end = doc! { "$ifNull": ["$next", 1_i64] };
        let update = doc! { "$set": { "ttlMs": ttl, "ttlChange": { "place": end } } };
        let topics = self.store.collections.topics();
        topics.update_one(doc! { "_id": self.topic.as_str() }, vec![update]).await?;
        Ok(())
    }

    /// Applies a longer TTL to existing events, from the end backwards.
    async fn lengthen(&self, mut position: i64) -> Result<(), MongoError> {
        loop {
            let document = self.document().await?;
            (self.report)(from_bson(document.next - position), document.bounds().count())?;
            if position <= document.first {
                // Events missing until now have expired. Once the change is done, missing events
                // are damage, so the first position has to be right before.
                let mut session = self.store.read_session().await?;
                self.store.advance_past_expired(&mut session, self.topic, document).await?;
                let done = doc! { "$unset": { "ttlChange": "" } };
                return self.update_topic(doc! { "ttlChange.place": position }, done).await;
            }
            let started = Instant::now();
            let start = (position - EVENTS_PER_WRITE).max(document.first);
            self.set_expiry(&mut None, (start, position), document.ttl_ms).await?;
            self.save_position(position, start).await?;
            position = start;
            pause_after(started).await;
        }
    }

    async fn document_floor(&self) -> Result<Option<i64>, Error> {
        let mut session = self.store.read_session().await?;
        Ok(self.store.topic(&mut session, self.topic).await?.expiry_floor)
    }

    async fn save_position(&self, before: i64, now: i64) -> Result<(), MongoError> {
        let unchanged = doc! { "ttlChange.place": before };
        self.update_topic(unchanged, doc! { "$set": { "ttlChange.place": now } }).await
    }

    /// Sets when the events of a range expire.
    async fn set_expiry(
        &self,
        session: &mut Option<ClientSession>,
        (start, end): (i64, i64),
        ttl: Option<i64>,
    ) -> Result<(), Error> {
        if start >= end {
            return Ok(());
        }
        let range = doc! { "topic": self.topic.as_str(), "seq": { "$gte": start, "$lt": end } };
        // Set before any event that depends on it is stored, and never changed.
        let floor = self.document_floor().await?;
        self.set_expiry_of_parts(session, &range, ttl, floor).await?;
        let events = self.collection(EVENTS, session.is_some());
        let update = events.update_many(range, set_expire_at(ttl, floor));
        match session {
            Some(session) => update.session(session).await?,
            None => update.await?,
        };
        Ok(())
    }

    /// Parts have no timestamps, so each gets the expiry of its event.
    async fn set_expiry_of_parts(
        &self,
        session: &mut Option<ClientSession>,
        range: &Document,
        ttl: Option<i64>,
        floor: Option<i64>,
    ) -> Result<(), Error> {
        let parts = self.collection(PARTS, false);
        let mut found = parts.find(range.clone()).projection(doc! { "_id": 0, "seq": 1 }).await?;
        let mut seqs: Vec<i64> = Vec::new();
        while found.advance().await? {
            seqs.extend(number_in(found.current(), "seq"));
        }
        seqs.dedup();
        if seqs.is_empty() {
            return Ok(());
        }
        let filter = doc! { "topic": self.topic.as_str(), "seq": { "$in": seqs } };
        let projection = doc! { "_id": 0, "seq": 1, "start": expiry_start(floor) };
        let mut found = self.collection(EVENTS, false).find(filter).projection(projection).await?;
        while found.advance().await? {
            let event = found.current();
            let expires = number_in(event, "start").and_then(|start| expire_at(start, ttl));
            let of_event = doc! { "topic": self.topic.as_str(), "seq": number_in(event, "seq") };
            let update = match expires {
                Some(expires) => doc! { "$set": { "expireAt": expires } },
                None => doc! { "$unset": { "expireAt": "" } },
            };
            let parts = self.collection(PARTS, session.is_some());
            let update = parts.update_many(of_event, update);
            match session {
                Some(session) => update.session(session).await?,
                None => update.await?,
            };
        }
        Ok(())
    }

    fn collection(&self, name: &str, in_transaction: bool) -> mongodb::Collection<RawDocumentBuf> {
        self.store.collections.for_commit(name, Durability::Fsync, in_transaction)
    }
}

/// Pauses for as long as the work took, so that publishers get half of the time.
async fn pause_after(started: Instant) {
    tokio::time::sleep(started.elapsed().min(MAX_PAUSE)).await;
}
