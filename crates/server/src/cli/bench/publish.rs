//! `prombus bench publish`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{Tally, bench_publish};

use super::load_arguments::LoadArguments;
use super::printing::{Circumstances, PrintArguments, run_rows};
use super::target_arguments::TargetArguments;
use super::watching::{Shown, watched};

/// What `bench publish` takes.
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
    let chosen = arguments.target.choose(&load).await?;
    let tally = Arc::new(Tally::default());
    let work = bench_publish(&chosen.target, &load, &tally);
    let report = watched("published", Shown::RateAndLatency, &tally, work).await?;
    let circumstances = Circumstances::of(&load, &chosen.name, Some(chosen.durability));
    arguments.print.print(
        &report,
        Some(&circumstances),
        run_rows("published", report.published, &report.figures),
    )?;
    chosen.end().await
}
