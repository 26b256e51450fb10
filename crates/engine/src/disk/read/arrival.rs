//! When an event was stored, as far as segments and extents tell.

use prombus_proto::{Seq, Timestamp, Topic};

use super::topic_view::TopicView;
use crate::Arrival;
use crate::disk::shared::Shared;

/// Implements [`crate::Engine::arrival`].
///
/// Exact while the event is in the write-ahead log. A segment knows only when its newest event was
/// stored, so an event in one was stored after the newest of the segment before.
pub(crate) fn arrival(shared: &Shared, topic: &Topic, seq: Seq) -> Option<Arrival> {
    let view = shared.view();
    let view = view.topics.get(topic)?;
    if seq < view.first || seq >= view.next {
        return None;
    }
    in_segments(view, seq).or_else(|| {
        let extent = &view.wal[view.wal_extent_of(seq)?];
        (extent.first <= seq).then_some(Arrival::at(extent.arrived))
    })
}

fn in_segments(view: &TopicView, seq: Seq) -> Option<Arrival> {
    let index = view.segment_of(seq)?;
    let segment = view.segments[index];
    if segment.first > seq {
        return None;
    }
    let before: Timestamp =
        index.checked_sub(1).map_or(view.trimmed_arrival, |index| view.segments[index].arrived);
    Some(Arrival::between(before, segment.arrived))
}
