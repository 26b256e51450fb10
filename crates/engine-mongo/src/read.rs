//! Pages and places of a topic.

mod bisect;
pub(crate) mod causality;

use mongodb::ClientSession;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::Error;
use prombus_engine::{Bounds, Damaged, Page, ReadBudget, ReadError, StoredEvent};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::error::of_read;
use crate::layout::event_document::{Decoded, decode, seq_of};
use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::store::Store;

/// About the bytes of a small event, to guess how many fill a page.
const SMALL_EVENT_BYTES: usize = 512;
const LEAST_BATCH: usize = 16;
const MOST_BATCH: usize = 10_000;

impl Store {
    pub(crate) async fn read(
        &self,
        topic: &Topic,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Page, ReadError> {
        let mut session = self.reader().await.map_err(of_read)?;
        let mut known = self.topic(&mut session, topic).await.map_err(of_read)?;
        self.tell_what_is_seen(topic, &known);
        loop {
            let start = to_bson(from.0).max(known.first);
            if start >= known.next {
                return Ok(Page::default());
            }
            let found = self.page(&mut session, topic, (start, known.next), budget).await?;
            if found.page.events.first().is_some_and(|event| to_bson(event.seq.0) == start) {
                return Ok(found.page);
            }
            // It was forgotten between the two questions, or its time is over, or it should be there
            // and is not.
            let now = self.topic(&mut session, topic).await.map_err(of_read)?;
            if now.first > start {
                known = now;
                continue;
            }
            let is_there = found.broken_at == Some(Seq(from_bson(start)));
            let passed = self.passed_over(&mut session, topic, &now, start, is_there).await;
            match passed.map_err(of_read)? {
                Some(moved) => known = moved,
                None => return Err(found.missing_from(topic, start, &now).into()),
            }
        }
    }

    /// Events of a range without gaps, as many as there are and the budget allows.
    async fn page(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        (start, end): (i64, i64),
        budget: ReadBudget,
    ) -> Result<Found, ReadError> {
        let range = doc! { "topic": topic.as_str(), "seq": { "$gte": start, "$lt": end } };
        let most = budget.events.max(1);
        let at_once = (budget.bytes / SMALL_EVENT_BYTES).clamp(LEAST_BATCH, MOST_BATCH).min(most);
        let events = self.collections.events();
        let query = events
            .find(range)
            .sort(doc! { "topic": 1, "seq": 1 })
            .limit(i64::try_from(most).unwrap_or(i64::MAX))
            .batch_size(u32::try_from(at_once).unwrap_or(u32::MAX));
        let mut cursor = query.session(&mut *session).await.map_err(of_read)?;
        let mut found = Found::default();
        let mut bytes = 0;
        while cursor.advance(session).await.map_err(of_read)? {
            let due = Seq(from_bson(start) + found.page.events.len() as u64);
            let decoded = decode(cursor.current());
            let event = match decoded {
                Ok(decoded) if decoded.event.seq != due => Err(None),
                Ok(decoded) => {
                    self.whole(session, topic, decoded).await.map_err(of_read)?.map_err(Some)
                }
                Err(detail) => Err(Some(detail)),
            };
            match event {
                Ok(event) => {
                    bytes += event.json.len();
                    if !found.page.events.is_empty() && bytes > budget.bytes {
                        break;
                    }
                    found.page.events.push(event);
                }
                Err(detail) => {
                    found.broken_at = seq_of(cursor.current()).ok();
                    found.detail = detail;
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The event with its JSON, or what is wrong with it.
    async fn whole(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        decoded: Decoded,
    ) -> Result<Result<StoredEvent, String>, Error> {
        if decoded.parts.is_none() {
            return Ok(Ok(decoded.event));
        }
        let of_event = doc! { "topic": topic.as_str(), "seq": to_bson(decoded.event.seq.0) };
        let parts = self.collections.parts();
        let query = parts.find(of_event).sort(doc! { "topic": 1, "seq": 1, "part": 1 });
        let mut cursor = query.session(&mut *session).await?;
        let mut parts: Vec<RawDocumentBuf> = Vec::new();
        while cursor.advance(session).await? {
            parts.push(cursor.current().to_owned());
        }
        Ok(decoded.with_parts(&parts))
    }

    pub(crate) async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        let mut session = self.reader().await.map_err(of_read)?;
        let known = self.topic(&mut session, topic).await.map_err(of_read)?;
        self.tell_what_is_seen(topic, &known);
        Ok(self.settled(&mut session, topic, known).await.map_err(of_read)?.bounds())
    }

    /// What a reader sees stays, so whoever watches may know of it, too, before the change stream tells.
    fn tell_what_is_seen(&self, topic: &Topic, known: &TopicDocument) {
        // A name that somebody only asked for is not worth a channel.
        if known.last() > Seq::ZERO {
            self.growth.tell(topic, known.last());
        }
    }

    pub(crate) async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        let mut session = self.reader().await.map_err(of_read)?;
        let known = self.topic(&mut session, topic).await.map_err(of_read)?;
        let place = self.place_of_time(&mut session, topic, &known, ts).await.map_err(of_read)?;
        Ok(Seq(from_bson(place)))
    }

    /// The first event kept with `ts` or a later time.
    ///
    /// Times need not rise; the latest time so far does, and where it reaches `ts` for the first time
    /// is that event, unless it was forgotten.
    pub(crate) async fn place_of_time(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        ts: Timestamp,
    ) -> Result<i64, Error> {
        let least = to_bson(ts.0);
        let kept = (known.first, known.next);
        if known.forgotten_latest_ts.is_none_or(|forgotten| forgotten < least) {
            return self.first_reaching(session, topic, kept, "latestTs", least).await;
        }
        // Something forgotten was as late as that, so sums say nothing. What is kept is about as
        // late as what was forgotten last, so it is found among the first ones.
        let wanted = doc! {
            "topic": topic.as_str(),
            "seq": { "$gte": known.first, "$lt": known.next },
            "ts": { "$gte": least },
        };
        let events = self.collections.events();
        let found = events
            .find_one(wanted)
            .sort(doc! { "topic": 1, "seq": 1 })
            .hint(mongodb::options::Hint::Keys(doc! { "topic": 1, "seq": 1 }))
            .projection(doc! { "_id": 0, "seq": 1 })
            .session(session)
            .await?;
        Ok(found.and_then(|event| number_in(&event, "seq")).unwrap_or(known.next))
    }

    pub(crate) async fn seek_id(
        &self,
        topic: &Topic,
        id: &EventId,
    ) -> Result<Option<Seq>, ReadError> {
        let mut session = self.reader().await.map_err(of_read)?;
        let wanted = doc! { "topic": topic.as_str(), "id": id.to_string() };
        let events = self.collections.events();
        let found = events
            .find_one(wanted)
            .projection(doc! { "_id": 0, "seq": 1 })
            .session(&mut session)
            .await
            .map_err(of_read)?;
        let Some(seq) = found.and_then(|event| number_in(&event, "seq")) else { return Ok(None) };
        let known = self.topic(&mut session, topic).await.map_err(of_read)?;
        let is_kept = (known.first..known.next).contains(&seq);
        Ok(is_kept.then_some(Seq(from_bson(seq))))
    }
}

/// A page, and what ended it if that was neither its budget nor the end of the topic.
#[derive(Default)]
struct Found {
    page: Page,
    /// The next event there is, behind a gap or not readable.
    broken_at: Option<Seq>,
    /// What is wrong with it; nothing where it is fine and those before it are missing.
    detail: Option<String>,
}

impl Found {
    fn missing_from(self, topic: &Topic, start: i64, known: &TopicDocument) -> Damaged {
        let first = Seq(from_bson(start));
        let (last, detail) = match (self.broken_at, self.detail) {
            (Some(at), Some(detail)) => (at, detail),
            (Some(at), None) => (at.previous(), "missing in the collection events".into()),
            (None, _) => (known.last(), "missing in the collection events".into()),
        };
        Damaged::Events { topic: topic.clone(), first, last: last.max(first), detail }
    }
}
