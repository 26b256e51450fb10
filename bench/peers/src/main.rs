//! Measures Prombus and its peers on the same workloads. See `README.md`.

mod client;
mod concurrent;
mod disk;
mod environment;
mod event;
mod histogram;
mod latency;
mod measurement;
mod server;
mod steal;
mod system;
mod systems;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use prombus_peers_report::{
    Measurement, MissingSystem, Outcome, Plan, Results, Workload, write_docs,
};

use crate::client::Result;
use crate::measurement::measure;
use crate::system::{Program, System};

/// Measures Prombus and its peers on the same workloads, and writes the results.
#[derive(Parser)]
struct Arguments {
    /// The path of prombus
    #[arg(long)]
    prombus: PathBuf,
    /// The path of nats-server
    #[arg(long)]
    nats: Option<PathBuf>,
    /// The path of redis-server
    #[arg(long)]
    redis: Option<PathBuf>,
    /// The path of mongod
    #[arg(long)]
    mongod: Option<PathBuf>,
    /// The folder for the servers' data
    #[arg(long)]
    scratch: PathBuf,
    /// The file for the results, as JSON
    #[arg(long)]
    results: PathBuf,
    /// The folder of benchmarks.md, whose section and charts are rewritten; if absent, nothing is rewritten
    #[arg(long)]
    docs: Option<PathBuf>,
    /// The date of the run, for the page
    #[arg(long)]
    today: String,
    /// What was measured, such as a commit
    #[arg(long)]
    revision: String,
    /// A remark for the page, such as what else ran on the machine
    #[arg(long)]
    remark: Option<String>,
    /// The most events of a measurement
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    n: u64,
    /// The most seconds of a measurement to publish, and again to consume
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Measure only these systems, separated by commas
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Measure only these workloads, by their letters, such as ac
    #[arg(long)]
    work: Option<String>,
}

impl Arguments {
    fn program(&self, system: System) -> Option<&PathBuf> {
        match system.program() {
            Program::Prombus => Some(&self.prombus),
            Program::Nats => self.nats.as_ref(),
            Program::Redis => self.redis.as_ref(),
            Program::Mongod => self.mongod.as_ref(),
        }
    }

    /// Returns the reason why a system is not measured, or `None` if it is.
    fn reason_to_skip(&self, system: System) -> Option<&'static str> {
        if !self.systems.is_empty() && !self.systems.contains(&system) {
            return Some("left out by --systems");
        }
        self.program(system).is_none().then_some("not installed; run.sh says why")
    }

    fn includes(&self, workload: Workload) -> bool {
        self.work.as_ref().is_none_or(|letters| letters.contains(workload.letter()))
    }

    fn plan(&self) -> Plan {
        Plan {
            events: self.n,
            seconds: self.seconds,
            rounds: self.rounds,
            window: 1000,
            batch: 100,
            per_second: 5000,
            // In a shorter run, a single stall of the disk would set the p99.
            steady_seconds: 3 * self.seconds,
            sync_every_ms: 2,
            event_bytes: event::BYTES as u64,
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    fs::create_dir_all(&arguments.scratch)?;
    let mut results = empty_results(&arguments);
    for missing in &results.missing {
        eprintln!("not measured: {}: {}", missing.label, missing.reason);
    }
    // A round measures all systems for one workload before the next, so that they run in the same minutes.
    for round in 1..=arguments.rounds {
        for workload in Workload::ALL.into_iter().filter(|workload| arguments.includes(*workload)) {
            for system in System::ALL {
                let Some(program) = arguments.program(system) else { continue };
                if arguments.reason_to_skip(system).is_some() {
                    continue;
                }
                let outcome = measure(system, program, &arguments.scratch, workload, &results.plan)
                    .unwrap_or_else(|error| Outcome::Failed { reason: error.to_string() });
                eprintln!("round {round}, ({}) {}: {outcome}", workload.letter(), system.label());
                let system = system.name().to_owned();
                results.measurements.push(Measurement { system, workload, round, outcome });
                // Written each time, so that an interrupted run leaves its results.
                fs::write(&arguments.results, serde_json::to_string_pretty(&results)?)?;
            }
        }
    }
    if let Some(docs) = &arguments.docs {
        write_docs(&results, docs)?;
        eprintln!("updated {}", docs.join("benchmarks.md").display());
    }
    Ok(())
}

fn empty_results(arguments: &Arguments) -> Results {
    let (measured, missing): (Vec<_>, Vec<_>) =
        System::ALL.into_iter().partition(|system| arguments.reason_to_skip(*system).is_none());
    let missing = missing.into_iter().map(|system| MissingSystem {
        label: system.label().to_owned(),
        reason: arguments.reason_to_skip(system).unwrap_or_default().to_owned(),
    });
    Results {
        date: arguments.today.clone(),
        revision: arguments.revision.clone(),
        remark: arguments.remark.clone(),
        machine: environment::machine(),
        plan: arguments.plan(),
        systems: measured
            .into_iter()
            .filter_map(|system| Some((system, arguments.program(system)?)))
            .map(|(system, program)| environment::system_info(system, program))
            .collect(),
        missing: missing.collect(),
        measurements: Vec::new(),
    }
}

/// How long a measurement may take before it counts as failed. The steady workload takes longest.
fn measurement_timeout(plan: &Plan) -> Duration {
    Duration::from_secs(4 * plan.steady_seconds + 60)
}
