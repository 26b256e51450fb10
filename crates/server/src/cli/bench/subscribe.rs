//! `prombus bench subscribe`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{Load, Tally, bench_backlog, bench_subscribe};

use super::load_arguments::LoadArguments;
use super::progress::{ProgressStyle, with_progress};
use super::report::{PrintArguments, RunSettings, run_rows};
use super::target_arguments::{BenchTarget, TargetArguments};

#[derive(clap::Args)]
pub(super) struct SubscribeBenchArguments {
    /// Publish everything first, unmeasured, then measure how fast it is consumed
    #[arg(long, conflicts_with = "rate")]
    backlog: bool,
    /// Number of consumer groups; each receives every event, on its own connections
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    groups: usize,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    print: PrintArguments,
}

pub(super) async fn run(arguments: SubscribeBenchArguments) -> Result<(), Box<dyn Error>> {
    let load = Load { groups: arguments.groups, ..arguments.load.load() };
    load.check()?;
    let target = arguments.target.choose(&load).await?;
    let measured = measure(&arguments, &load, &target).await;
    // Also after a failure.
    let closed = target.close().await;
    measured.and(closed)
}

async fn measure(
    arguments: &SubscribeBenchArguments,
    load: &Load,
    target: &BenchTarget,
) -> Result<(), Box<dyn Error>> {
    let tally = Arc::new(Tally::default());
    let (what, style) = ("delivered", ProgressStyle::RateAndLatency);
    let report = if arguments.backlog {
        with_progress(what, style, &tally, bench_backlog(&target.bus, load, &tally)).await?
    } else {
        with_progress(what, style, &tally, bench_subscribe(&target.bus, load, &tally)).await?
    };
    let settings = RunSettings::of(load, &target.name, Some(target.durability));
    let rows = run_rows(what, report.n, &report.figures);
    Ok(arguments.print.print(&report, Some(&settings), rows)?)
}
