//! Decides which events have spans, and passes finished spans on.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_proto::{Clock, EventId, Headers, RandomSource, Topic};
use prometheus::IntCounter;
use tokio::sync::mpsc;

use super::trace_context::HEADER;
use super::{FinishedSpan, SpanIds, SpanKind, TraceContext};
use crate::time::now;
use crate::topics::FeedEvent;

/// Finished spans that may wait to be exported.
const QUEUE: usize = 8192;

/// Which events have spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpanSettings {
    /// The part of the events without a `traceparent` that have spans, from 0 to 1. Events with one have spans if
    /// their publisher records the trace.
    pub sample_ratio: f64,
}

/// The finished spans, oldest first.
pub type SpanQueue = mpsc::Receiver<FinishedSpan>;

pub(crate) struct Tracer {
    sample_ratio: f64,
    random: Box<dyn RandomSource>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<FinishedSpan>,
    dropped: IntCounter,
}

/// A span that is not finished.
#[derive(Debug)]
pub(super) struct OpenSpan {
    pub(super) ids: SpanIds,
    pub(super) topic: Topic,
    pub(super) event: EventId,
    pub(super) started: Instant,
}

impl Tracer {
    pub(crate) fn new(
        settings: SpanSettings,
        random: Box<dyn RandomSource>,
        clock: Arc<dyn Clock>,
        dropped: IntCounter,
    ) -> (Arc<Self>, SpanQueue) {
        let (queue, finished) = mpsc::channel(QUEUE);
        let sample_ratio = settings.sample_ratio;
        (Arc::new(Self { sample_ratio, random, clock, queue, dropped }), finished)
    }

    /// Returns the ids of a span for an event with these headers, if it is to have one.
    pub(super) fn sample(&self, headers: &Headers) -> Option<SpanIds> {
        self.sample_child(headers.get(HEADER).and_then(TraceContext::parse))
    }

    /// The same for an event of which only the JSON is known.
    pub(super) fn sample_delivery(&self, event: &FeedEvent) -> Option<SpanIds> {
        self.sample_child(event.header(HEADER).as_deref().and_then(TraceContext::parse))
    }

    fn sample_child(&self, parent: Option<TraceContext>) -> Option<SpanIds> {
        let (is_sampled, trace_id) = match parent {
            Some(parent) => (parent.is_sampled, parent.trace_id),
            None => {
                let trace_id = u128::from(self.random()) << 64 | u128::from(self.random());
                (self.is_sampled(trace_id), trace_id)
            }
        };
        is_sampled.then(|| SpanIds { trace_id, span_id: self.random(), parent })
    }

    /// Decides by the lower bits of the id, as other tracers do with the same ratio.
    #[expect(clippy::cast_precision_loss, reason = "the ratio is not that precise")]
    #[expect(clippy::cast_possible_truncation, reason = "only the lower bits are wanted")]
    fn is_sampled(&self, trace_id: u128) -> bool {
        ((trace_id as u64 >> 1) as f64) < self.sample_ratio * (i64::MAX as f64)
    }

    /// Returns a random number that is not 0, which would be no id.
    fn random(&self) -> u64 {
        self.random.next_u64().max(1)
    }

    /// Passes a span on that has ended at `ended`. Never waits.
    pub(super) fn finish(
        &self,
        span: OpenSpan,
        ended: Instant,
        kind: SpanKind,
        error: Option<String>,
    ) {
        let OpenSpan { ids, topic, event, started } = span;
        // By the clock of now: a clock that is set while the process runs would be off ever after.
        let since_end = now().saturating_duration_since(ended);
        let wall = Duration::from_millis(self.clock.now().0).saturating_sub(since_end);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let took = ended.saturating_duration_since(started);
        let (started, ended) = (nanos(wall.saturating_sub(took)), nanos(wall));
        let span = FinishedSpan { ids, kind, topic, event, started, ended, error };
        if self.queue.try_send(span).is_err() {
            self.dropped.inc();
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sample_ratio", &self.sample_ratio).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::{ManualClock, SeededRandom, Timestamp};

    use super::*;

    fn tracer(sample_ratio: f64) -> (Arc<Tracer>, SpanQueue, IntCounter) {
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        let random = Box::new(SeededRandom::new(1));
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let settings = SpanSettings { sample_ratio };
        let (tracer, queue) = Tracer::new(settings, random, clock, dropped.clone());
        (tracer, queue, dropped)
    }

    fn headers(traceparent: &str) -> Headers {
        Headers::new([(HEADER.to_owned(), traceparent.to_owned())]).unwrap()
    }

    #[test]
    fn the_publisher_decides_about_its_traces_and_the_ratio_about_others() {
        let sampled = headers("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let unsampled = headers("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        for (ratio, expected) in [(0.0, 0..=0), (0.25, 2200..=2800), (1.0, 10_000..=10_000)] {
            let (tracer, ..) = tracer(ratio);
            let count = (0..10_000).filter(|_| tracer.sample(&Headers::NONE).is_some()).count();
            assert!(expected.contains(&count), "{count} of 10000 at {ratio}");
            let ids = tracer.sample(&sampled).unwrap();
            assert_eq!(ids.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
            assert_eq!(ids.parent.unwrap().span_id, 0x00f0_67aa_0ba9_02b7);
            assert_ne!(ids.span_id, 0x00f0_67aa_0ba9_02b7);
            assert_eq!(tracer.sample(&unsampled), None);
            assert_eq!(tracer.sample(&headers("nonsense")).is_some(), ratio == 1.0);
        }
    }

    #[test]
    fn a_full_queue_drops_spans_and_counts_them() {
        let (tracer, mut queue, dropped) = tracer(1.0);
        let started = Instant::now();
        for number in 0..QUEUE + 10 {
            let span = OpenSpan {
                ids: tracer.sample(&Headers::NONE).unwrap(),
                topic: Topic::new("t").unwrap(),
                event: EventId::new(&number.to_string()).unwrap(),
                started,
            };
            let kind = SpanKind::Publish { seq: None, is_duplicate: false };
            tracer.finish(span, started + Duration::from_micros(1500), kind, None);
        }
        assert_eq!(dropped.get(), 10);
        let first = queue.try_recv().unwrap();
        assert_eq!(
            (first.event.to_string().as_str(), first.ended - first.started),
            ("0", 1_500_000)
        );
        assert!(first.ended <= 1_700_000_000_000_000_000);
    }
}
