//! A topic as a document: its ends, and sums up to them.

use mongodb::bson::{Document, doc};
use prombus_engine::Bounds;
use prombus_proto::{Seq, Topic};
use serde::{Deserialize, Serialize};

use crate::layout::numbers::from_bson;

/// A topic. It is there once the topic had an event or a retention rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicDocument {
    #[serde(rename = "_id")]
    pub(crate) name: String,
    /// The first event kept.
    #[serde(default = "one")]
    pub(crate) first: i64,
    /// What the next event gets. Events from here on are not there yet, whatever `events` holds.
    #[serde(default = "one")]
    pub(crate) next: i64,
    /// Bytes of JSON of all events that ever were.
    #[serde(default)]
    pub(crate) bytes: i64,
    /// The same of those before `first`.
    #[serde(default, rename = "forgottenBytes")]
    pub(crate) forgotten_bytes: i64,
    /// The latest time of all events that ever were.
    #[serde(default, rename = "latestTs")]
    pub(crate) latest_ts: i64,
    /// The same of those before `first`; nothing where none was forgotten.
    #[serde(default, rename = "forgottenLatestTs")]
    pub(crate) forgotten_latest_ts: Option<i64>,
    /// The revision of the newest retention rule applied.
    #[serde(default)]
    pub(crate) rule: Option<i64>,
    /// After this long, events that are committed from now on are over and go by themselves; never, if
    /// it is not there.
    #[serde(default, rename = "ttlMs", skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<i64>,
    /// How far a change of that is with the events that are there, while it is under way.
    #[serde(default, rename = "ttlChange", skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_change: Option<TtlChange>,
}

/// A change of the time to live, while it is under way. In any moment what ends sooner is before what
/// ends later, so that nothing is removed but the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TtlChange {
    /// What it becomes, where that is shorter: events before `place` have it already, and `ttlMs`
    /// follows at the end. Where this is nothing, events from `place` on have `ttlMs`, which is longer
    /// than it was, or there is none any more.
    #[serde(default, rename = "shorterMs", skip_serializing_if = "Option::is_none")]
    pub(crate) shorter_ms: Option<i64>,
    pub(crate) place: i64,
}

const fn one() -> i64 {
    1
}

impl TopicDocument {
    /// A topic that never had an event.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            first: 1,
            next: 1,
            bytes: 0,
            forgotten_bytes: 0,
            latest_ts: 0,
            forgotten_latest_ts: None,
            rule: None,
            ttl_ms: None,
            ttl_change: None,
        }
    }

    /// Whether the servers remove events of it.
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

    /// This topic, if a commit would still make the same of it: all that a commit takes from it is
    /// named. Not `next` alone: after an election other events may have led to the same `next`.
    pub(crate) fn unchanged(&self) -> Document {
        let Self { name, next, bytes, latest_ts, ttl_ms, .. } = self;
        // One without a time to live is met by `null`.
        doc! { "_id": name, "next": next, "bytes": bytes, "latestTs": latest_ts, "ttlMs": ttl_ms }
    }

    /// Those that ever had an event.
    pub(crate) fn with_events() -> Document {
        doc! { "next": { "$gt": 1 } }
    }
}
