//! One connection that consumes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::BenchError;
use crate::measure::tally::Tally;
use crate::port::ConsumePort;
use crate::publisher::RunContext;

/// The unanswered acknowledgements of all connections.
#[derive(Debug)]
pub(crate) struct Countdown(watch::Sender<u64>);

impl Countdown {
    pub(crate) fn new(events: u64) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(events)))
    }

    fn subtract(&self, events: u64) {
        self.0.send_modify(|left| *left = left.saturating_sub(events));
    }

    /// Waits until no acknowledgement is left.
    pub(crate) async fn reached_zero(&self) {
        // The sender cannot be dropped while `self` is borrowed.
        let _ = self.0.subscribe().wait_for(|left| *left == 0).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyFrom {
    /// When it was sent, or scheduled to be sent.
    Sent,
    /// When the run started, for events that were published before.
    RunStart,
}

/// Consumes until all connections together have received every event and every acknowledgement is
/// answered.
pub(crate) async fn consume(
    mut port: impl ConsumePort,
    context: RunContext,
    from: LatencyFrom,
    left: Arc<Countdown>,
    tally: Arc<Tally>,
) -> Result<(), BenchError> {
    let (mut delivered, mut took) = (Vec::new(), Vec::new());
    // Acknowledgements are answered in order. Those of events from other runs do not count.
    let mut foreign = 0;
    loop {
        delivered.clear();
        let acked = tokio::select! {
            acked = port.exchange(&context.text, &mut delivered) => acked?,
            () = left.reached_zero() => return Ok(()),
        };
        let now = context.now();
        took.clear();
        let mut bytes = 0;
        for event in &delivered {
            match event.sent_at {
                Some(sent_at) => {
                    let since = if from == LatencyFrom::Sent { sent_at } else { Duration::ZERO };
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
            left.subtract(ours);
        }
    }
}
