//! The spans of deliveries that are not settled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use prombus_proto::{Group, Seq, Topic};

use super::tracer::OpenSpan;
use super::{SpanKind, Tracer};
use crate::topics::FeedEvent;

/// The spans of the deliveries of a group, by event. Empty, and not allocated, while tracing is off.
#[derive(Debug, Default)]
pub(crate) struct DeliverySpans {
    open: HashMap<Seq, OpenDelivery>,
}

#[derive(Debug)]
struct OpenDelivery {
    span: OpenSpan,
    attempt: u32,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryEnd<'a> {
    /// The acknowledgement is stored.
    Acked,
    /// With the reason that the member gave.
    Nacked(Option<&'a str>),
    DeadlineMissed,
    /// The member left without settling it.
    MemberLeft,
}

impl DeliveryEnd<'_> {
    const fn outcome(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Nacked(_) => "nacked",
            Self::DeadlineMissed => "deadline_missed",
            Self::MemberLeft => "member_left",
        }
    }

    fn error(self) -> Option<String> {
        /// A span is no place for long texts.
        const MAX_CHARS: usize = 300;
        match self {
            Self::Acked => None,
            Self::Nacked(Some(reason)) => Some(reason.chars().take(MAX_CHARS).collect()),
            Self::Nacked(None) => Some("not acknowledged: nack without a reason".to_owned()),
            Self::DeadlineMissed => Some("not acknowledged before its deadline".to_owned()),
            Self::MemberLeft => Some("its consumer left without settling it".to_owned()),
        }
    }
}

impl DeliverySpans {
    /// Starts the span of a delivery, if the event is to have one.
    pub(crate) fn start(
        &mut self,
        tracer: &Arc<Tracer>,
        (topic, event): (&Topic, &FeedEvent),
        attempt: u32,
        started: Instant,
    ) {
        let Some(ids) = tracer.sample_delivery(event) else { return };
        let (topic, event_id) = (topic.clone(), event.id.clone());
        let span = OpenSpan { ids, topic, event: event_id, started };
        self.open.insert(event.seq, OpenDelivery { span, attempt });
    }

    /// Ends the span of the delivery of `seq`, if it has one.
    pub(crate) fn end(
        &mut self,
        tracer: Option<&Arc<Tracer>>,
        (group, seq): (&Group, Seq),
        end: DeliveryEnd<'_>,
        now: Instant,
    ) {
        if self.open.is_empty() {
            return;
        }
        let (Some(OpenDelivery { span, attempt }), Some(tracer)) = (self.open.remove(&seq), tracer)
        else {
            return;
        };
        let (group, outcome) = (group.clone(), end.outcome());
        let kind = SpanKind::Delivery { group, seq, attempt, outcome };
        tracer.finish(span, now, kind, end.error());
    }

    /// Drops the span of a delivery that was taken back before anybody saw it.
    pub(crate) fn discard(&mut self, seq: Seq) {
        if !self.open.is_empty() {
            self.open.remove(&seq);
        }
    }

    /// Drops the spans of events up to `floor`, which are finished without a settled delivery: retention removed
    /// them, or the stored cursor says so.
    pub(crate) fn forget_up_to(&mut self, floor: Seq, in_flight: usize) {
        if self.open.len() > 2 * in_flight + 64 {
            self.open.retain(|seq, _| *seq > floor);
        }
    }
}
