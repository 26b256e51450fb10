//! Changing how long a topic keeps its events, also for those that are there.
//!
//! The servers remove whatever is over. So that this is the front of a topic in any moment, also when
//! the work stops in the middle for days, what ends sooner has to be before what ends later: a shorter
//! time is given from the front on, and to new events last; a longer one to new events first, and then
//! from the end on.

use std::time::{Duration, Instant};

use mongodb::ClientSession;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::options::{ReadConcern, ReturnDocument};
use prombus_engine::Durability;
use prombus_proto::Topic;

use super::Report;
use crate::MongoError;
use crate::commit::finish;
use crate::layout::collections::{EVENTS, PARTS, TOPICS, write_concern};
use crate::layout::numbers::{from_bson, number_in};
use crate::layout::topic_document::{TopicDocument, TtlChange};
use crate::retention::ttl::{expire_at, set_expire_at};
use crate::store::Store;

/// Few enough that nobody waits for one write.
const EVENTS_AT_ONCE: i64 = 1000;
/// How many may have come while the last ones were changed.
const EVENTS_AT_LAST: i64 = 5 * EVENTS_AT_ONCE;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// A topic whose time to live is to become `wanted`.
pub(super) struct TtlWork<'a> {
    pub(super) store: &'a Store,
    pub(super) topic: &'a Topic,
    pub(super) wanted: Option<i64>,
    pub(super) report: Report<'a>,
}

