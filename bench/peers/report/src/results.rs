//! What was measured, as it is kept.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of the system that the others are compared with.
pub const US: &str = "prombus";

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The day.
    pub today: String,
    /// What was measured, such as a commit.
    pub revision: String,
    /// What else there is to say of the run.
    pub remark: Option<String>,
    /// Where.
    pub machine: Machine,
    /// How much.
    pub plan: Plan,
    /// Who.
    pub systems: Vec<Facts>,
    /// Who not.
    pub missing: Vec<Missing>,
    /// What was seen.
    pub measurements: Vec<Measurement>,
}

/// A machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// What its processor is called.
    pub processor: String,
    /// How many cores it has.
    pub cores: u64,
    /// Its memory.
    pub memory_gib: u64,
    /// Its kernel.
    pub system: String,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Events of a measurement at most.
    pub events: u64,
    /// Seconds of a measurement at most.
    pub seconds: u64,
    /// How often each is measured.
    pub rounds: u32,
    /// Events that are published and not answered, and delivered and not acknowledged, at most.
    pub window: u64,
    /// Events of a batch.
    pub batch: u64,
    /// Events a second of the steady work.
    pub per_second: u32,
    /// For how long.
    pub steady_seconds: u64,
    /// From one sync to the next of those that are measured while that goes on.
    pub sync_every_ms: u64,
    /// Bytes of an event.
    pub event_bytes: u64,
}

/// What a system is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Its name in the measurements.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// The version of its server.
    pub version: String,
    /// Its client with the version.
    pub client: String,
    /// The settings of its server.
    pub settings: String,
    /// How the client uses it.
    pub usage: String,
    /// What the answer to a publish says.
    pub publish_promise: String,
    /// What an acknowledgement says.
    pub ack_promise: String,
    /// Whether an answered publish is on stable storage.
    pub fsynced: bool,
}

/// A system that was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// Its name for people.
    pub label: String,
    /// Why.
    pub why: String,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// The name of the system.
    pub system: String,
    /// What it did.
    pub work: Work,
    /// In which round, from 1.
    pub round: u32,
    /// What was seen.
    pub outcome: Outcome,
}

/// What a system does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Publishes one event at a time.
    PublishEach,
    /// Publishes in batches.
    PublishBatches,
    /// Publishes, delivers and acknowledges.
    PublishAndConsume,
    /// Delivers and acknowledges what is there.
    Backlog,
    /// Publishes and delivers at a fixed rate.
    Steady,
}

impl Work {
    /// All of it, in the order of the page.
    pub const ALL: [Self; 5] = [
        Self::PublishEach,
        Self::PublishBatches,
        Self::PublishAndConsume,
        Self::Backlog,
        Self::Steady,
    ];

    /// What it is called in short.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::PublishEach => 'a',
            Self::PublishBatches => 'b',
            Self::PublishAndConsume => 'c',
            Self::Backlog => 'd',
            Self::Steady => 'e',
        }
    }
}

/// What was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// So many events in that time.
    Rate {
        /// How many.
        events: u64,
        /// How long.
        seconds: f64,
    },
    /// How long events took at a fixed rate, in microseconds.
    Latency {
        /// How many were published.
        events: u64,
        /// How many of them had not come when the time was over.
        undelivered: u64,
        /// Half of them took less.
        p50_us: u64,
        /// All but one in a hundred took less.
        p99_us: u64,
        /// All but one in a thousand took less.
        p999_us: u64,
        /// The longest.
        max_us: u64,
        /// What the disk takes by itself.
        disk: Disk,
        /// Time that the host took from the processors meanwhile, all together.
        stolen_ms: u64,
        /// What there was while it took none.
        spared: Spared,
    },
    /// It did not work.
    Failed {
        /// Why.
        why: String,
    },
}

/// What the disk takes by itself, in microseconds, each the p99.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Disk {
    /// Of `fdatasync` at regular times while the system is measured, from when it was to be called.
    pub meanwhile_p99_us: u64,
    /// Of the same, the calls alone.
    pub calls_p99_us: u64,
    /// Of `fdatasync`, one after the other, right before and after.
    pub flat_out_p99_us: u64,
    /// Of events at the same rate until they are safe in a plain file, right before and after.
    pub file_p99_us: u64,
    /// The calls of `fdatasync` for these, alone.
    pub file_calls_p99_us: u64,
}

/// What was seen where the host took nothing from the processors, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Spared {
    /// How many of all events came in such times, in percent.
    pub events_percent: u64,
    /// The p99 of these.
    pub p99_us: u64,
    /// As for the disk, of the syncs in such times.
    pub meanwhile_p99_us: u64,
    /// As for the disk, of the syncs in such times.
    pub calls_p99_us: u64,
}

impl Outcome {
    /// Events a second, where that was measured.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "a rate has three digits that count")]
            Self::Rate { events, seconds } => Some(*events as f64 / seconds),
            _ => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { events, seconds } => {
                let rate = self.rate().unwrap_or(0.0);
                write!(f, "{rate:.0}/s ({events} events in {seconds:.2} s)")
            }
            Self::Latency { undelivered, p50_us, p99_us, disk, stolen_ms, spared, .. } => {
                let Disk {
                    meanwhile_p99_us,
                    calls_p99_us,
                    flat_out_p99_us,
                    file_p99_us,
                    file_calls_p99_us,
                } = disk;
                write!(
                    f,
                    "p50 {p50_us} µs, p99 {p99_us} µs, {undelivered} undelivered; fdatasync p99 {meanwhile_p99_us} µs \
                     meanwhile ({calls_p99_us} µs the calls alone), {flat_out_p99_us} µs flat out, plain file p99 \
                     {file_p99_us} µs ({file_calls_p99_us} µs); {stolen_ms} ms stolen; "
                )?;
                let Spared { events_percent, p99_us, meanwhile_p99_us, calls_p99_us } = spared;
                write!(
                    f,
                    "the {events_percent} % spared of that: p99 {p99_us} µs, fdatasync {meanwhile_p99_us} µs \
                     ({calls_p99_us} µs)"
                )
            }
            Self::Failed { why } => write!(f, "failed: {why}"),
        }
    }
}

impl Results {
    /// What a system did of that work, by rounds.
    pub fn of<'a>(
        &'a self,
        system: &'a str,
        work: Work,
    ) -> impl Iterator<Item = &'a Measurement> + 'a {
        self.measurements.iter().filter(move |seen| seen.system == system && seen.work == work)
    }

    /// The median rate.
    #[must_use]
    pub fn rate(&self, system: &str, work: Work) -> Option<f64> {
        median(self.of(system, work).filter_map(|seen| seen.outcome.rate()).collect())
    }

    /// How many times as fast we are as a system: the median of what was seen in each round.
    #[must_use]
    pub fn ratio(&self, system: &str, work: Work, their_work: Work) -> Option<f64> {
        let rate_in = |name, work, round| {
            self.of(name, work).find(|seen| seen.round == round)?.outcome.rate()
        };
        let rounds = 1..=self.plan.rounds;
        let ratios = rounds.filter_map(|round| {
            Some(rate_in(US, work, round)? / rate_in(system, their_work, round)?)
        });
        median(ratios.collect())
    }

    /// Why some of it was not measured, if so.
    pub fn failures(&self) -> impl Iterator<Item = (&Measurement, &str)> {
        self.measurements.iter().filter_map(|seen| match &seen.outcome {
            Outcome::Failed { why } => Some((seen, why.as_str())),
            _ => None,
        })
    }
}

/// The middle one; of an even number the mean of both in the middle.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
