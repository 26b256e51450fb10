//! The page with the tables.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::chart::{Bar, bars};
use crate::results::{Facts, Outcome, Results, US, Work, median};

/// What we want to reach: a work of ours beside a work of a system, at least so many times as fast.
const GOALS: [(Work, &str, Work, f64); 6] = [
    (Work::PublishEach, "nats", Work::PublishEach, 2.0),
    (Work::PublishEach, "nats-always", Work::PublishEach, 40.0),
    (Work::PublishEach, "redis", Work::PublishEach, 1.3),
    (Work::PublishBatches, "nats", Work::PublishBatches, 8.0),
    (Work::PublishAndConsume, "nats", Work::PublishAndConsume, 2.5),
    (Work::Backlog, "nats", Work::Backlog, 2.0),
];
/// Our p99 at the steady rate is at most so many times that of the calls of `fdatasync` meanwhile.
const STEADY_GOAL: f64 = 4.0;

const RATES: [Work; 4] =
    [Work::PublishEach, Work::PublishBatches, Work::PublishAndConsume, Work::Backlog];

/// Where the section of `benchmarks.md` begins that is written here, and where it ends.
pub(crate) const BEGIN: &str = "<!-- Written by `make bench-peers` from here on. -->\n";
pub(crate) const END: &str = "<!-- Written by `make bench-peers` up to here. -->\n";

/// Writes the section of `benchmarks.md` in a folder anew, and its charts into `benchmarks-peers` there.
///
/// # Errors
///
/// When a file cannot be written, or the section is not there.
pub fn write_docs(results: &Results, docs: &Path) -> io::Result<()> {
    let charts = docs.join("benchmarks-peers");
    fs::create_dir_all(&charts)?;
    for work in RATES {
        let chart = bars(title(work), "/s", &bars_of(results, work));
        fs::write(charts.join(chart_name(work)), chart)?;
    }
    let path = docs.join("benchmarks.md");
    let before = fs::read_to_string(&path)?;
    let missing = || io::Error::other(format!("{} has no section of ours", path.display()));
    let start = before.find(BEGIN).ok_or_else(missing)? + BEGIN.len();
    let end = start + before[start..].find(END).ok_or_else(missing)?;
    fs::write(&path, format!("{}\n{}\n{}", &before[..start], section(results), &before[end..]))
}

/// The section as text.
pub(crate) fn section(results: &Results) -> String {
    let mut page = String::new();
    head(results, &mut page);
    rates(results, &mut page);
    ratios(results, &mut page);
    goals(results, &mut page);
    steady(results, &mut page);
    for work in RATES.into_iter().filter(|work| !bars_of(results, *work).is_empty()) {
        let _ = writeln!(page, "![{}](benchmarks-peers/{})\n", title(work), chart_name(work));
    }
    systems(results, &mut page);
    page
}

fn title(work: Work) -> &'static str {
    match work {
        Work::PublishEach => "(a) publish one at a time",
        Work::PublishBatches => "(b) publish in batches",
        Work::PublishAndConsume => "(c) publish, deliver, acknowledge each",
        Work::Backlog => "(d) consume a backlog, acknowledge each",
        Work::Steady => "(e) steady rate",
    }
}

fn chart_name(work: Work) -> String {
    format!("{}.svg", work.letter())
}

fn bars_of(results: &Results, work: Work) -> Vec<Bar> {
    let bar = |facts: &Facts| {
        Some(Bar {
            label: facts.label.clone(),
            value: results.rate(&facts.name, work)?,
            ours: facts.name == US,
            fsynced: facts.fsynced,
        })
    };
    results.systems.iter().filter_map(bar).collect()
}

fn head(results: &Results, page: &mut String) {
    let Results { today, revision, machine, plan, .. } = results;
    let _ = writeln!(
        page,
        "Seen on {today} at revision {revision}, on {} cores of \"{}\" with \
{} GiB, {}.

One client process with one thread, one server process, both on this machine; events of {} bytes of JSON, the same \
for all; at most {} published and not answered, and as many delivered and not acknowledged. A measurement is {} events \
or {} s, whichever is less, on a server of its own with an empty folder on the same disk, to which all that was there before it \
is written first; each is made {} times, all systems one after the other in each round. A rate is the median of the rounds; a ratio is the median of the ratios of \
each round.",
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.system,
        plan.event_bytes,
        plan.window,
        grouped_whole(plan.events),
        plan.seconds,
        plan.rounds
    );
    if let Some(remark) = &results.remark {
        let _ = writeln!(page, "\n**{remark}**");
    }
    for missing in &results.missing {
        let _ = writeln!(page, "\n**Not measured: {}: {}.**", missing.label, missing.why);
    }
    for (seen, why) in results.failures() {
        let letter = seen.work.letter();
        let _ = writeln!(
            page,
            "\n**Failed: {}, ({letter}), round {}: {why}.**",
            seen.system, seen.round
        );
    }
}

