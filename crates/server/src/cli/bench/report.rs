//! Prints the results of a benchmark: a table for people, one JSON object for programs.

use std::io::{self, IsTerminal, Write};

use prombus_bench::{Figures, Load, Summary};
use serde::Serialize;

use crate::cli::human_bytes::human_bytes;
pub(super) use crate::cli::human_count::human_count as count;
use crate::cli::table::Table;

#[derive(clap::Args)]
pub(super) struct PrintArguments {
    /// Print one JSON object; the default when stdout is not a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print a table, even when stdout is not a terminal
    #[arg(long)]
    table: bool,
}

/// What was measured, printed beside the figures.
#[derive(Serialize)]
pub(super) struct RunSettings<'a> {
    pub(super) on: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durability: Option<&'a str>,
    pub(super) n: u64,
    pub(super) size: usize,
    pub(super) batch: u64,
    pub(super) window: u64,
    pub(super) connections: usize,
    pub(super) topics: usize,
    /// Present if there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) groups: Option<usize>,
    pub(super) rate: Option<f64>,
}

impl<'a> RunSettings<'a> {
    pub(super) fn of(load: &Load, on: &'a str, durability: Option<&'a str>) -> Self {
        Self {
            on,
            durability,
            n: load.events,
            size: load.size,
            batch: load.batch,
            window: load.window,
            connections: load.connections,
            topics: load.topics,
            groups: Some(load.groups).filter(|groups| *groups > 1),
            rate: load.rate,
        }
    }

    fn heading(&self) -> String {
        let mut heading = self.on.to_owned();
        if let Some(durability) = self.durability {
            heading += &format!("; durability: {durability}");
        }
        let Self { size, batch, window, connections, topics, .. } = self;
        let groups = self.groups.map_or(String::new(), |groups| format!(", groups {groups}"));
        let rate = self.rate.map_or("unlimited rate".to_owned(), |rate| format!("{rate}/s"));
        heading
            + &format!(
                "\nsize {size}, batch {batch}, window {window}, connections {connections}, topics \
                 {topics}{groups}, {rate}"
            )
    }
}

#[derive(Serialize)]
struct JsonReport<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a RunSettings<'a>>,
}

/// Named figures of the table.
pub(super) type Rows = Vec<(&'static str, String)>;

impl PrintArguments {
    pub(super) fn print<R: Serialize>(
        &self,
        report: &R,
        settings: Option<&RunSettings<'_>>,
        rows: Rows,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json || !(self.table || out.is_terminal()) {
            let json = serde_json::to_string(&JsonReport { report, settings })?;
            writeln!(out, "{json}")?;
            return out.flush();
        }
        if let Some(settings) = settings {
            writeln!(out, "{}", settings.heading())?;
        }
        let mut table = Table::new(&[]);
        for (name, figure) in rows {
            table.push(vec![name.to_owned(), figure]);
        }
        write!(out, "{}", table.render(1).trim_start_matches('\n'))?;
        out.flush()
    }
}

/// The rows of a run: the number of events, under the name `what`, and its figures.
pub(super) fn run_rows(what: &'static str, events: u64, figures: &Figures) -> Rows {
    let mut rows = vec![
        (what, count(events)),
        ("time", format!("{:.0} ms", figures.ms)),
        ("rate", rate(figures.mps)),
        ("bytes", bytes(figures.bytes, figures.ms)),
    ];
    rows.extend(latency_rows(&figures.latency));
    rows.push(("late", count(figures.late)));
    rows
}

fn latency_rows(latency: &Summary) -> Rows {
    let Summary { p50, p90, p99, p999, max, avg } = latency;
    [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max), ("avg", avg)]
        .map(|(name, ms)| (name, format!("{ms:.3} ms")))
        .to_vec()
}

pub(super) fn rate(per_second: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative")]
    let whole = per_second.round() as u64;
    format!("{}/s", count(whole))
}

/// Formats bytes with their rate.
pub(super) fn bytes(bytes: u64, ms: f64) -> String {
    let per_second = human_bytes(bytes as f64 / (ms / 1e3).max(1e-6));
    format!("{}, {per_second}/s", human_bytes(bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_figures_for_people() {
        assert_eq!(rate(1_234_567.8), "1,234,568/s");
        assert_eq!(bytes(2048, 500.0), "2.0 KiB, 4.0 KiB/s");
    }
}
