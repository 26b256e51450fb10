//! Reads pages of a topic and finds positions in it.
//!
//! - `bisect`: searches by a field that rises with `seq`.
//! - `causality`: sessions that see everything this engine knows of.

mod bisect;
pub(crate) mod causality;

use std::collections::HashMap;

use mongodb::ClientSession;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::Error;
use prombus_engine::{Bounds, Damaged, Page, ReadBudget, ReadError, StoredEvent};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::error::read_error;
use crate::layout::event_document::{DecodedEvent, decode, seq_of};
use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::store::Store;

/// The typical size of a small event, to guess how many fill a page.
const SMALL_EVENT_BYTES: usize = 512;
const MIN_BATCH_SIZE: usize = 16;
const MAX_BATCH_SIZE: usize = 10_000;
/// Less than a megabyte with the longest ids.
const IDS_PER_QUERY: usize = 2000;

impl Store {
    pub(crate) async fn read(
        &self,
        topic: &Topic,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Page, ReadError> {
        let mut session = self.read_session().await.map_err(read_error)?;
        let mut document = self.topic(&mut session, topic).await.map_err(read_error)?;
        self.notify_watchers(topic, &document);
        loop {
            let start = to_bson(from.0).max(document.first);
            if start >= document.next {
                return Ok(Page::default());
            }
            let scan = self.scan_page(&mut session, topic, (start, document.next), budget).await?;
            if scan.page.events.first().is_some_and(|event| to_bson(event.seq.0) == start) {
                return Ok(scan.page);
            }
            // The event was trimmed between the two queries, or has expired, or is damaged.
            let now = self.topic(&mut session, topic).await.map_err(read_error)?;
            if now.first > start {
                document = now;
                continue;
            }
            let exists = scan.stopped_at == Some(Seq(from_bson(start)));
            let advanced = self.skip_expired(&mut session, topic, &now, start, exists).await;
            match advanced.map_err(read_error)? {
                Some(advanced) => document = advanced,
                None => return Err(scan.damage(topic, start, &now).into()),
            }
        }
    }

    /// Reads consecutive events of a range, as many as there are and the budget allows.
    async fn scan_page(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        (start, end): (i64, i64),
        budget: ReadBudget,
    ) -> Result<PageScan, ReadError> {
        let range = doc! { "topic": topic.as_str(), "seq": { "$gte": start, "$lt": end } };
        let limit = budget.events.max(1);
        let batch_size =
            (budget.bytes / SMALL_EVENT_BYTES).clamp(MIN_BATCH_SIZE, MAX_BATCH_SIZE).min(limit);
        let events = self.collections.events();
        let query = events
            .find(range)
            .sort(doc! { "topic": 1, "seq": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .batch_size(u32::try_from(batch_size).unwrap_or(u32::MAX));
        let mut cursor = query.session(&mut *session).await.map_err(read_error)?;
        let mut scan = PageScan::default();
        let mut bytes = 0;
        while cursor.advance(session).await.map_err(read_error)? {
            let expected = Seq(from_bson(start) + scan.page.events.len() as u64);
            let event = match decode(cursor.current()) {
                Ok(decoded) if decoded.event.seq != expected => Err(None),
                Ok(decoded) => {
                    self.complete(session, topic, decoded).await.map_err(read_error)?.map_err(Some)
                }
                Err(detail) => Err(Some(detail)),
            };
            match event {
                Ok(event) => {
                    bytes += event.json.len();
                    if !scan.page.events.is_empty() && bytes > budget.bytes {
                        break;
                    }
                    scan.page.events.push(event);
                }
                Err(detail) => {
                    scan.stopped_at = seq_of(cursor.current()).ok();
                    scan.detail = detail;
                    break;
                }
            }
        }
        Ok(scan)
    }

    /// Reads the parts of a large event. The inner error says what is wrong with them.
    async fn complete(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        decoded: DecodedEvent,
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
        let mut session = self.read_session().await.map_err(read_error)?;
        let document = self.topic(&mut session, topic).await.map_err(read_error)?;
        self.notify_watchers(topic, &document);
        let advanced = self.advance_past_expired(&mut session, topic, document).await;
        Ok(advanced.map_err(read_error)?.bounds())
    }

    /// Tells watchers what a reader has just seen, which may be before the change stream reports
    /// it.
    fn notify_watchers(&self, topic: &Topic, document: &TopicDocument) {
        // A topic that does not exist needs no channel.
        if document.last() > Seq::ZERO {
            self.watchers.notify(topic, document.last());
        }
    }

    pub(crate) async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        let mut session = self.read_session().await.map_err(read_error)?;
        let document = self.topic(&mut session, topic).await.map_err(read_error)?;
        let found = self.first_at_time(&mut session, topic, &document, ts).await;
        Ok(Seq(from_bson(found.map_err(read_error)?)))
    }

    /// Returns the first retained event with a timestamp of `ts` or later.
    ///
    /// Timestamps need not rise, but the latest timestamp so far does. The event where it first
    /// reaches `ts` is the one, unless it was trimmed.
    pub(crate) async fn first_at_time(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        ts: Timestamp,
    ) -> Result<i64, Error> {
        let least = to_bson(ts.0);
        if document.forgotten_latest_ts.is_none_or(|trimmed| trimmed < least) {
            let range = (document.first, document.next);
            return self.first_at_least(session, topic, range, "$latestTs", least).await;
        }
        // A trimmed event was as late as `ts`, so the totals say nothing. The retained events are
        // about as late as the last trimmed one, so one of the first of them matches.
        let filter = doc! {
            "topic": topic.as_str(),
            "seq": { "$gte": document.first, "$lt": document.next },
            "ts": { "$gte": least },
        };
        let events = self.collections.events();
        let found = events
            .find_one(filter)
            .sort(doc! { "topic": 1, "seq": 1 })
            .hint(mongodb::options::Hint::Keys(doc! { "topic": 1, "seq": 1 }))
            .projection(doc! { "_id": 0, "seq": 1 })
            .session(session)
            .await?;
        Ok(found.and_then(|event| number_in(&event, "seq")).unwrap_or(document.next))
    }

    pub(crate) async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut session = self.read_session().await.map_err(read_error)?;
        let found = self.stored_ids(&mut session, topic, ids).await.map_err(read_error)?;
        if found.is_empty() {
            return Ok(vec![None; ids.len()]);
        }
        let document = self.topic(&mut session, topic).await.map_err(read_error)?;
        let retained = document.first..document.next;
        let seek = |id: &EventId| {
            let seq = found.get(id.to_string().as_str()).filter(|seq| retained.contains(seq))?;
            Some(Seq(from_bson(*seq)))
        };
        Ok(ids.iter().map(seek).collect())
    }

    /// Returns those of `ids` that are stored, with their positions, trimmed ones included.
    async fn stored_ids(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<HashMap<String, i64>, Error> {
        let events = self.collections.events();
        let mut found = HashMap::new();
        for ids in ids.chunks(IDS_PER_QUERY) {
            let ids: Vec<_> = ids.iter().map(EventId::to_string).collect();
            let query = events
                .find(doc! { "topic": topic.as_str(), "id": { "$in": ids } })
                .projection(doc! { "_id": 0, "id": 1, "seq": 1 });
            let mut cursor = query.session(&mut *session).await?;
            while cursor.advance(session).await? {
                let event = cursor.current();
                if let (Ok(id), Some(seq)) = (event.get_str("id"), number_in(event, "seq")) {
                    found.insert(id.to_owned(), seq);
                }
            }
        }
        Ok(found)
    }
}

/// A page, and what ended it if that was neither the budget nor the end of the topic.
#[derive(Default)]
struct PageScan {
    page: Page,
    /// The next existing event, which follows a gap or cannot be decoded.
    stopped_at: Option<Seq>,
    /// What is wrong with that event; `None` if it is intact and those before it are missing.
    detail: Option<String>,
}

impl PageScan {
    fn damage(self, topic: &Topic, start: i64, document: &TopicDocument) -> Damaged {
        let first = Seq(from_bson(start));
        let (last, detail) = match (self.stopped_at, self.detail) {
            (Some(at), Some(detail)) => (at, detail),
            (Some(at), None) => (at.previous(), "missing in the collection events".into()),
            (None, _) => (document.last(), "missing in the collection events".into()),
        };
        Damaged::Events { topic: topic.clone(), first, last: last.max(first), detail }
    }
}
