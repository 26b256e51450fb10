//! What the committer counts.

use std::time::Instant;

use prombus_engine::WriteStats;
use prometheus::Histogram;
use prometheus::local::LocalHistogram;

use crate::publish::PublishTimes;

/// The committer's own, so that the events of a commit are added together.
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

    /// Events that were taken at these moments are stored at `now`. The write that stored them counts once,
    /// with the first commit of it.
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
            #[expect(clippy::cast_precision_loss, reason = "a batch is far smaller than that")]
            self.batch.observe(events as f64);
        }
        if let Some(time) = sync_time {
            self.sync.observe(time.as_secs_f64());
        }
    }
}