fn table_head(page: &mut String, first: &str) {
    let _ = write!(page, "\n| {first} |");
    for work in RATES {
        let _ = write!(page, " {} |", title(work));
    }
    let _ = writeln!(page, "\n|---|---:|---:|---:|---:|");
}

fn rates(results: &Results, page: &mut String) {
    let _ = write!(page, "\n### Events a second\n");
    table_head(page, "");
    for facts in &results.systems {
        let synced = if facts.fsynced { "fsynced" } else { "not fsynced" };
        let _ = write!(page, "| {} ({synced}) |", facts.label);
        for work in RATES {
            let rate = results.rate(&facts.name, work).map_or("–".to_owned(), grouped);
            let _ = write!(page, " {rate} |");
        }
        page.push('\n');
    }
}

fn ratios(results: &Results, page: &mut String) {
    let _ = write!(page, "\n### How many times as fast Prombus is\n");
    table_head(page, "as");
    for facts in results.systems.iter().filter(|facts| facts.name != US) {
        let _ = write!(page, "| {} |", facts.label);
        for work in RATES {
            let _ = write!(page, " {} |", times(results.ratio(&facts.name, work, work)));
        }
        page.push('\n');
    }
}

fn goals(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "\n### Beside the goals\n\n| Prombus | as | seen | goal |\n|---|---|---:|---:|\n"
    );
    for (ours, system, theirs, goal) in GOALS {
        let Some(facts) = results.systems.iter().find(|facts| facts.name == system) else {
            continue;
        };
        let seen = times(results.ratio(system, ours, theirs));
        let (ours, theirs) = (title(ours), title(theirs));
        let _ = writeln!(page, "| {ours} | {}, {theirs} | {seen} | ≥ {goal} |", facts.label);
    }
    let batches = results.ratio("nats", Work::PublishBatches, Work::PublishEach);
    if batches.is_some() {
        let _ = writeln!(
            page,
            "\nIn batches, Prombus is {} times as fast as NATS at its default one at a time, which is how NATS is \
             mostly used.",
            times(batches)
        );
    }
}

fn steady(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "\n### (e) At a steady {} events a second\n\nFrom the time an event was to be published to the time it was \
         delivered, in milliseconds, whatever was late before it; each event is acknowledged; for {} s, of which the first \
         tenth does not count. A system with undelivered events did not keep up; its times are of those that came. Medians of the rounds.\n\n\
         | | p50 | p99 | p99.9 | longest | undelivered |\n\
         |---|---:|---:|---:|---:|---:|\n",
        results.plan.per_second, results.plan.steady_seconds
    );
    let middle = |facts: &Facts, of: fn(&Steady) -> f64| {
        let seen =
            results.of(&facts.name, Work::Steady).filter_map(|seen| Steady::of(&seen.outcome));
        median(seen.map(|seen| of(&seen)).filter(|value| !value.is_nan()).collect())
    };
    for facts in &results.systems {
        let times: [fn(&Steady) -> f64; 4] = [|s| s.p50, |s| s.p99, |s| s.p999, |s| s.longest];
        let times = times.map(|of| milliseconds(middle(facts, of)));
        let undelivered = middle(facts, |s| s.undelivered).map_or("–".to_owned(), grouped);
        let _ = writeln!(page, "| {} | {} | {undelivered} |", facts.label, times.join(" | "));
    }
    let _ = write!(
        page,
        "\nWhat of that is the disk's, each a p99: *calls*, of `fdatasync` by a thread of the client's process that \
         does nothing but write an event to a file of its own and sync it, every {} ms, while the system is measured; \
         *meanwhile*, the same from when each was to be called, as events are measured; *plain file*, half of it right before and \
         half after, for as long together, from the time an event was to be written to the time it was synced, by a program \
         that at the same steady rate does nothing but write all that is due to a file and sync it; *its calls*, of \
         `fdatasync` in that program; *flat out*, right before and after, of `fdatasync` by a \
         program that writes one event after the other. Where all stands still now and then, that is one of hundreds or of \
         thousands for calls, and all events that come meanwhile wait, with a plain file as with every system here. \
         The goal for Prombus is at most {STEADY_GOAL} times *calls*.\n\n\
         | | calls | p99 / calls | meanwhile | p99 / meanwhile | plain file | p99 / plain file | plain file / its calls | flat out |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        results.plan.sync_every_ms
    );
    for facts in &results.systems {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            facts.label,
            milliseconds(middle(facts, |s| s.calls)),
            times(middle(facts, |s| s.p99 / s.calls)),
            milliseconds(middle(facts, |s| s.meanwhile)),
            times(middle(facts, |s| s.p99 / s.meanwhile)),
            milliseconds(middle(facts, |s| s.file)),
            times(middle(facts, |s| s.p99 / s.file)),
            times(middle(facts, |s| s.file / s.file_calls)),
            milliseconds(middle(facts, |s| s.flat_out)),
        );
    }
    let _ = write!(
        page,
        "\nA virtual machine stands still when its host gives its processors to others. *Stolen* is how long that was \
         while the system was measured, as the kernel tells, all processors together; *spared*, how many of the events \
         came while there was none from a tenth of a second before them to a tenth behind them, which is the less likely the \
         longer one takes; then the p99 of these, and of the syncs of which the same is true.\n\n\
         | | stolen, ms | spared, % | p99 | calls | p99 / calls | meanwhile | p99 / meanwhile |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for facts in &results.systems {
        let whole = |of| middle(facts, of).map_or("–".to_owned(), grouped);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            facts.label,
            whole(|s| s.stolen_ms),
            whole(|s| s.spared_percent),
            milliseconds(middle(facts, |s| s.spared_p99)),
            milliseconds(middle(facts, |s| s.spared_calls)),
            times(middle(facts, |s| s.spared_p99 / s.spared_calls)),
            milliseconds(middle(facts, |s| s.spared_meanwhile)),
            times(middle(facts, |s| s.spared_p99 / s.spared_meanwhile)),
        );
    }
    page.push('\n');
}

