//! The work that is measured, the same for every system.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use prombus_peers_report::Span;
use tokio::sync::{Notify, mpsc};

use crate::session::{Publisher, Result, Subscriber};

/// How much of it.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Events at most.
    pub(crate) events: u64,
    /// Time at most for publishing, and once more for what is consumed.
    pub(crate) time: Duration,
    /// Events that are published and not answered, at most.
    pub(crate) window: u64,
    /// Events of each publish.
    pub(crate) batch: u64,
}

/// Publishes until enough is done, and waits for all answers. Says how many.
pub(crate) async fn publish(publisher: &mut impl Publisher, amount: Amount) -> Result<u64> {
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    loop {
        let goes_on = sent + amount.batch <= amount.events && began.elapsed() < amount.time;
        if !goes_on && answered == sent {
            return Ok(sent);
        }
        while goes_on
            && sent + amount.batch <= amount.events
            && sent - answered + amount.batch <= amount.window
        {
            publisher.publish(sent..sent + amount.batch).await?;
            sent += amount.batch;
        }
        publisher.flush().await?;
        answered += publisher.answered().await?;
    }
}

/// How many events there will be, once the publisher knows.
#[derive(Default)]
struct Total {
    events: Cell<Option<u64>>,
    known: Notify,
}

impl Total {
    fn is(&self, events: u64) {
        self.events.set(Some(events));
        self.known.notify_one();
    }
}

/// Consumes and acknowledges until all events are, or the time is over. Calls `on` for each with its number
/// and the time it came. Says how many.
async fn consume(
    subscriber: &mut impl Subscriber,
    total: &Total,
    until: Instant,
    mut on: impl FnMut(u64, Instant),
) -> Result<u64> {
    let mut numbers = Vec::new();
    let mut acknowledged = 0;
    let over = tokio::time::sleep_until(until.into());
    tokio::pin!(over);
    while total.events.get() != Some(acknowledged) {
        tokio::select! {
            delivered = subscriber.delivered(&mut numbers) => delivered?,
            () = total.known.notified() => continue,
            () = &mut over => break,
        }
        let came = Instant::now();
        subscriber.acknowledge().await?;
        acknowledged += numbers.len() as u64;
        for number in numbers.drain(..) {
            on(number, came);
        }
    }
    subscriber.settled().await?;
    Ok(acknowledged)
}

/// What a client has seen of a work.
pub(crate) struct Seen {
    pub(crate) events: u64,
    /// How long all of them took.
    pub(crate) time: Duration,
    /// How many of them had not come when the time was over, and from when to when each of the others took: where
    /// they are published at fixed times. The first tenth is not among them.
    pub(crate) undelivered: u64,
    pub(crate) delivered: Vec<Span>,
}

impl Seen {
    fn of(events: u64, began: Instant) -> Self {
        Self { events, time: began.elapsed(), undelivered: 0, delivered: Vec::new() }
    }
}

/// Publishes alone.
pub(crate) async fn publish_only(publisher: &mut impl Publisher, amount: Amount) -> Result<Seen> {
    let began = Instant::now();
    let events = publish(publisher, amount).await?;
    Ok(Seen::of(events, began))
}

/// Publishes while another connection consumes what comes.
pub(crate) async fn publish_and_consume(
    publisher: &mut impl Publisher,
    subscriber: &mut impl Subscriber,
    amount: Amount,
) -> Result<Seen> {
    let total = Total::default();
    let began = Instant::now();
    let publishing = async {
        total.is(publish(publisher, amount).await?);
        Ok(())
    };
    let consuming = consume(subscriber, &total, began + 2 * amount.time, |_, _| {});
    let ((), events) = tokio::try_join!(publishing, consuming)?;
    Ok(Seen::of(events, began))
}

/// Consumes what is there.
pub(crate) async fn consume_backlog(
    subscriber: &mut impl Subscriber,
    backlog: u64,
    amount: Amount,
) -> Result<Seen> {
    let total = Total::default();
    total.is(backlog);
    let began = Instant::now();
    let events = consume(subscriber, &total, began + amount.time, |_, _| {}).await?;
    Ok(Seen::of(events, began))
}

/// Publishes at fixed times, whatever comes back. An event takes from the time it was to be published to the time
/// it came.
pub(crate) async fn steady(
    publisher: &mut impl Publisher,
    subscriber: &mut impl Subscriber,
    per_second: u32,
    time: Duration,
) -> Result<Seen> {
    let every = Duration::from_secs(1) / per_second;
    let events = u64::from(per_second) * time.as_secs().max(1);
    let began = Instant::now() + Duration::from_millis(50);
    let due = |number: u64| began + every * u32::try_from(number).unwrap_or(u32::MAX);

    let mut delivered = Vec::new();
    let total = Total::default();
    total.is(events);
    let publishing = publish_on_time(publisher, events, began, every);
    let until = began + 2 * time + Duration::from_secs(1);
    let consuming = consume(subscriber, &total, until, |number, came| {
        if number >= events / 10 {
            delivered.push(Span { from: due(number), to: came });
        }
    });
    let ((), count) = tokio::try_join!(publishing, consuming)?;
    Ok(Seen { undelivered: events - count, delivered, ..Seen::of(events, began) })
}

async fn publish_on_time(
    publisher: &mut impl Publisher,
    events: u64,
    began: Instant,
    every: Duration,
) -> Result<()> {
    let mut due = numbers_on_time(events, began, every);
    let (mut sent, mut answered) = (0, 0);
    while answered < events {
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
            count = publisher.answered(), if answered < sent => answered += count?,
        }
    }
    Ok(())
}

/// Each number at its time. The timer of the runtime knows milliseconds only, so it is a thread that sleeps.
fn numbers_on_time(events: u64, began: Instant, every: Duration) -> mpsc::UnboundedReceiver<u64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let mut due = began;
        for number in 0..events {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send(number).is_err() {
                return;
            }
            due += every;
        }
    });
    receiver
}
