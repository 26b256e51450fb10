//! The latencies at a steady rate, with those of the disk and with the steal.

use std::fmt::Write;

use super::numbers::{NOT_MEASURED, grouped, milliseconds, times};
use crate::results::{Outcome, Results, SystemInfo, Workload, median};

/// The goal: the p99 of Prombus divided by that of the `fdatasync` calls during the measurement, at most.
const STEADY_GOAL: f64 = 4.0;

pub(super) fn latencies(results: &Results, page: &mut String) {
    delivery_times(results, page);
    disk_times(results, page);
    steal(results, page);
    page.push('\n');
}

fn delivery_times(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "\n### (e) Latency at a steady {} events per second\n\nFrom the scheduled publish time of an event to its \
         delivery, in milliseconds: a stall counts for every event that it delays. Each event is acknowledged. A measurement \
         takes {} s, of which the first tenth does not count. A system with undelivered events did not keep up; its times \
         are those of the delivered ones. Medians of the rounds.\n\n\
         | | p50 | p99 | p99.9 | max | undelivered |\n\
         |---|---:|---:|---:|---:|---:|\n",
        results.plan.per_second, results.plan.steady_seconds
    );
    for system in &results.systems {
        let fields: [fn(&SteadyRound) -> f64; 4] = [|r| r.p50, |r| r.p99, |r| r.p999, |r| r.max];
        let latencies = fields.map(|field| milliseconds(median_of(results, system, field)));
        let undelivered = whole(median_of(results, system, |r| r.undelivered));
        let _ = writeln!(page, "| {} | {} | {undelivered} |", system.label, latencies.join(" | "));
    }
}

fn disk_times(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "\nHow long the disk takes, each figure a p99 in milliseconds:\n\n\
         - *call*: `fdatasync` while the system is measured. Every {} ms, a thread of the client writes an event to a file of \
         its own and syncs it, and does nothing else.\n\
         - *scheduled*: the same, from the time at which the call was due, as for events.\n\
         - *plain file*: from the scheduled time of an event until it is synced, in a program that writes the events that are \
         due to a file and syncs it, at the same rate, and does nothing else; half of it right before the measurement and \
         half right after, together as long as the measurement.\n\
         - *its calls*: `fdatasync` in that program.\n\
         - *back to back*: `fdatasync` in a program that writes and syncs one event after the other, right before and \
         after.\n\n\
         A stall is one of hundreds or thousands of calls, but every event that arrives during it has to wait, in a plain file \
         as in every system here. The goal for Prombus is at most {STEADY_GOAL} times *call*.\n\n\
         | | call | p99 / call | scheduled | p99 / scheduled | plain file | p99 / plain file | plain file / its calls | back to back |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        results.plan.sync_every_ms
    );
    for system in &results.systems {
        let ms = |field| milliseconds(median_of(results, system, field));
        let ratio = |field| times(median_of(results, system, field));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            system.label,
            ms(|r| r.calls),
            ratio(|r| r.p99 / r.calls),
            ms(|r| r.scheduled),
            ratio(|r| r.p99 / r.scheduled),
            ms(|r| r.plain_file),
            ratio(|r| r.p99 / r.plain_file),
            ratio(|r| r.plain_file / r.plain_file_calls),
            ms(|r| r.back_to_back),
        );
    }
}

fn steal(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "\nA virtual machine stands still while its hypervisor gives its processors to others. *Stolen* is how long that was \
         during the measurement, as the kernel reports it, summed over all processors. *Steal-free* is the share of events with \
         no steal from a tenth of a second before them to a tenth after them; the longer an event takes, the less likely it \
         is one of them. The other columns are the p99 of these events, and of the syncs that are steal-free.\n\n\
         | | stolen, ms | steal-free, % | p99 | call | p99 / call | scheduled | p99 / scheduled |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for system in &results.systems {
        let ms = |field| milliseconds(median_of(results, system, field));
        let ratio = |field| times(median_of(results, system, field));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            system.label,
            whole(median_of(results, system, |r| r.stolen_ms)),
            whole(median_of(results, system, |r| r.steal_free_percent)),
            ms(|r| r.steal_free_p99),
            ms(|r| r.steal_free_calls),
            ratio(|r| r.steal_free_p99 / r.steal_free_calls),
            ms(|r| r.steal_free_scheduled),
            ratio(|r| r.steal_free_p99 / r.steal_free_scheduled),
        );
    }
}

fn whole(value: Option<f64>) -> String {
    value.map_or(NOT_MEASURED.to_owned(), grouped)
}

/// Returns the median over the rounds, leaving out those without the figure.
fn median_of(
    results: &Results,
    system: &SystemInfo,
    field: fn(&SteadyRound) -> f64,
) -> Option<f64> {
    let rounds = results
        .measurements_of(&system.name, Workload::Steady)
        .filter_map(|measured| SteadyRound::from_outcome(&measured.outcome));
    median(rounds.map(|round| field(&round)).filter(|value| !value.is_nan()).collect())
}

/// One round of the steady workload; times in microseconds. Times of the disk are at least 1, because they are
/// denominators.
struct SteadyRound {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    undelivered: f64,
    scheduled: f64,
    calls: f64,
    plain_file: f64,
    plain_file_calls: f64,
    back_to_back: f64,
    stolen_ms: f64,
    steal_free_percent: f64,
    /// NaN if no event was free of steal.
    steal_free_p99: f64,
    steal_free_scheduled: f64,
    steal_free_calls: f64,
}

impl SteadyRound {
    #[allow(
        clippy::cast_precision_loss,
        reason = "microseconds of a measurement are far below 2^53"
    )]
    fn from_outcome(outcome: &Outcome) -> Option<Self> {
        let Outcome::Latency {
            undelivered,
            p50_us,
            p99_us,
            p999_us,
            max_us,
            disk,
            stolen_ms,
            steal_free,
            ..
        } = outcome
        else {
            return None;
        };
        let number = |number: &u64| *number as f64;
        Some(Self {
            p50: number(p50_us),
            p99: number(p99_us),
            p999: number(p999_us),
            max: number(max_us),
            undelivered: number(undelivered),
            scheduled: number(&disk.scheduled_p99_us).max(1.0),
            calls: number(&disk.calls_p99_us).max(1.0),
            plain_file: number(&disk.plain_file_p99_us).max(1.0),
            plain_file_calls: number(&disk.plain_file_calls_p99_us).max(1.0),
            back_to_back: number(&disk.back_to_back_p99_us).max(1.0),
            stolen_ms: number(stolen_ms),
            steal_free_percent: number(&steal_free.events_percent),
            steal_free_p99: if steal_free.events_percent > 0 {
                number(&steal_free.p99_us)
            } else {
                f64::NAN
            },
            steal_free_scheduled: number(&steal_free.scheduled_p99_us).max(1.0),
            steal_free_calls: number(&steal_free.calls_p99_us).max(1.0),
        })
    }
}
