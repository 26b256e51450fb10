//! `prombus bench publish`.

use std::error::Error;
use std::sync::Arc;

use prombus_bench::{PublishReport, Tally, bench_publish};

use super::load_arguments::LoadArguments;
use super::printing::{self, Circumstances, PrintArguments, Rows, latency_rows};
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
    arguments.print.print(&report, Some(&circumstances), rows(&report))?;
    chosen.end().await
}

pub(super) fn rows(report: &PublishReport) -> Rows {
    let mut rows = vec![
        ("published", printing::count(report.published)),
        ("time", format!("{:.0} ms", report.ms)),
        ("rate", printing::rate(report.mps)),
        ("bytes", printing::bytes(report.bytes, report.ms)),
    ];
    rows.extend(latency_rows(&report.latency));
    rows.push(("late", printing::count(report.late)));
    rows
}
