//! When events were stored, which is what their age counts from.

use mongodb::bson::{Document, doc};
use prombus_proto::Timestamp;

use crate::layout::numbers::to_bson;

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
