//! When the events of a topic with a time to live expire.
//!
//! An event expires a fixed time after it was stored. That rises with `seq`, and so does `expireAt`:
//! the servers always remove the front of a topic.
//!
//! The events of older programs do not say when they were stored. They expire after the latest
//! timestamp of their topic so far, and later events no sooner than they do (`expiryFloor`).

use mongodb::bson::{DateTime, Document, doc};

/// The last millisecond of the year 9999. An event that would expire later never expires.
const MAX_DATE: i64 = 253_402_300_799_999;

/// Returns when an event expires whose time to live counts from `start`; `None` if never, or too far
/// ahead for a date.
pub(crate) fn expire_at(start: i64, ttl_ms: Option<i64>) -> Option<DateTime> {
    let expires = start.checked_add(ttl_ms?)?;
    (expires <= MAX_DATE).then(|| DateTime::from_millis(expires))
}

/// An expression: the time that the time to live of an event counts from, on a topic with this
/// `expiryFloor`.
pub(crate) fn expiry_start(floor: Option<i64>) -> Document {
    let is_stored_at = doc! { "$isNumber": "$storedAt" };
    let stored_at = doc! { "$max": ["$storedAt", floor.unwrap_or(0)] };
    doc! { "$cond": [is_stored_at, stored_at, "$latestTs"] }
}

/// The update that sets or removes `expireAt` of events, by the same rule as [`expire_at`].
pub(crate) fn set_expire_at(ttl_ms: Option<i64>, floor: Option<i64>) -> Vec<Document> {
    let latest_start = ttl_ms.and_then(|ttl| MAX_DATE.checked_sub(ttl));
    let (Some(ttl), Some(latest_start)) = (ttl_ms, latest_start) else {
        return vec![doc! { "$unset": "expireAt" }];
    };
    let start = expiry_start(floor);
    let expires = doc! { "$and": [
        { "$isNumber": start.clone() },
        { "$lte": [start.clone(), latest_start] },
    ] };
    let date = doc! { "$toDate": { "$add": [start, ttl] } };
    vec![doc! { "$set": { "expireAt": { "$cond": [expires, date, "$$REMOVE"] } } }]
}

/// An expression: the event has expired by the servers' clock, which is the one that removes it.
pub(crate) fn has_expired() -> Document {
    doc! { "$and": [
        { "$eq": [{ "$type": "$expireAt" }, "date"] },
        { "$lte": ["$expireAt", "$$NOW"] },
    ] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_too_far_ahead_mean_never() {
        assert_eq!(expire_at(5, None), None);
        assert_eq!(expire_at(5, Some(7)), Some(DateTime::from_millis(12)));
        assert_eq!(expire_at(MAX_DATE - 1, Some(1)), Some(DateTime::from_millis(MAX_DATE)));
        assert_eq!(expire_at(MAX_DATE, Some(1)), None);
        assert_eq!(expire_at(i64::MAX, Some(1)), None);
        assert_eq!(expire_at(1, Some(i64::MAX)), None);
    }
}
