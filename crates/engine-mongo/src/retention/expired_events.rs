//! Events that the servers removed because they expired: trimmed, not damaged.
//!
//! The servers remove events one by one in the order of `expireAt`, and report it to nobody.
//! A gateway that finds the front of a topic missing advances the topic's first position, as a trim does.
//! Events that expire in the same moment may disappear in any order, so a gap also belongs to the
//! front if the event before it has expired and merely waits to be removed. A gap behind an event
//! that has not expired is damage.

use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use prombus_proto::Topic;

use crate::layout::event_document::Totals;
use crate::layout::numbers::number_in;
use crate::layout::topic_document::TopicDocument;
use crate::retention::ttl::has_expired;
use crate::store::Store;

impl Store {
    /// Advances the first position of a topic past the events that the servers removed. Returns the
    /// topic as it is then.
    pub(crate) async fn advance_past_expired(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: TopicDocument,
    ) -> Result<TopicDocument, Error> {
        if !document.expires() || document.first >= document.next {
            return Ok(document);
        }
        let retained = doc! { "$gte": document.first, "$lt": document.next };
        let events = self.collections.events();
        let existing = events
            .find_one(doc! { "topic": topic.as_str(), "seq": retained })
            .sort(doc! { "topic": 1, "seq": 1 })
            .projection(doc! { "_id": 0, "seq": 1 })
            .session(&mut *session)
            .await?;
        let first = existing.and_then(|event| number_in(&event, "seq")).unwrap_or(document.next);
        match first == document.first {
            true => Ok(document),
            false => self.advance_first(session, topic, &document, first).await,
        }
    }

    /// Like [`Store::advance_past_expired`], for a reader that found the event at `start` missing
    /// or, if it `exists`, not readable. Returns `None` if that is damage.
    pub(crate) async fn skip_expired(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        start: i64,
        exists: bool,
    ) -> Result<Option<TopicDocument>, Error> {
        if !document.expires() {
            return Ok(None);
        }
        // The parts of an existing event may have been removed before the event itself.
        let end = if exists { start + 1 } else { start };
        let before = doc! { "$gte": document.first, "$lt": end };
        let events = self.collections.events();
        let last_before = events
            .find_one(doc! { "topic": topic.as_str(), "seq": before })
            .sort(doc! { "topic": -1, "seq": -1 })
            .projection(doc! { "_id": 0, "hasExpired": has_expired() })
            .session(&mut *session)
            .await?;
        let is_front =
            last_before.is_none_or(|event| event.get_bool("hasExpired").unwrap_or(false));
        match is_front {
            true => Ok(Some(self.advance_first(session, topic, document, end).await?)),
            false => Ok(None),
        }
    }

    /// Advances the first position to the first existing event from `from` on, unless another
    /// gateway has moved it. Returns the topic as it is then.
    async fn advance_first(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        from: i64,
    ) -> Result<TopicDocument, Error> {
        let (first, before) = self.first_existing(session, topic, document, from).await?;
        let change = set_first(first, before);
        self.move_first(session, topic, document, first, change, None).await?;
        self.topic(session, topic).await
    }

    /// Returns the first existing event from `from` on and the totals of everything before it; the
    /// end of the topic if there is none.
    pub(crate) async fn first_existing(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        document: &TopicDocument,
        from: i64,
    ) -> Result<(i64, Totals), Error> {
        let range = doc! { "topic": topic.as_str(), "seq": { "$gte": from, "$lt": document.next } };
        let json_bytes = doc! { "$strLenBytes": { "$ifNull": ["$json", ""] } };
        let events = self.collections.events();
        let found = events
            .find_one(range)
            .sort(doc! { "topic": 1, "seq": 1 })
            .projection(doc! {
                "_id": 0, "seq": 1, "bytes": 1, "latestTs": 1, "parts": 1, "jsonBytes": json_bytes,
            })
            .session(&mut *session)
            .await?;
        let all = Totals { bytes: document.bytes, latest_ts: document.latest_ts };
        let Some(found) = found else { return Ok((document.next, all)) };
        let seq = number_in(&found, "seq").unwrap_or(from);
        let own_bytes = match number_in(&found, "parts") {
            Some(_) => self.bytes_of_parts(session, topic, seq).await?,
            None => number_in(&found, "jsonBytes").unwrap_or(0),
        };
        let bytes_up_to_it = number_in(&found, "bytes").unwrap_or(all.bytes);
        // An upper bound is enough: a search by time then compares single events, and finds this
        // one.
        let latest_ts = number_in(&found, "latestTs").unwrap_or(all.latest_ts);
        let bytes = (bytes_up_to_it - own_bytes).clamp(document.forgotten_bytes, all.bytes);
        Ok((seq, Totals { bytes, latest_ts }))
    }

    async fn bytes_of_parts(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        seq: i64,
    ) -> Result<i64, Error> {
        let parts = self.collections.parts();
        let mut found = parts
            .find(doc! { "topic": topic.as_str(), "seq": seq })
            .projection(doc! { "_id": 0, "jsonBytes": { "$binarySize": "$json" } })
            .session(&mut *session)
            .await?;
        let mut bytes = 0;
        while found.advance(session).await? {
            bytes += number_in(found.current(), "jsonBytes").unwrap_or(0);
        }
        Ok(bytes)
    }
}

/// The update that lets a topic start at `first`, with `before` as the totals of what precedes it.
pub(crate) fn set_first(first: i64, before: Totals) -> Document {
    doc! { "$set": {
        "first": first,
        "forgottenBytes": before.bytes,
        "forgottenLatestTs": before.latest_ts,
    } }
}
