//! The document of a topic: its bounds, and totals up to them.

use mongodb::bson::{Document, doc};
use prombus_engine::Bounds;
use prombus_proto::{Seq, Topic};
use serde::{Deserialize, Serialize};

use crate::layout::event_document::Lifetime;
use crate::layout::numbers::from_bson;
use crate::retention::ttl::expire_at;

/// A topic. The document exists once the topic had an event or a retention rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicDocument {
    #[serde(rename = "_id")]
    pub(crate) name: String,
    /// The `seq` of the first retained event.
    #[serde(default = "one")]
    pub(crate) first: i64,
    /// The `seq` of the next event. Documents in `events` from here on do not count yet.
    #[serde(default = "one")]
    pub(crate) next: i64,
    /// Bytes of JSON of all events ever committed.
    #[serde(default)]
    pub(crate) bytes: i64,
    /// Bytes of JSON of the events before `first`.
    #[serde(default, rename = "forgottenBytes")]
    pub(crate) forgotten_bytes: i64,
    /// The latest timestamp of all events ever committed.
    #[serde(default, rename = "latestTs")]
    pub(crate) latest_ts: i64,
    /// The latest timestamp of the events before `first`; `None` if none was ever trimmed.
    #[serde(default, rename = "forgottenLatestTs")]
    pub(crate) forgotten_latest_ts: Option<i64>,
    /// When the last event was stored; `None` if an older program stored all events.
    #[serde(default, rename = "storedAt", skip_serializing_if = "Option::is_none")]
    pub(crate) stored_at: Option<i64>,
    /// The `latestTs` of the events that an older program stored, if it was in the future. Their
    /// `expireAt` counts from it, and that of later events must not be earlier.
    #[serde(default, rename = "expiryFloor", skip_serializing_if = "Option::is_none")]
    pub(crate) expiry_floor: Option<i64>,
    /// The `next` at the last deletion. As long as that is `next`, the topic is deleted, and what it has in
    /// `events` is about to be removed.
    #[serde(default, rename = "deletedAt", skip_serializing_if = "Option::is_none")]
    pub(crate) deleted_at: Option<i64>,
    /// The revision of the newest retention rule that was applied.
    #[serde(default)]
    pub(crate) rule: Option<i64>,
    /// The time to live of events committed from now on; `None` to let them live for ever.
    #[serde(default, rename = "ttlMs", skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<i64>,
    /// The progress of a running change of the TTL through the existing events.
    #[serde(default, rename = "ttlChange", skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_change: Option<TtlChange>,
}

/// A running change of the TTL. At any moment events that expire sooner precede those that expire
/// later, so the servers only ever remove the front of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TtlChange {
    /// The new TTL when it is shorter: events before `position` have it already, and `ttlMs` is set
    /// last. `None` when the new TTL is longer or absent: `ttlMs` is set already, and so are the
    /// events from `position` on.
    #[serde(default, rename = "shorterMs", skip_serializing_if = "Option::is_none")]
    pub(crate) shorter_ms: Option<i64>,
    #[serde(rename = "place")]
    pub(crate) position: i64,
}

const fn one() -> i64 {
    1
}

impl TopicDocument {
    /// A topic that has never had an event.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            first: 1,
            next: 1,
            bytes: 0,
            forgotten_bytes: 0,
            latest_ts: 0,
            forgotten_latest_ts: None,
            stored_at: None,
            expiry_floor: None,
            deleted_at: None,
            rule: None,
            ttl_ms: None,
            ttl_change: None,
        }
    }

    /// Records that an event is stored `now`, and returns when it counts as stored and expires.
    pub(crate) fn store_event(&mut self, now: i64) -> Lifetime {
        if self.stored_at.is_none() && self.latest_ts > now {
            self.expiry_floor = Some(self.latest_ts);
        }
        let stored_at = self.stored_at.map_or(now, |last| last.max(now));
        self.stored_at = Some(stored_at);
        let expire_at = expire_at(stored_at.max(self.expiry_floor.unwrap_or(0)), self.ttl_ms);
        Lifetime { stored_at, expire_at }
    }

    /// Deletes everything up to now. The numbering goes on.
    pub(crate) fn delete(&mut self) {
        self.first = self.next;
        self.forgotten_bytes = self.bytes;
        self.forgotten_latest_ts = Some(self.latest_ts);
        self.deleted_at = Some(self.next);
        (self.rule, self.ttl_ms, self.ttl_change) = (None, None, None);
    }

    /// The topic as readers see it.
    pub(crate) fn visible(self) -> Self {
        if self.deleted_at == Some(self.next) { Self::new(&self.name) } else { self }
    }

    /// Returns `true` if the servers remove events of this topic.
    pub(crate) const fn expires(&self) -> bool {
        self.ttl_ms.is_some() || self.ttl_change.is_some()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            first: Seq(from_bson(self.first)),
            next: Seq(from_bson(self.next)),
            bytes: from_bson(self.bytes - self.forgotten_bytes),
        }
    }

    pub(crate) fn last(&self) -> Seq {
        self.bounds().last()
    }

    pub(crate) fn topic(&self) -> Option<Topic> {
        Topic::new(&self.name).ok()
    }

    /// A filter that matches this topic as long as every field a commit builds on is unchanged.
    /// Comparing `next` alone is not enough: after an election other events may have led to it.
    pub(crate) fn unchanged_filter(&self) -> Document {
        let Self { name, next, bytes, latest_ts, stored_at, ttl_ms, .. } = self;
        // `null` matches a missing field.
        doc! {
            "_id": name,
            "next": next,
            "bytes": bytes,
            "latestTs": latest_ts,
            "storedAt": stored_at,
            "ttlMs": ttl_ms,
        }
    }

    /// A filter for the topics that ever had an event and were not deleted since.
    pub(crate) fn with_events() -> Document {
        doc! { "next": { "$gt": 1 }, "$expr": { "$ne": ["$deletedAt", "$next"] } }
    }

    /// A filter for the topics that are deleted.
    pub(crate) fn deleted() -> Document {
        doc! { "deletedAt": { "$exists": true }, "$expr": { "$eq": ["$deletedAt", "$next"] } }
    }
}
