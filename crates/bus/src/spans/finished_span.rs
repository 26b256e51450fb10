//! A finished span, as it is exported.

use prombus_proto::{EventId, Group, Seq, Topic};

use super::TraceContext;

/// The ids of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIds {
    pub trace_id: u128,
    pub span_id: u64,
    /// The span of the publisher, whose trace this one continues.
    pub parent: Option<TraceContext>,
}

/// What a span is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// From the arrival of an event to its commit.
    Publish {
        /// `None` if it was not stored.
        seq: Option<Seq>,
        is_duplicate: bool,
    },
    /// From a delivery to its end.
    Delivery { group: Group, seq: Seq, attempt: u32, outcome: &'static str },
}

/// A finished span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    pub ids: SpanIds,
    pub kind: SpanKind,
    pub topic: Topic,
    pub event: EventId,
    /// Nanoseconds since 1970.
    pub started: u64,
    pub ended: u64,
    /// Why the publish or the delivery failed.
    pub error: Option<String>,
}
