//! When the events of a topic with a time to live expire.
//!
//! An event expires a fixed time after the latest timestamp of its topic so far. That rises with
//! `seq`, and so does `expireAt`: the servers always remove the front of a topic.

use mongodb::bson::{DateTime, Document, doc};

/// The last millisecond of the year 9999. An event that would expire later never expires.
const MAX_DATE: i64 = 253_402_300_799_999;

/// Returns when an event expires; `None` if never, or too far ahead for a date.
pub(crate) fn expire_at(latest_ts: i64, ttl_ms: Option<i64>) -> Option<DateTime> {
    let expires = latest_ts.checked_add(ttl_ms?)?;
    (expires <= MAX_DATE).then(|| DateTime::from_millis(expires))
}

/// The update that sets or removes `expireAt` of events, by the same rule as [`expire_at`].
pub(crate) fn set_expire_at(ttl_ms: Option<i64>) -> Vec<Document> {
    let max_latest_ts = ttl_ms.and_then(|ttl| MAX_DATE.checked_sub(ttl));
    let (Some(ttl), Some(max_latest_ts)) = (ttl_ms, max_latest_ts) else {
        return vec![doc! { "$unset": "expireAt" }];
    };
    let expires = doc! { "$and": [
        { "$isNumber": "$latestTs" },
        { "$lte": ["$latestTs", max_latest_ts] },
    ] };
    let date = doc! { "$toDate": { "$add": ["$latestTs", ttl] } };
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
