//! How far a bench is, for a person who watches.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use prombus_bench::{BenchError, Tally};

use crate::cli::status_line::StatusLine;
use crate::cli::stopping::Stopping;

const INTERVAL: Duration = Duration::from_millis(200);

/// What is shown of a tally.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// How many, and how fast.
    Rate,
    /// And how long each took.
    RateAndLatency,
}

/// Does `work`, and shows now and then how far it is.
pub(super) async fn watched<T>(
    what: &str,
    shown: Shown,
    tally: &Tally,
    work: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, Box<dyn Error>> {
    let line = StatusLine::beside(false);
    let mut stopping = Stopping::new()?;
    let mut work = pin!(work);
    let mut ticks = tokio::time::interval(INTERVAL);
    let (mut events, mut at) = (0, Instant::now());
    loop {
        tokio::select! {
            done = &mut work => {
                line.show("");
                return Ok(done?);
            }
            () = stopping.asked() => {
                line.show("");
                return Err("stopped".into());
            }
            _ = ticks.tick(), if line.is_shown() => {
                let progress = tally.progress();
                let rate = (progress.events - events) as f64 / at.elapsed().as_secs_f64().max(1e-3);
                (events, at) = (progress.events, Instant::now());
                let mut text = format!("{what} {events}, {rate:.0} a second");
                if matches!(shown, Shown::RateAndLatency) {
                    let (p50, p99) = (progress.recent.p50, progress.recent.p99);
                    text += &format!(", p50 {p50:.2} ms, p99 {p99:.2} ms");
                }
                line.show(&text);
            }
        }
    }
}