/// What was seen at a steady rate; times in microseconds.
struct Steady {
    p50: f64,
    p99: f64,
    p999: f64,
    longest: f64,
    undelivered: f64,
    /// The p99s of the disk, not less than a microsecond.
    meanwhile: f64,
    calls: f64,
    file: f64,
    file_calls: f64,
    flat_out: f64,
    stolen_ms: f64,
    spared_percent: f64,
    /// Not a number where there was nothing of that kind.
    spared_p99: f64,
    /// As those of the disk.
    spared_meanwhile: f64,
    spared_calls: f64,
}

impl Steady {
    #[allow(
        clippy::cast_precision_loss,
        reason = "microseconds of a measurement are no large numbers"
    )]
    fn of(outcome: &Outcome) -> Option<Self> {
        let Outcome::Latency {
            undelivered,
            p50_us,
            p99_us,
            p999_us,
            max_us,
            disk,
            stolen_ms,
            spared,
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
            longest: number(max_us),
            undelivered: number(undelivered),
            meanwhile: number(&disk.meanwhile_p99_us).max(1.0),
            calls: number(&disk.calls_p99_us).max(1.0),
            file: number(&disk.file_p99_us).max(1.0),
            file_calls: number(&disk.file_calls_p99_us).max(1.0),
            flat_out: number(&disk.flat_out_p99_us).max(1.0),
            stolen_ms: number(stolen_ms),
            spared_percent: number(&spared.events_percent),
            spared_p99: if spared.events_percent > 0 { number(&spared.p99_us) } else { f64::NAN },
            spared_meanwhile: number(&spared.meanwhile_p99_us).max(1.0),
            spared_calls: number(&spared.calls_p99_us).max(1.0),
        })
    }
}

fn systems(results: &Results, page: &mut String) {
    let _ = write!(
        page,
        "### What each of them is\n\n| | server | client | settings | how it is used |\n|---|---|---|---|---|\n"
    );
    for facts in &results.systems {
        let Facts { label, version, client, settings, usage, .. } = facts;
        let _ = writeln!(page, "| {label} | {version} | {client} | `{settings}` | {usage} |");
    }
    let _ = write!(
        page,
        "\n### What their answers promise\n\n| | an answered publish is | an acknowledgement is |\n|---|---|---|\n"
    );
    for facts in &results.systems {
        let Facts { label, publish_promise, ack_promise, .. } = facts;
        let _ = writeln!(page, "| {label} | {publish_promise} | {ack_promise} |");
    }
}

fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => "–".to_owned(),
        Some(ratio) if ratio >= 10.0 => format!("{ratio:.0}"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

fn milliseconds(microseconds: Option<f64>) -> String {
    microseconds.map_or("–".to_owned(), |microseconds| format!("{:.2}", microseconds / 1000.0))
}

/// A number with commas, to the nearest whole.
pub(crate) fn grouped(value: f64) -> String {
    with_commas(&format!("{value:.0}"))
}

fn grouped_whole(value: u64) -> String {
    with_commas(&value.to_string())
}

fn with_commas(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
