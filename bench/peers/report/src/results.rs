//! The results of a run, as stored in `results.json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of the system that the others are compared with.
pub const PROMBUS: &str = "prombus";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub date: String,
    /// What was measured, such as a commit.
    pub revision: String,
    /// For the page: what else a reader should know of the run.
    pub remark: Option<String>,
    pub machine: Machine,
    pub plan: Plan,
    pub systems: Vec<SystemInfo>,
    pub missing: Vec<MissingSystem>,
    pub measurements: Vec<Measurement>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The model name of the processor.
    pub processor: String,
    pub cores: u64,
    pub memory_gib: u64,
    pub kernel: String,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The most events of a measurement.
    pub events: u64,
    /// The most seconds of a measurement.
    pub seconds: u64,
    pub rounds: u32,
    /// The most events that are published and unconfirmed, and that are delivered and unacknowledged.
    pub window: u64,
    /// Events per batch.
    pub batch: u64,
    /// Events per second of the steady workload.
    pub per_second: u32,
    /// Seconds of the steady workload.
    pub steady_seconds: u64,
    /// The interval between the syncs that are measured during the steady workload.
    pub sync_every_ms: u64,
    pub event_bytes: u64,
}

/// A system that is measured: its versions, its settings and its guarantees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemInfo {
    /// The name in the measurements.
    pub name: String,
    /// The name in tables and charts.
    pub label: String,
    /// The version of the server.
    pub version: String,
    /// The client library with its version.
    pub client: String,
    pub settings: String,
    /// How the client uses the system.
    pub usage: String,
    pub publish_guarantee: String,
    pub ack_guarantee: String,
    /// Whether a confirmed publish is on stable storage.
    pub fsynced: bool,
}

/// A system that was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MissingSystem {
    pub label: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// The name of the system.
    pub system: String,
    pub workload: Workload,
    /// Counts from 1.
    pub round: u32,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Publishes one event at a time.
    PublishEach,
    PublishBatches,
    /// Publishes, delivers and acknowledges.
    PublishAndConsume,
    /// Delivers and acknowledges stored events.
    Backlog,
    /// Publishes and delivers at a fixed rate.
    Steady,
}

impl Workload {
    /// All workloads, in the order of the page.
    pub const ALL: [Self; 5] = [
        Self::PublishEach,
        Self::PublishBatches,
        Self::PublishAndConsume,
        Self::Backlog,
        Self::Steady,
    ];

    /// The letter by which the page and the command line name the workload.
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

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Rate {
        events: u64,
        seconds: f64,
    },
    /// Delivery latencies at a fixed rate, in microseconds.
    Latency {
        /// The number of published events.
        events: u64,
        /// The number of events that had not arrived when the time was over.
        undelivered: u64,
        p50_us: u64,
        p99_us: u64,
        p999_us: u64,
        max_us: u64,
        disk: DiskLatency,
        /// Steal during the measurement, summed over all processors.
        stolen_ms: u64,
        steal_free: StealFree,
    },
    Failed {
        reason: String,
    },
}

/// How long the disk takes, measured around and during a measurement. Each figure is a p99 in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct DiskLatency {
    /// `fdatasync` at regular times during the measurement, from the time at which each call was due.
    pub scheduled_p99_us: u64,
    /// The same calls, from when they were made.
    pub calls_p99_us: u64,
    /// `fdatasync` back to back, right before and after the measurement.
    pub back_to_back_p99_us: u64,
    /// Events at the same rate until they are synced in a plain file, right before and after the measurement.
    pub plain_file_p99_us: u64,
    /// The `fdatasync` calls for the plain file.
    pub plain_file_calls_p99_us: u64,
}

/// What was measured while nothing was stolen. Each p99 is in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct StealFree {
    /// The share of all events.
    pub events_percent: u64,
    pub p99_us: u64,
    /// See [`DiskLatency::scheduled_p99_us`].
    pub scheduled_p99_us: u64,
    /// See [`DiskLatency::calls_p99_us`].
    pub calls_p99_us: u64,
}

impl Outcome {
    /// Returns events per second, or `None` if no rate was measured.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            #[allow(
                clippy::cast_precision_loss,
                reason = "only a few digits of a rate are significant"
            )]
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
            Self::Latency { undelivered, p50_us, p99_us, disk, stolen_ms, steal_free, .. } => {
                let DiskLatency {
                    scheduled_p99_us,
                    calls_p99_us,
                    back_to_back_p99_us,
                    plain_file_p99_us,
                    plain_file_calls_p99_us,
                } = disk;
                write!(
                    f,
                    "p50 {p50_us} µs, p99 {p99_us} µs, {undelivered} undelivered; fdatasync p99 {calls_p99_us} µs \
                     ({scheduled_p99_us} µs from its scheduled time), {back_to_back_p99_us} µs back to back; plain file \
                     p99 {plain_file_p99_us} µs (its calls {plain_file_calls_p99_us} µs); {stolen_ms} ms stolen; "
                )?;
                let StealFree { events_percent, p99_us, scheduled_p99_us, calls_p99_us } =
                    steal_free;
                write!(
                    f,
                    "{events_percent} % free of steal: p99 {p99_us} µs, fdatasync {calls_p99_us} µs \
                     ({scheduled_p99_us} µs from its scheduled time)"
                )
            }
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}

impl Results {
    /// Returns the measurements of a system and a workload, by round.
    pub fn measurements_of<'a>(
        &'a self,
        system: &'a str,
        workload: Workload,
    ) -> impl Iterator<Item = &'a Measurement> + 'a {
        self.measurements
            .iter()
            .filter(move |measured| measured.system == system && measured.workload == workload)
    }

    /// Returns the median rate of all rounds.
    #[must_use]
    pub fn rate(&self, system: &str, workload: Workload) -> Option<f64> {
        let measurements = self.measurements_of(system, workload);
        median(measurements.filter_map(|measured| measured.outcome.rate()).collect())
    }

    /// Returns how many times as fast Prombus is as `system`: the median of the ratios of each round.
    #[must_use]
    pub fn ratio(&self, system: &str, ours: Workload, theirs: Workload) -> Option<f64> {
        let rate_in = |name, workload, round| {
            self.measurements_of(name, workload)
                .find(|measured| measured.round == round)?
                .outcome
                .rate()
        };
        let rounds = 1..=self.plan.rounds;
        let ratios = rounds.filter_map(|round| {
            Some(rate_in(PROMBUS, ours, round)? / rate_in(system, theirs, round)?)
        });
        median(ratios.collect())
    }

    /// Returns the failed measurements with their reasons.
    pub fn failures(&self) -> impl Iterator<Item = (&Measurement, &str)> {
        self.measurements.iter().filter_map(|measured| match &measured.outcome {
            Outcome::Failed { reason } => Some((measured, reason.as_str())),
            _ => None,
        })
    }
}

/// Returns the median; of an even number of values, the mean of the middle two.
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
