//! Spans: how long single events took, from publish to commit and from delivery to acknowledgement, for
//! OpenTelemetry.
//!
//! Off unless [`SpanSettings`] are given, and then nothing but a branch. Finished spans go into a bounded queue
//! ([`SpanQueue`]), from which somebody else exports them; those that find no room are counted and dropped.
//!
//! - `trace_context`: the `traceparent` of an event
//! - `tracer`: which events have spans, and their ids
//! - `publish_spans`, `delivery_spans`: the spans that are not finished
//! - `finished_span`: what is exported

mod delivery_spans;
mod finished_span;
mod publish_spans;
mod trace_context;
mod tracer;

pub(crate) use self::delivery_spans::{DeliveryEnd, DeliverySpans};
pub use self::finished_span::{FinishedSpan, SpanIds, SpanKind};
pub(crate) use self::publish_spans::PublishSpans;
pub use self::trace_context::TraceContext;
pub(crate) use self::tracer::Tracer;
pub use self::tracer::{SpanQueue, SpanSettings};
