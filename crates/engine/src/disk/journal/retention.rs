//! Applies a retention rule: drops whole segments, and whole extents of the write-ahead log.

use prombus_proto::{Seq, Topic};

use crate::Retention;
use crate::disk::read::topic_view::TopicView;
use crate::disk::shared::Shared;

/// Returns the first event of `topic` to retain under `rule`.
pub(crate) fn first_retained(shared: &Shared, topic: &Topic, rule: &Retention) -> Seq {
    let view = shared.view();
    view.topics.get(topic).map_or(Seq::FIRST, |view| first_retained_of(view, rule, shared))
}

/// Drops from the front as long as a whole segment or extent is too old, or everything after it
/// still reaches the size limit.
fn first_retained_of(view: &TopicView, rule: &Retention, shared: &Shared) -> Seq {
    let oldest = rule.max_age_ms.map(|age| shared.options.clock.now().minus_ms(age));
    let mut bytes_left = view.bounds().bytes;
    let mut retained = view.first;
    let segments = view.segments.iter().map(|s| (s.last, s.latest_ts, s.bytes()));
    let extents = view.wal.iter().map(|e| (e.last(), e.latest_ts, u64::from(e.bytes)));
    for (last, latest_ts, bytes) in segments.chain(extents) {
        bytes_left -= bytes;
        let too_old = oldest.is_some_and(|oldest| latest_ts < oldest);
        let too_large = rule.max_bytes.is_some_and(|max| bytes_left >= max);
        if !too_old && !too_large {
            break;
        }
        retained = last.next();
    }
    retained
}