impl TtlWork<'_> {
    /// Does it, from wherever it is.
    pub(super) async fn bring(&self) -> Result<(), MongoError> {
        loop {
            let known = self.known().await?;
            match known.ttl_change {
                Some(TtlChange { shorter_ms: Some(to), place }) if self.wanted == Some(to) => {
                    self.shorten(to, place).await?;
                }
                Some(TtlChange { shorter_ms: Some(_), place }) => {
                    // Back to what it was: those that have the shorter one get the longer again.
                    let back = doc! { "$set": { "ttlChange": { "place": place } } };
                    self.change_topic(doc! {}, back).await?;
                }
                Some(TtlChange { shorter_ms: None, place }) => self.lengthen(place).await?,
                None if known.ttl_ms == self.wanted => return Ok(()),
                None => match self.wanted {
                    Some(to) if known.ttl_ms.is_none_or(|now| now > to) => {
                        let change = doc! { "shorterMs": to, "place": known.first };
                        self.change_topic(doc! {}, doc! { "$set": { "ttlChange": change } })
                            .await?;
                    }
                    wanted => self.begin_longer(wanted).await?,
                },
            }
        }
    }

    async fn known(&self) -> Result<TopicDocument, MongoError> {
        let mut session = self.store.reader().await?;
        Ok(self.store.topic(&mut session, self.topic).await?)
    }

    async fn change_topic(&self, and: Document, change: Document) -> Result<(), MongoError> {
        let mut wanted = doc! { "_id": self.topic.as_str() };
        let is_conditional = !and.is_empty();
        wanted.extend(and);
        let topics = self.store.collections.topics();
        topics.update_one(wanted, change).upsert(!is_conditional).await?;
        Ok(())
    }

    /// From the front on; new events last.
    async fn shorten(&self, to: i64, mut place: i64) -> Result<(), MongoError> {
        loop {
            let known = self.known().await?;
            place = place.max(known.first);
            (self.report)(from_bson(place - known.first), known.bounds().count())?;
            if known.next - place <= EVENTS_AT_ONCE {
                match self.finish_shorter(to, place).await? {
                    true => return Ok(()),
                    false => continue,
                }
            }
            let began = Instant::now();
            let end = place + EVENTS_AT_ONCE;
            self.give(&mut None, (place, end), Some(to)).await?;
            self.note_place(place, end).await?;
            place = end;
            pause_after(began).await;
        }
    }

    /// Gives the last ones and all that come the shorter time, in one moment. Says no where too many
    /// came meanwhile.
    async fn finish_shorter(&self, to: i64, place: i64) -> Result<bool, MongoError> {
        let began = Instant::now();
        loop {
            let finished = match self.store.deployment.has_transactions() {
                true => self.finish_in_transaction(to, place).await,
                false => self.finish_alone(to, place).await,
            };
            match finished {
                Err(error)
                    if error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                        && began.elapsed() < GIVEN_UP_AFTER =>
                {
                    // Somebody published in this moment.
                    (self.report)(0, 0)?;
                    let pause = 1 + self.store.random.next_u64() % 20;
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                finished => return Ok(finished?),
            }
        }
    }

    async fn finish_in_transaction(&self, to: i64, place: i64) -> Result<bool, Error> {
        let mut session = self.store.client.start_session().await?;
        let start = session.start_transaction().read_concern(ReadConcern::local());
        start.write_concern(write_concern(Durability::Fsync)).await?;
        let topics = self.store.collections.database().collection::<TopicDocument>(TOPICS);
        let change = doc! { "$set": { "ttlMs": to }, "$unset": { "ttlChange": "" } };
        let known = topics
            .find_one_and_update(doc! { "_id": self.topic.as_str() }, change)
            .return_document(ReturnDocument::After)
            .session(&mut session)
            .await?;
        let next = known.map_or(1, |known| known.next);
        if next - place > EVENTS_AT_LAST {
            session.abort_transaction().await?;
            return Ok(false);
        }
        let mut session = Some(session);
        self.give(&mut session, (place, next), Some(to)).await?;
        let Some(mut session) = session else { return Ok(false) };
        finish(&mut session).await.map(|()| true)
    }

    /// As in a transaction, but what is committed in this very moment may keep the longer time.
    async fn finish_alone(&self, to: i64, place: i64) -> Result<bool, Error> {
        let topics = self.store.collections.topics();
        let by_name = doc! { "_id": self.topic.as_str() };
        let known = topics
            .find_one_and_update(by_name.clone(), doc! { "$set": { "ttlMs": to } })
            .return_document(ReturnDocument::After)
            .await?;
        let next = known.map_or(1, |known| known.next);
        self.give(&mut None, (place, next), Some(to)).await?;
        topics.update_one(by_name, doc! { "$unset": { "ttlChange": "" } }).await?;
        Ok(true)
    }

    /// New events first.
    async fn begin_longer(&self, to: Option<i64>) -> Result<(), MongoError> {
        let ttl = match to {
            Some(to) => mongodb::bson::Bson::from(to),
            None => "$$REMOVE".into(),
        };
        let end = doc! { "$ifNull": ["$next", 1_i64] };
        let change = doc! { "$set": { "ttlMs": ttl, "ttlChange": { "place": end } } };
        let topics = self.store.collections.topics();
        topics.update_one(doc! { "_id": self.topic.as_str() }, vec![change]).await?;
        Ok(())
    }

    /// From the end on.
    async fn lengthen(&self, mut place: i64) -> Result<(), MongoError> {
        loop {
            let known = self.known().await?;
            (self.report)(from_bson(known.next - place), known.bounds().count())?;
            if place <= known.first {
                // What went until now went because its time was over. What is missing later did not.
                let mut session = self.store.reader().await?;
                self.store.settled(&mut session, self.topic, known).await?;
                let done = doc! { "$unset": { "ttlChange": "" } };
                return self.change_topic(doc! { "ttlChange.place": place }, done).await;
            }
            let began = Instant::now();
            let start = (place - EVENTS_AT_ONCE).max(known.first);
            self.give(&mut None, (start, place), known.ttl_ms).await?;
            self.note_place(place, start).await?;
            place = start;
            pause_after(began).await;
        }
    }

    async fn note_place(&self, before: i64, now: i64) -> Result<(), MongoError> {
        let as_before = doc! { "ttlChange.place": before };
        self.change_topic(as_before, doc! { "$set": { "ttlChange.place": now } }).await
    }

    /// Gives events of a range the end that `ttl` means for them.
    async fn give(
        &self,
        session: &mut Option<ClientSession>,
        (start, end): (i64, i64),
        ttl: Option<i64>,
    ) -> Result<(), Error> {
        if start >= end {
            return Ok(());
        }
        let range = doc! { "topic": self.topic.as_str(), "seq": { "$gte": start, "$lt": end } };
        self.give_parts(session, &range, ttl).await?;
        let events = self.collection(EVENTS, session.is_some());
        let change = events.update_many(range, set_expire_at(ttl));
        match session {
            Some(session) => change.session(session).await?,
            None => change.await?,
        };
        Ok(())
    }

    /// Parts know no times; their events do.
    async fn give_parts(
        &self,
        session: &mut Option<ClientSession>,
        range: &Document,
        ttl: Option<i64>,
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
        let wanted = doc! { "topic": self.topic.as_str(), "seq": { "$in": seqs } };
        let times = doc! { "_id": 0, "seq": 1, "latestTs": 1 };
        let mut found = self.collection(EVENTS, false).find(wanted).projection(times).await?;
        while found.advance().await? {
            let event = found.current();
            let end = number_in(event, "latestTs").and_then(|latest| expire_at(latest, ttl));
            let of_event = doc! { "topic": self.topic.as_str(), "seq": number_in(event, "seq") };
            let change = match end {
                Some(end) => doc! { "$set": { "expireAt": end } },
                None => doc! { "$unset": { "expireAt": "" } },
            };
            let parts = self.collection(PARTS, session.is_some());
            let change = parts.update_many(of_event, change);
            match session {
                Some(session) => change.session(session).await?,
                None => change.await?,
            };
        }
        Ok(())
    }

    fn collection(&self, name: &str, in_transaction: bool) -> mongodb::Collection<RawDocumentBuf> {
        self.store.collections.for_commit(name, Durability::Fsync, in_transaction)
    }
}

/// Half of the time belongs to those who publish.
async fn pause_after(began: Instant) {
    tokio::time::sleep(began.elapsed().min(LONGEST_PAUSE)).await;
}
