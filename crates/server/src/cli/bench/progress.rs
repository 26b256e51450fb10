//! Progress of a benchmark, shown on a terminal.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use prombus_bench::{BenchError, Tally};

use crate::cli::status_line::StatusLine;
use crate::cli::stop_signal::StopSignal;

const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
pub(super) enum ProgressStyle {
    Rate,
    RateAndLatency,
}

/// Runs `work` and shows its progress. Fails at a stop signal.
pub(super) async fn with_progress<T>(
    what: &str,
    style: ProgressStyle,
    tally: &Tally,
    work: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, Box<dyn Error>> {
    let line = StatusLine::new(false);
    let mut stop_signal = StopSignal::new()?;
    let mut work = pin!(work);
    let mut ticks = tokio::time::interval(INTERVAL);
    let (mut events, mut at) = (0, Instant::now());
    loop {
        tokio::select! {
            result = &mut work => {
                line.set("");
                return Ok(result?);
            }
            () = stop_signal.recv() => {
                line.set("");
                return Err("stopped".into());
            }
            _ = ticks.tick(), if line.is_visible() => {
                let progress = tally.progress();
                let rate = (progress.events - events) as f64 / at.elapsed().as_secs_f64().max(1e-3);
                (events, at) = (progress.events, Instant::now());
                let mut text = format!("{what} {events}, {rate:.0}/s");
                if matches!(style, ProgressStyle::RateAndLatency) {
                    let (p50, p99) = (progress.recent.p50, progress.recent.p99);
                    text += &format!(", p50 {p50:.2} ms, p99 {p99:.2} ms");
                }
                line.set(&text);
            }
        }
    }
}
