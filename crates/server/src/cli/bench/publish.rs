//! `prombus bench publish`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{Load, Tally, bench_publish};

use super::load_arguments::LoadArguments;
use super::progress::{ProgressStyle, with_progress};
use super::report::{PrintArguments, RunSettings, run_rows};
use super::target_arguments::{BenchTarget, TargetArguments};

#[derive(clap::Args)]
pub(super) struct PublishBenchArguments {
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    print: PrintArguments,
}

pub(super) async fn run(arguments: PublishBenchArguments) -> Result<(), Box<dyn Error>> {
    let load = arguments.load.load();
    load.check()?;
    let target = arguments.target.choose(&load).await?;
    let measured = measure(&arguments.print, &load, &target).await;
    // Also after a failure.
    let closed = target.close().await;
    measured.and(closed)
}

async fn measure(
    print: &PrintArguments,
    load: &Load,
    target: &BenchTarget,
) -> Result<(), Box<dyn Error>> {
    let tally = Arc::new(Tally::default());
    let work = bench_publish(&target.bus, load, &tally);
    let report = with_progress("published", ProgressStyle::RateAndLatency, &tally, work).await?;
    let settings = RunSettings::of(load, &target.name, Some(target.durability));
    let rows = run_rows("published", report.published, &report.figures);
    Ok(print.print(&report, Some(&settings), rows)?)
}
