//! When events were stored, which is what their age counts from.

use mongodb::bson::{Document, doc};
use prombus_engine::{Arrival, ReadError};
use prombus_proto::{Seq, Timestamp, Topic};

use crate::error::read_error;
use crate::layout::numbers::{from_bson, number_in, to_bson};
use crate::store::Store;

impl Store {
    /// Implements [`prombus_engine::Engine::arrival`].
    pub(crate) async fn arrival(
        &self,
        topic: &Topic,
        seq: Seq,
    ) -> Result<Option<Arrival>, ReadError> {
        let mut session = self.read_session().await.map_err(read_error)?;
        let document = self.topic(&mut session, topic).await.map_err(read_error)?;
        let position = to_bson(seq.0);
        if !(document.first..document.next).contains(&position) {
            return Ok(None);
        }
        let found = self
            .collections
            .events()
            .find_one(doc! { "topic": topic.as_str(), "seq": position })
            .projection(doc! { "_id": 0, "storedAt": stored_at(self.clock.now()) })
            .session(&mut session)
            .await
            .map_err(read_error)?;
        let time = found.and_then(|event| number_in(&event, "storedAt"));
        Ok(time.map(|time| Arrival::at(Timestamp(from_bson(time)))))
    }
}

/// An expression: when an event was stored, in milliseconds.
///
/// Documents of older programs do not say. Their `_id` does, to the second: the server made it when
/// it inserted the document. With any other `_id`, the event is as old as its topic says it is, but
/// not from the future.
pub(crate) fn stored_at(now: Timestamp) -> Document {
    let end_of_second = doc! { "$add": [{ "$toLong": { "$toDate": "$_id" } }, 999_i64] };
    let has_time = doc! { "$eq": [{ "$type": "$_id" }, "objectId"] };
    let by_topic = doc! { "$min": ["$latestTs", to_bson(now.0)] };
    let of_older = doc! { "$cond": [has_time, end_of_second, by_topic] };
    doc! { "$ifNull": ["$storedAt", of_older] }
}
