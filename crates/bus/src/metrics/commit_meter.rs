//! What the committer measures.

use std::time::Instant;

use prombus_engine::WriteStats;
use prometheus::Histogram;
use prometheus::local::LocalHistogram;

use crate::publish::PublishTimes;

/// Owned by the committer, which can thus observe the events of a commit locally and flush once.
#[derive(Debug)]
pub(crate) struct CommitMeter {
    publish_to_commit: LocalHistogram,
    batch: Histogram,
    sync: Histogram,
}

impl CommitMeter {
    pub(super) fn new(publish_to_commit: &Histogram, batch: &Histogram, sync: &Histogram) -> Self {
        Self {
            publish_to_commit: publish_to_commit.local(),
            batch: batch.clone(),
            sync: sync.clone(),
        }
    }

    /// Records that events received at these times are stored at `now`. `write` is present once per write, with
    /// the first of its commits.
    pub(crate) fn committed<'a>(
        &mut self,
        publish_times: impl Iterator<Item = &'a PublishTimes>,
        write: Option<WriteStats>,
        now: Instant,
    ) {
        for (at, count) in publish_times.flat_map(PublishTimes::runs) {
            let seconds = now.saturating_duration_since(at).as_secs_f64();
            for _ in 0..count {
                self.publish_to_commit.observe(seconds);
            }
        }
        self.publish_to_commit.flush();
        let Some(WriteStats { events, sync_time }) = write else { return };
        if events > 0 {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a batch is far smaller than 2^52 events"
            )]
            self.batch.observe(events as f64);
        }
        if let Some(time) = sync_time {
            self.sync.observe(time.as_secs_f64());
        }
    }
}
