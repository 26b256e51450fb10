//! The workloads, the same for every system.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use prombus_peers_report::Span;
use tokio::sync::{Notify, mpsc};

use crate::client::{Publisher, Result, Subscriber};

/// How much a workload publishes and consumes.
#[derive(Clone, Copy)]
pub(crate) struct RunLimits {
    /// The most events.
    pub(crate) events: u64,
    /// The most time to publish, and again to consume.
    pub(crate) time: Duration,
    /// The most published and unconfirmed events.
    pub(crate) window: u64,
    /// Events per publish.
    pub(crate) batch: u64,
}

/// Publishes up to the limits, waits for all confirmations, and returns the number of events.
pub(crate) async fn publish(publisher: &mut impl Publisher, limits: RunLimits) -> Result<u64> {
    let started = Instant::now();
    let (mut sent, mut confirmed) = (0, 0);
    loop {
        let may_publish = sent + limits.batch <= limits.events && started.elapsed() < limits.time;
        if !may_publish && confirmed == sent {
            return Ok(sent);
        }
        while may_publish
            && sent + limits.batch <= limits.events
            && sent - confirmed + limits.batch <= limits.window
        {
            publisher.publish(sent..sent + limits.batch).await?;
            sent += limits.batch;
        }
        publisher.flush().await?;
        confirmed += publisher.confirmed().await?;
    }
}

/// The total number of events, once the publisher knows it.
#[derive(Default)]
struct Total {
    events: Cell<Option<u64>>,
    known: Notify,
}

impl Total {
    fn set(&self, events: u64) {
        self.events.set(Some(events));
        self.known.notify_one();
    }
}

/// Consumes and acknowledges until all events are acknowledged or the time is over. Calls `on_event` with the number and
/// the arrival time of each event, and returns the number of events.
async fn consume(
    subscriber: &mut impl Subscriber,
    total: &Total,
    until: Instant,
    mut on_event: impl FnMut(u64, Instant),
) -> Result<u64> {
    let mut numbers = Vec::new();
    let mut acknowledged = 0;
    let time_out = tokio::time::sleep_until(until.into());
    tokio::pin!(time_out);
    while total.events.get() != Some(acknowledged) {
        tokio::select! {
            received = subscriber.receive(&mut numbers) => received?,
            () = total.known.notified() => continue,
            () = &mut time_out => break,
        }
        let arrived = Instant::now();
        subscriber.acknowledge().await?;
        acknowledged += numbers.len() as u64;
        for number in numbers.drain(..) {
            on_event(number, arrived);
        }
    }
    subscriber.wait_for_acks().await?;
    Ok(acknowledged)
}

/// What a client observed of a workload.
pub(crate) struct Observation {
    pub(crate) events: u64,
    /// The time that all of them took.
    pub(crate) time: Duration,
    /// Events that had not arrived when the time was over. Only of the steady workload.
    pub(crate) undelivered: u64,
    /// From the scheduled time of each event to its arrival, without the first tenth of the events. Only of the steady
    /// workload.
    pub(crate) delivered: Vec<Span>,
}

impl Observation {
    fn since(started: Instant, events: u64) -> Self {
        Self { events, time: started.elapsed(), undelivered: 0, delivered: Vec::new() }
    }
}

/// Only publishes.
pub(crate) async fn publish_only(
    publisher: &mut impl Publisher,
    limits: RunLimits,
) -> Result<Observation> {
    let started = Instant::now();
    let events = publish(publisher, limits).await?;
    Ok(Observation::since(started, events))
}

/// Publishes while another connection consumes.
pub(crate) async fn publish_and_consume(
    publisher: &mut impl Publisher,
    subscriber: &mut impl Subscriber,
    limits: RunLimits,
) -> Result<Observation> {
    let total = Total::default();
    let started = Instant::now();
    let publishing = async {
        total.set(publish(publisher, limits).await?);
        Ok(())
    };
    let consuming = consume(subscriber, &total, started + 2 * limits.time, |_, _| {});
    let ((), events) = tokio::try_join!(publishing, consuming)?;
    Ok(Observation::since(started, events))
}

/// Consumes stored events.
pub(crate) async fn consume_backlog(
    subscriber: &mut impl Subscriber,
    backlog: u64,
    limits: RunLimits,
) -> Result<Observation> {
    let total = Total::default();
    total.set(backlog);
    let started = Instant::now();
    let events = consume(subscriber, &total, started + limits.time, |_, _| {}).await?;
    Ok(Observation::since(started, events))
}

/// Publishes at fixed times, whether or not earlier events are confirmed. Latencies start at the scheduled time of an
/// event.
pub(crate) async fn steady(
    publisher: &mut impl Publisher,
    subscriber: &mut impl Subscriber,
    per_second: u32,
    time: Duration,
) -> Result<Observation> {
    let interval = Duration::from_secs(1) / per_second;
    let events = u64::from(per_second) * time.as_secs().max(1);
    let started = Instant::now() + Duration::from_millis(50);
    let due = |number: u64| started + interval * u32::try_from(number).unwrap_or(u32::MAX);

    let mut delivered = Vec::new();
    let total = Total::default();
    total.set(events);
    let publishing = publish_on_schedule(publisher, events, started, interval);
    let until = started + 2 * time + Duration::from_secs(1);
    let consuming = consume(subscriber, &total, until, |number, arrived| {
        if number >= events / 10 {
            delivered.push(Span { from: due(number), to: arrived });
        }
    });
    let ((), count) = tokio::try_join!(publishing, consuming)?;
    Ok(Observation {
        undelivered: events - count,
        delivered,
        ..Observation::since(started, events)
    })
}

async fn publish_on_schedule(
    publisher: &mut impl Publisher,
    events: u64,
    started: Instant,
    interval: Duration,
) -> Result<()> {
    let mut due = numbers_on_schedule(events, started, interval);
    let (mut sent, mut confirmed) = (0, 0);
    while confirmed < events {
        tokio::select! {
            biased;
            Some(number) = due.recv(), if sent < events => {
                publisher.publish(number..number + 1).await?;
                sent += 1;
                while let Ok(number) = due.try_recv() {
                    publisher.publish(number..number + 1).await?;
                    sent += 1;
                }
                publisher.flush().await?;
            }
            count = publisher.confirmed(), if confirmed < sent => confirmed += count?,
        }
    }
    Ok(())
}

/// Sends each number at its scheduled time. A thread sleeps, because the runtime's timer has a resolution of a
/// millisecond.
fn numbers_on_schedule(
    events: u64,
    started: Instant,
    interval: Duration,
) -> mpsc::UnboundedReceiver<u64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let mut due = started;
        for number in 0..events {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send(number).is_err() {
                return;
            }
            due += interval;
        }
    });
    receiver
}
