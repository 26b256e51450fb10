//! One connection that publishes its part of a load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::load::event_text::EventText;
use crate::load::send_plan::SendPlan;
use crate::measure::tally::Tally;
use crate::port::{Events, PublishPort};
use crate::{BenchError, Load};

/// What the connections of a run share.
#[derive(Clone, Debug)]
pub(crate) struct RunContext {
    pub(crate) load: Load,
    pub(crate) text: Arc<EventText>,
    pub(crate) started: Instant,
}

impl RunContext {
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Publishes the share of the connection with this index, and counts the answers.
pub(crate) async fn publish(
    mut port: impl PublishPort,
    context: RunContext,
    index: usize,
    wake: Arc<Notify>,
    tally: Arc<Tally>,
) -> Result<(), BenchError> {
    let load = &context.load;
    let topics = load.topics as u64;
    let mut plan = SendPlan::new(load, index);
    let mut took = Vec::new();
    while !plan.is_done() {
        let now = context.now();
        while let Some(frame) = plan.next(now) {
            let topic = usize::try_from(frame.number % topics).unwrap_or(0);
            let stamp = |event| plan.stamp(event, now);
            port.enqueue(&Events { text: &context.text, frame, topic, stamp: &stamp })?;
        }
        let answers = port.exchange(&wake).await?;
        let now = context.now();
        took.clear();
        let mut events = 0;
        for _ in 0..answers {
            let answered = plan.answered(now, |time, events| took.push((time, events)));
            let unexpected = || BenchError::NotUnderstood("an answer without a request".to_owned());
            events += answered.ok_or_else(unexpected)?;
        }
        if events > 0 {
            tally.add(now, events * load.size as u64, &took);
        }
    }
    tally.add_late(plan.late());
    Ok(())
}
