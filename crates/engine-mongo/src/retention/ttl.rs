//! When events of a topic with a time to live are over, as its documents say it.
//!
//! An event is over some time after the latest time of its topic up to it. That rises with `seq`, and so
//! does `expireAt`: the servers remove from the front.

use mongodb::bson::{DateTime, Document, doc};

/// The last moment of the year 9999. What would be over later than this is never over.
const LAST_DATE: i64 = 253_402_300_799_999;

/// When an event is over; nothing where that is too far away for a date.
pub(crate) fn expire_at(latest_ts: i64, ttl_ms: Option<i64>) -> Option<DateTime> {
    let end = latest_ts.checked_add(ttl_ms?)?;
    (end <= LAST_DATE).then(|| DateTime::from_millis(end))
}

/// The change that gives an event its `expireAt`, or takes it away: the same, by the servers.
pub(crate) fn set_expire_at(ttl_ms: Option<i64>) -> Vec<Document> {
    let latest_that_ends = ttl_ms.and_then(|ttl| LAST_DATE.checked_sub(ttl));
    let (Some(ttl), Some(latest)) = (ttl_ms, latest_that_ends) else {
        return vec![doc! { "$unset": "expireAt" }];
    };
    let has_an_end = doc! { "$and": [
        { "$isNumber": "$latestTs" },
        { "$lte": ["$latestTs", latest] },
    ] };
    let end = doc! { "$toDate": { "$add": ["$latestTs", ttl] } };
    vec![doc! { "$set": { "expireAt": { "$cond": [has_an_end, end, "$$REMOVE"] } } }]
}

/// Whether an event is over by the servers' clock, which is the one that removes it; as an expression.
pub(crate) fn is_over() -> Document {
    doc! { "$and": [
        { "$eq": [{ "$type": "$expireAt" }, "date"] },
        { "$lte": ["$expireAt", "$$NOW"] },
    ] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_too_far_away_is_none() {
        assert_eq!(expire_at(5, None), None);
        assert_eq!(expire_at(5, Some(7)), Some(DateTime::from_millis(12)));
        assert_eq!(expire_at(LAST_DATE - 1, Some(1)), Some(DateTime::from_millis(LAST_DATE)));
        assert_eq!(expire_at(LAST_DATE, Some(1)), None);
        assert_eq!(expire_at(i64::MAX, Some(1)), None);
        assert_eq!(expire_at(1, Some(i64::MAX)), None);
    }
}
