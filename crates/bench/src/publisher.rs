//! One connection that publishes its part of a load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::load::event_text::EventText;
use crate::load::send_plan::Sending;
use crate::measure::tally::Tally;
use crate::port::{Events, PublishPort};
use crate::{BenchError, Load};

/// What all connections of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) load: Load,
    pub(crate) text: Arc<EventText>,
    pub(crate) began: Instant,
}

impl Course {
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Publishes the part of connection `place`, and counts what is answered.
pub(crate) async fn publish(
    mut port: impl PublishPort,
    course: Course,
    place: usize,
    wake: Arc<Notify>,
    tally: Arc<Tally>,
) -> Result<(), BenchError> {
    let load = &course.load;
    let topics = load.topics as u64;
    let mut sending = Sending::new(load, place);
    let mut took = Vec::new();
    while !sending.is_done() {
        let now = course.now();
        while let Some(frame) = sending.next(now) {
            let topic = usize::try_from(frame.number % topics).unwrap_or(0);
            let stamp = |event| sending.stamp(event, now);
            port.put(&Events { text: &course.text, frame, topic, stamp: &stamp })?;
        }
        let answers = port.turn(&wake).await?;
        let now = course.now();
        took.clear();
        let mut events = 0;
        for _ in 0..answers {
            let answered = sending.answered(now, |time, events| took.push((time, events)));
            let unasked =
                || BenchError::NotUnderstood("an answer that nobody asked for".to_owned());
            events += answered.ok_or_else(unasked)?;
        }
        if events > 0 {
            tally.add(now, events * load.size as u64, &took);
        }
    }
    tally.add_late(sending.late());
    Ok(())
}
