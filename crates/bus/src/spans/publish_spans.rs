//! The spans of events on their way to the store.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{CommitError, Position};
use prombus_proto::{EncodedEvent, Headers};

use super::tracer::OpenSpan;
use super::{SpanIds, SpanKind, Tracer};
use crate::time::now;

/// The spans of a batch. Nothing is allocated while tracing is off. Spans of a batch that is never submitted are
/// dropped with it.
#[derive(Debug, Default)]
pub(crate) struct PublishSpans(Option<Box<Traced>>);

#[derive(Debug)]
struct Traced {
    tracer: Arc<Tracer>,
    /// Each with the index of its event.
    spans: Vec<(usize, OpenSpan)>,
}

impl PublishSpans {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Returns the ids of the span of an event with these headers, if it is to have one.
    pub(crate) fn sample(tracer: Option<&Arc<Tracer>>, headers: &Headers) -> Option<SpanIds> {
        tracer?.sample(headers)
    }

    /// Starts the span of `event`, which is number `index` of the batch.
    pub(crate) fn start(
        &mut self,
        tracer: Option<&Arc<Tracer>>,
        ids: SpanIds,
        (index, event): (usize, &EncodedEvent),
        started: Instant,
    ) {
        let Some(tracer) = tracer else { return };
        let traced = self.0.get_or_insert_with(|| {
            Box::new(Traced { tracer: Arc::clone(tracer), spans: Vec::new() })
        });
        let (topic, event) = (event.topic().clone(), event.id().clone());
        traced.spans.push((index, OpenSpan { ids, topic, event, started }));
    }

    /// Drops the spans of the events from number `events` on.
    pub(crate) fn truncate(&mut self, events: usize) {
        if let Some(traced) = &mut self.0 {
            traced.spans.retain(|(index, _)| *index < events);
        }
    }

    /// Moves the spans of `other` behind the first `events` events.
    pub(crate) fn append(&mut self, other: Self, events: usize) {
        let Some(mut other) = other.0 else { return };
        other.spans.iter_mut().for_each(|(index, _)| *index += events);
        match &mut self.0 {
            Some(traced) => traced.spans.append(&mut other.spans),
            None => self.0 = Some(other),
        }
    }

    /// Ends the spans of events that are stored at these positions.
    pub(crate) fn stored(self, positions: &[Position]) {
        let Some(Traced { tracer, spans }) = self.0.map(|traced| *traced) else { return };
        let now = now();
        for (index, span) in spans {
            let Some(position) = positions.get(index) else { continue };
            let kind =
                SpanKind::Publish { seq: Some(position.seq), is_duplicate: position.duplicate };
            tracer.finish(span, now, kind, None);
        }
    }

    /// Ends the spans of events that are not stored.
    pub(crate) fn failed(self, error: &CommitError) {
        let Some(Traced { tracer, spans }) = self.0.map(|traced| *traced) else { return };
        let now = now();
        for (_, span) in spans {
            let kind = SpanKind::Publish { seq: None, is_duplicate: false };
            tracer.finish(span, now, kind, Some(error.to_string()));
        }
    }
}
