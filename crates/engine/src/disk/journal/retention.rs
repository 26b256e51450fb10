//! What a retention rule still keeps: whole segments, and whole pieces of the log.

use prombus_proto::{Seq, Topic};

use crate::Retention;
use crate::disk::read::topic_view::TopicView;
use crate::disk::shared::Shared;

/// Where what `rule` keeps of `topic` begins, at the latest.
pub(crate) fn kept_from(shared: &Shared, topic: &Topic, rule: &Retention) -> Seq {
    let view = shared.view();
    view.topics.get(topic).map_or(Seq::FIRST, |view| kept_of(view, rule, shared))
}

/// Drops from the front while all of a segment or piece is too old, or what follows it is still as
/// large as the rule allows.
fn kept_of(view: &TopicView, rule: &Retention, shared: &Shared) -> Seq {
    let oldest = rule.max_age_ms.map(|age| shared.options.clock.now().minus_ms(age));
    let mut bytes_left = view.bounds().bytes;
    let mut kept = view.first;
    let segments = view.segments.iter().map(|s| (s.last, s.latest_ts, s.bytes()));
    let pieces = view.wal.iter().map(|p| (p.last(), p.latest_ts, u64::from(p.bytes)));
    for (last, latest_ts, bytes) in segments.chain(pieces) {
        bytes_left -= bytes;
        let too_old = oldest.is_some_and(|oldest| latest_ts < oldest);
        let too_large = rule.max_bytes.is_some_and(|max| bytes_left >= max);
        if !too_old && !too_large {
            break;
        }
        kept = last.next();
    }
    kept
}
