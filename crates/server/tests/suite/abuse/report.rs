//! The comparison of the phases.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::attackers::Tally;
use super::well_behaved::Work;

/// What one phase was like.
pub(super) struct Measured {
    pub(super) work: Work,
    /// Why health checks failed.
    pub(super) unhealthy: Vec<String>,
    /// The most memory that the server has used until the end of the phase, in bytes.
    pub(super) memory: u64,
}

/// Prints both phases and their ratios. Past the test harness, which would keep it unless the test fails.
pub(super) fn print(without: &Measured, with: &Measured, tallies: &[(&'static str, Arc<Tally>)]) {
    let mut text = String::from("\nabuse: the well-behaved client without and with attackers\n");
    let (before, during) = (&without.work, &with.work);
    let mut row = |what: &str, without: f64, with: f64, unit: &str, goal: &str| {
        let ratio = with / without;
        writeln!(text, "  {what:<28} {without:>9.1} {with:>9.1} {unit:<6} ratio {ratio:.2}{goal}")
            .unwrap();
    };
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    row("publish, p50", ms(before.publish(0.5)), ms(during.publish(0.5)), "ms", "");
    let goal = " (goal: at most 3)";
    row("publish, p99", ms(before.publish(0.99)), ms(during.publish(0.99)), "ms", goal);
    row("to delivery, p50", ms(before.end_to_end(0.5)), ms(during.end_to_end(0.5)), "ms", "");
    row("to delivery, p99", ms(before.end_to_end(0.99)), ms(during.end_to_end(0.99)), "ms", goal);
    let goal = " (goal: at least 0.7)";
    row("throughput", before.per_second(), during.per_second(), "1/s", goal);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    row("peak memory", mib(without.memory), mib(with.memory), "MiB", "");
    for (name, tally) in tallies {
        let (attempts, refused) = (tally.attempts(), tally.refused());
        writeln!(text, "  {name:<28} {attempts:>9} attempts, {refused} refused or cut off")
            .unwrap();
    }
    // If stdout is gone, so is the reader.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
