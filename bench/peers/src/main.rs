//! Measures Prombus and its peers on the same work. See `README.md`.

mod disk;
mod event;
mod latency;
mod meanwhile;
mod measurement;
mod server;
mod session;
mod stolen;
mod surroundings;
mod system;
mod systems;
mod times;
mod work;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use prombus_peers_report::{Measurement, Missing, Outcome, Plan, Results, Work, write_docs};

use crate::measurement::measure;
use crate::session::Result;
use crate::system::{Program, System};

/// Measures Prombus and its peers on the same work, and writes what was seen.
#[derive(Parser)]
struct Arguments {
    /// The program prombus
    #[arg(long)]
    prombus: PathBuf,
    /// The program nats-server
    #[arg(long)]
    nats: Option<PathBuf>,
    /// The program redis-server
    #[arg(long)]
    redis: Option<PathBuf>,
    /// The program mongod
    #[arg(long)]
    mongod: Option<PathBuf>,
    /// Where servers keep their data meanwhile
    #[arg(long)]
    scratch: PathBuf,
    /// The file for what was measured, as JSON
    #[arg(long)]
    results: PathBuf,
    /// The folder with benchmarks.md, whose section and charts are written; left alone if absent
    #[arg(long)]
    docs: Option<PathBuf>,
    /// The day of the run, for the page
    #[arg(long)]
    today: String,
    /// What was measured, such as a commit
    #[arg(long)]
    revision: String,
    /// A remark for the page, such as what else ran on the machine
    #[arg(long)]
    remark: Option<String>,
    /// Events of a measurement at most
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    n: u64,
    /// Seconds of a measurement at most, to publish and once more to consume
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How often each is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Only these systems, with commas between them
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Only this work, by its letters, such as ac
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

    /// Why a system is not measured, if it is not.
    fn why_not(&self, system: System) -> Option<&'static str> {
        if !self.systems.is_empty() && !self.systems.contains(&system) {
            return Some("left out by --systems");
        }
        self.program(system).is_none().then_some("not installed; run.sh says why")
    }

    fn wants(&self, work: Work) -> bool {
        self.work.as_ref().is_none_or(|letters| letters.contains(work.letter()))
    }

    fn plan(&self) -> Plan {
        Plan {
            events: self.n,
            seconds: self.seconds,
            rounds: self.rounds,
            window: 1000,
            batch: 100,
            per_second: 5000,
            // In less, one stall of the disk is the p99.
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
        eprintln!("missing: {}: {}", missing.label, missing.why);
    }
    // All systems meet the same minutes: a round goes through them for each work.
    for round in 1..=arguments.rounds {
        for work in Work::ALL.into_iter().filter(|work| arguments.wants(*work)) {
            for system in System::ALL {
                let Some(program) = arguments.program(system) else { continue };
                if arguments.why_not(system).is_some() {
                    continue;
                }
                let outcome = measure(system, program, &arguments.scratch, work, &results.plan)
                    .unwrap_or_else(|error| Outcome::Failed { why: error.to_string() });
                eprintln!("round {round}, ({}) {}: {outcome}", work.letter(), system.label());
                let system = system.name().to_owned();
                results.measurements.push(Measurement { system, work, round, outcome });
                // Written each time, so that a run that is cut short leaves what it saw.
                fs::write(&arguments.results, serde_json::to_string_pretty(&results)?)?;
            }
        }
    }
    if let Some(docs) = &arguments.docs {
        write_docs(&results, docs)?;
        eprintln!("written: {}", docs.join("benchmarks.md").display());
    }
    Ok(())
}

fn empty_results(arguments: &Arguments) -> Results {
    let (measured, missing): (Vec<_>, Vec<_>) =
        System::ALL.into_iter().partition(|system| arguments.why_not(*system).is_none());
    let missing = missing.into_iter().map(|system| Missing {
        label: system.label().to_owned(),
        why: arguments.why_not(system).unwrap_or_default().to_owned(),
    });
    Results {
        today: arguments.today.clone(),
        revision: arguments.revision.clone(),
        remark: arguments.remark.clone(),
        machine: surroundings::machine(),
        plan: arguments.plan(),
        systems: measured
            .into_iter()
            .filter_map(|system| Some((system, arguments.program(system)?)))
            .map(|(system, program)| surroundings::facts(system, program))
            .collect(),
        missing: missing.collect(),
        measurements: Vec::new(),
    }
}

/// Longer than the longest, the steady one, may take: what hangs is named as failed.
fn patience(plan: &Plan) -> Duration {
    Duration::from_secs(4 * plan.steady_seconds + 60)
}
