//! One connection that consumes, and when all of them are done.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::BenchError;
use crate::measure::tally::Tally;
use crate::port::ConsumePort;
use crate::publisher::Course;

/// How many acknowledgements are still to be answered, over all connections.
#[derive(Debug)]
pub(crate) struct Countdown(watch::Sender<u64>);

impl Countdown {
    pub(crate) fn of(events: u64) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(events)))
    }

    fn less(&self, events: u64) {
        self.0.send_modify(|left| *left = left.saturating_sub(events));
    }

    /// Waits until nothing is left.
    pub(crate) async fn over(&self) {
        // It cannot be gone while somebody waits here.
        let _ = self.0.subscribe().wait_for(|left| *left == 0).await;
    }
}

/// What latencies count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountFrom {
    /// When each event was sent, or meant to be.
    Sending,
    /// When the run began, for events that were there before.
    Beginning,
}

/// Consumes until all connections together have had everything and every acknowledgement was
/// answered.
pub(crate) async fn consume(
    mut port: impl ConsumePort,
    course: Course,
    from: CountFrom,
    left: Arc<Countdown>,
    tally: Arc<Tally>,
) -> Result<(), BenchError> {
    let (mut delivered, mut took) = (Vec::new(), Vec::new());
    // Acknowledgements come in the order of deliveries: those of others' events do not count.
    let mut foreign = 0;
    loop {
        delivered.clear();
        let acked = tokio::select! {
            acked = port.turn(&course.text, &mut delivered) => acked?,
            () = left.over() => return Ok(()),
        };
        let now = course.now();
        took.clear();
        let mut bytes = 0;
        for event in &delivered {
            match event.sent_at {
                Some(sent_at) => {
                    let since = if from == CountFrom::Sending { sent_at } else { Duration::ZERO };
                    took.push((now.saturating_sub(since), 1));
                    bytes += event.bytes;
                }
                None => foreign += 1,
            }
        }
        if !took.is_empty() {
            tally.add(now, bytes, &took);
        }
        if acked > 0 {
            let ours = acked.saturating_sub(foreign);
            foreign -= acked - ours;
            left.less(ours);
        }
    }
}
