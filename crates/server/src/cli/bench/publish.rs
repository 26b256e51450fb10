//! `prombus bench publish`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{Tally, bench_publish};

use super::load_arguments::LoadArguments;
use super::progress::{ProgressStyle, with_progress};
use super::report::{PrintArguments, RunSettings, run_rows};
use super::target_arguments::TargetArguments;

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
    let tally = Arc::new(Tally::default());
    let work = bench_publish(&target.bus, &load, &tally);
    let report = with_progress("published", ProgressStyle::RateAndLatency, &tally, work).await?;
    let settings = RunSettings::of(&load, &target.name, Some(target.durability));
    arguments.print.print(
        &report,
        Some(&settings),
        run_rows("published", report.published, &report.figures),
    )?;
    target.close().await
}
