//! What idle and active connections cost a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use crate::benches::publish::Publishers;
use crate::load::event_text::EventText;
use crate::measure::tally::Tally;
use crate::publisher::RunContext;
use crate::report::{PublishReport, ms};
use crate::system::open_files::allow_connections;
use crate::system::resident::resident_bytes;
use crate::target::wire::{OPENED_AT_ONCE, Socket, WirePublisher};
use crate::{BenchError, Load, Wire, run_name};

/// How long to wait before memory is measured.
const SETTLING: Duration = Duration::from_secs(1);

/// How many connections to open, and what they do.
#[derive(Clone, Debug)]
pub struct ConnectionsPlan {
    /// The number of connections, the topics and the event size. `events` and `rate` are ignored.
    pub load: Load,
    /// Events per second of each connection; `None` if they are idle.
    pub rate_each: Option<f64>,
    pub time: Duration,
    /// The server's process, to measure its memory.
    pub pid: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ConnectionsReport {
    /// Connections that were open and alive at the end.
    pub connections: usize,
    /// How long opening them took, in milliseconds.
    pub opened_ms: f64,
    /// The server's resident memory with one connection, in bytes.
    pub memory_before: Option<u64>,
    /// The server's resident memory with all connections idle, in bytes.
    pub memory_idle: Option<u64>,
    /// The memory that each connection added, in bytes.
    pub memory_each: Option<u64>,
    /// The server's resident memory after all connections have published, in bytes.
    pub memory_active: Option<u64>,
    /// `None` if the connections were idle.
    #[serde(flatten)]
    pub active: Option<PublishReport>,
}

/// Opens connections and keeps them idle, or publishes over them, for a while.
pub async fn bench_connections(
    server: &Wire,
    plan: &ConnectionsPlan,
    tally: &Arc<Tally>,
) -> Result<ConnectionsReport, BenchError> {
    let load = plan.total_load();
    load.check()?;
    let topics = load.topics()?;
    let text = Arc::new(EventText::new(&load, &topics, &run_name())?);
    allow_connections(load.connections)?;
    let memory = || plan.pid.map(resident_bytes).transpose();
    // The first connection allocates what all of them share.
    let first = server.open().await?;
    sleep(SETTLING).await;
    let memory_before = memory()?;
    let started = Instant::now();
    let sockets = server.open_many(load.connections).await?;
    let opened_ms = ms(started.elapsed());
    let idle_for = if plan.rate_each.is_some() { SETTLING } else { plan.time.max(SETTLING) };
    let sockets = idle(sockets, idle_for).await?;
    let memory_idle = memory()?;
    let alive = stream::iter(sockets).map(|socket| server.check_alive(socket));
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
        let context = RunContext { load, text, started: Instant::now() };
        publishers.run(&context, tally).await?;
        report.memory_active = memory()?;
        report.active = Some(PublishReport::of(&tally.total()));
    }
    drop(first);
    Ok(report)
}

impl ConnectionsPlan {
    /// Returns the load of all connections together.
    #[must_use]
    pub fn total_load(&self) -> Load {
        let rate = self.rate_each.map(|each| each * self.load.connections as f64);
        let events = rate.map_or(1.0, |rate| (rate * self.time.as_secs_f64()).round().max(1.0));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is rounded and at least 1"
        )]
        let events = events as u64;
        Load { events, rate, ..self.load.clone() }
    }
}

/// Reads from all connections for a while, so that pings are answered.
async fn idle(sockets: Vec<Socket>, time: Duration) -> Result<Vec<Socket>, BenchError> {
    let until = tokio::time::Instant::now() + time;
    let mut waiting = JoinSet::new();
    for mut socket in sockets {
        waiting.spawn(async move {
            let mut received = Vec::new();
            match timeout_at(until, socket.exchange(&mut received)).await {
                Err(_elapsed) => Ok(socket),
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => Err(BenchError::NotUnderstood(
                    "the server sent a frame to an idle connection".to_owned(),
                )),
            }
        });
    }
    let mut idle = Vec::with_capacity(waiting.len());
    while let Some(waited) = waiting.join_next().await {
        idle.push(waited.map_err(|error| BenchError::Invalid(error.to_string()))??);
    }
    Ok(idle)
}
