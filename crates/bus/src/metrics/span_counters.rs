//! OpenTelemetry spans, exported or not.

use prometheus::{IntCounter, Registry};

use super::{Metrics, counters};

/// What became of the spans. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SpanCounters {
    exported: IntCounter,
    failed: IntCounter,
    pub(crate) dropped: IntCounter,
}

impl SpanCounters {
    pub(super) fn new(registry: &Registry) -> Self {
        let help =
            "OpenTelemetry spans that were exported, could not be exported, or found no room.";
        let spans = counters(registry, "prombus_spans_total", help, &["outcome"]);
        let [exported, failed, dropped] =
            ["exported", "failed", "dropped"].map(|outcome| spans.with_label_values(&[outcome]));
        Self { exported, failed, dropped }
    }

    /// Counts spans that the collector accepted.
    pub fn exported(&self, spans: usize) {
        self.exported.inc_by(spans as u64);
    }

    /// Counts spans that the collector did not accept.
    pub fn failed(&self, spans: usize) {
        self.failed.inc_by(spans as u64);
    }
}

impl Metrics {
    /// Returns the counters of spans.
    #[must_use]
    pub fn spans(&self) -> SpanCounters {
        self.spans.clone()
    }
}
