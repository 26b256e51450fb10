//! What connections cost a server, idle and active.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant as Moment, sleep, timeout_at};

use crate::benches::publish::Publishers;
use crate::load::event_text::EventText;
use crate::measure::tally::Tally;
use crate::publisher::Course;
use crate::report::{PublishReport, ms};
use crate::system::open_files::allow_connections;
use crate::system::resident::resident_bytes;
use crate::target::wire::{OPENED_AT_ONCE, Socket, WirePublisher};
use crate::{BenchError, Load, Wire, run_name};

/// So long memory is given to settle.
const SETTLING: Duration = Duration::from_secs(1);

/// Which connections there are, and what they do.
#[derive(Clone, Debug)]
pub struct ConnectionsPlan {
    /// How many, which topics, and how large events are; `events` and `rate` follow from the rest.
    pub load: Load,
    /// How many events a second each connection publishes; none if they are idle.
    pub rate_each: Option<f64>,
    /// For how long.
    pub time: Duration,
    /// The server's process, if its memory can be looked at.
    pub pid: Option<u32>,
}

/// What they cost.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionsReport {
    /// How many were open, all of them alive in the end.
    pub connections: usize,
    /// How long it took to open them, in milliseconds.
    pub opened_ms: f64,
    /// The server's resident memory with one connection, in bytes.
    pub memory_before: Option<u64>,
    /// The same with all of them, idle.
    pub memory_idle: Option<u64>,
    /// What each of them added, in bytes.
    pub memory_each: Option<u64>,
    /// The same as `memory_idle`, when all of them have published.
    pub memory_active: Option<u64>,
    /// What they published, where they were active.
    #[serde(flatten)]
    pub active: Option<PublishReport>,
}

/// Opens connections, and has them idle or active for a while.
pub async fn bench_connections(
    server: &Wire,
    plan: &ConnectionsPlan,
    tally: &Arc<Tally>,
) -> Result<ConnectionsReport, BenchError> {
    let load = plan.whole_load();
    load.check()?;
    let topics = load.topics()?;
    let text = Arc::new(EventText::new(&load, &topics, &run_name())?);
    allow_connections(load.connections)?;
    let memory = || plan.pid.map(resident_bytes).transpose();
    // One first, so that what all share is there before.
    let first = server.open().await?;
    sleep(SETTLING).await;
    let memory_before = memory()?;
    let began = Instant::now();
    let sockets = server.open_many(load.connections).await?;
    let opened_ms = ms(began.elapsed());
    let idle_for = if plan.rate_each.is_some() { SETTLING } else { plan.time.max(SETTLING) };
    let sockets = idle(sockets, idle_for).await?;
    let memory_idle = memory()?;
    let alive = stream::iter(sockets).map(|socket| server.alive(socket));
    let sockets: Vec<_> = alive.buffer_unordered(OPENED_AT_ONCE).try_collect().await?;
    let mut report = ConnectionsReport {
        connections: sockets.len(),
        opened_ms,
        memory_before,
        memory_idle,
        memory_each: memory_before
            .zip(memory_idle)
            .map(|(before, with)| with.saturating_sub(before) / load.connections as u64),
        memory_active: None,
        active: None,
    };
    if plan.rate_each.is_some() {
        let publisher = |socket| WirePublisher::new(socket, &topics, load.batch > 1);
        let publishers = Publishers::Wire(sockets.into_iter().map(publisher).collect());
        let course = Course { load, text, began: Instant::now() };
        publishers.run(&course, tally).await?;
        report.memory_active = memory()?;
        report.active = Some(PublishReport::of(&tally.total()));
    }
    drop(first);
    Ok(report)
}

impl ConnectionsPlan {
    /// What all connections do together.
    #[must_use]
    pub fn whole_load(&self) -> Load {
        let rate = self.rate_each.map(|each| each * self.load.connections as f64);
        let events = rate.map_or(1.0, |rate| (rate * self.time.as_secs_f64()).round().max(1.0));
        // It was rounded, and is not negative: nothing is lost that is meant.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let events = events as u64;
        Load { events, rate, ..self.load.clone() }
    }
}

/// Has all of them read for a while, as clients do, so that pings are answered.
async fn idle(sockets: Vec<Socket>, time: Duration) -> Result<Vec<Socket>, BenchError> {
    let until = Moment::now() + time;
    let mut waiting = JoinSet::new();
    for mut socket in sockets {
        waiting.spawn(async move {
            let mut came = Vec::new();
            match timeout_at(until, socket.turn(&mut came)).await {
                Err(_over) => Ok(socket),
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => {
                    Err(BenchError::NotUnderstood("a frame for an idle client".to_owned()))
                }
            }
        });
    }
    let mut idle = Vec::with_capacity(waiting.len());
    while let Some(waited) = waiting.join_next().await {
        idle.push(waited.map_err(|error| BenchError::Meaningless(error.to_string()))??);
    }
    Ok(idle)
}
