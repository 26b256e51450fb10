//! Events that the servers removed because their time was over: forgotten, not damaged.
//!
//! The servers remove one by one, in the order of `expireAt`, and tell nobody. So whoever finds the
//! front of a topic gone moves its beginning on, as `forgetting` does. While they are at it, events of
//! one moment may be gone in any order: a gap is also what the front leaves when the event before it is
//! over and only waits to be removed. A gap behind an event that is not over is damage.

use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use prombus_proto::Topic;

use crate::layout::event_document::Sums;
use crate::layout::numbers::number_in;
use crate::layout::topic_document::TopicDocument;
use crate::retention::ttl::is_over;
use crate::store::Store;

impl Store {
    /// The topic as it is when all that is gone from its front counts as forgotten.
    pub(crate) async fn settled(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: TopicDocument,
    ) -> Result<TopicDocument, Error> {
        if !known.expires() || known.first >= known.next {
            return Ok(known);
        }
        let kept = doc! { "$gte": known.first, "$lt": known.next };
        let events = self.collections.events();
        let there = events
            .find_one(doc! { "topic": topic.as_str(), "seq": kept })
            .sort(doc! { "topic": 1, "seq": 1 })
            .projection(doc! { "_id": 0, "seq": 1 })
            .session(&mut *session)
            .await?;
        let first = there.and_then(|event| number_in(&event, "seq")).unwrap_or(known.next);
        match first == known.first {
            true => Ok(known),
            false => self.begin_at(session, topic, &known, first).await,
        }
    }

    /// As [`Store::settled`], for a reader who found no event at `start`, or one that cannot be read.
    /// Nothing where that is damage.
    pub(crate) async fn passed_over(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        start: i64,
        is_there: bool,
    ) -> Result<Option<TopicDocument>, Error> {
        if !known.expires() {
            return Ok(None);
        }
        // An event that is there may have lost its parts, which go by themselves.
        let behind = if is_there { start + 1 } else { start };
        let before = doc! { "$gte": known.first, "$lt": behind };
        let events = self.collections.events();
        let last_before = events
            .find_one(doc! { "topic": topic.as_str(), "seq": before })
            .sort(doc! { "topic": -1, "seq": -1 })
            .projection(doc! { "_id": 0, "isOver": is_over() })
            .session(&mut *session)
            .await?;
        let is_front = last_before.is_none_or(|event| event.get_bool("isOver").unwrap_or(false));
        match is_front {
            true => Ok(Some(self.begin_at(session, topic, known, behind).await?)),
            false => Ok(None),
        }
    }

    /// Lets the topic begin with the first event that is there from `from` on, unless somebody else
    /// moved it meanwhile. Gives it as it is then.
    async fn begin_at(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        from: i64,
    ) -> Result<TopicDocument, Error> {
        let (first, before) = self.there_from(session, topic, known, from).await?;
        let change = beginning(first, before);
        self.forget_by(session, topic, known, first, change, None).await?;
        self.topic(session, topic).await
    }

    /// The first event that is there from `from` on, and the sums of all before it. The end of the
    /// topic, where there is none.
    pub(crate) async fn there_from(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
        known: &TopicDocument,
        from: i64,
    ) -> Result<(i64, Sums), Error> {
        let left = doc! { "topic": topic.as_str(), "seq": { "$gte": from, "$lt": known.next } };
        let own = doc! { "$strLenBytes": { "$ifNull": ["$json", ""] } };
        let events = self.collections.events();
        let found = events
            .find_one(left)
            .sort(doc! { "topic": 1, "seq": 1 })
            .projection(
                doc! { "_id": 0, "seq": 1, "bytes": 1, "latestTs": 1, "parts": 1, "own": own },
            )
            .session(&mut *session)
            .await?;
        let all = Sums { bytes: known.bytes, latest_ts: known.latest_ts };
        let Some(found) = found else { return Ok((known.next, all)) };
        let seq = number_in(&found, "seq").unwrap_or(from);
        let own = match number_in(&found, "parts") {
            Some(_) => self.bytes_of_parts(session, topic, seq).await?,
            None => number_in(&found, "own").unwrap_or(0),
        };
        let up_to_it = number_in(&found, "bytes").unwrap_or(all.bytes);
        // No later than this: a search by time looks at single events then, and finds this one.
        let latest_ts = number_in(&found, "latestTs").unwrap_or(all.latest_ts);
        let bytes = (up_to_it - own).clamp(known.forgotten_bytes, all.bytes);
        Ok((seq, Sums { bytes, latest_ts }))
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
            .projection(doc! { "_id": 0, "own": { "$binarySize": "$json" } })
            .session(&mut *session)
            .await?;
        let mut bytes = 0;
        while found.advance(session).await? {
            bytes += number_in(found.current(), "own").unwrap_or(0);
        }
        Ok(bytes)
    }
}

/// The change that lets a topic begin at `first`.
pub(crate) fn beginning(first: i64, before: Sums) -> Document {
    doc! { "$set": {
        "first": first,
        "forgottenBytes": before.bytes,
        "forgottenLatestTs": before.latest_ts,
    } }
}
