//! `prombus bench subscribe`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{Load, Tally, bench_backlog, bench_subscribe};

use super::load_arguments::LoadArguments;
use super::printing::{Circumstances, PrintArguments, run_rows};
use super::target_arguments::TargetArguments;
use super::watching::{Shown, watched};

/// What `bench subscribe` takes.
#[derive(clap::Args)]
pub(super) struct SubscribeBenchArguments {
    /// Publish everything first, unmeasured, and measure how fast it is consumed
    #[arg(long, conflicts_with = "rate")]
    backlog: bool,
    /// How many groups consume every topic, each with as many connections; every group gets every
    /// event
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
    let chosen = arguments.target.choose(&load).await?;
    let tally = Arc::new(Tally::default());
    let (what, shown) = ("delivered", Shown::RateAndLatency);
    let report = if arguments.backlog {
        watched(what, shown, &tally, bench_backlog(&chosen.target, &load, &tally)).await?
    } else {
        watched(what, shown, &tally, bench_subscribe(&chosen.target, &load, &tally)).await?
    };
    let circumstances = Circumstances::of(&load, &chosen.name, Some(chosen.durability));
    arguments.print.print(
        &report,
        Some(&circumstances),
        run_rows(what, report.n, &report.figures),
    )?;
    chosen.end().await
}
