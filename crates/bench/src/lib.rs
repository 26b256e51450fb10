//! Benchmarks of a bus in this process, or of a server over WebSockets. `prombus bench` runs them;
//! `docs/bench.md` explains the options and figures.
//!
//! # Modules
//!
//! In reading order:
//!
//! - `load`: how many events of which size are sent when
//! - `target`: what is measured, `in_process` or over the `wire`
//! - `port`: a connection to a target
//! - `publisher`, `consumer`: what a connection does
//! - `measure`: latencies and running totals
//! - `benches`: `publish`, `subscribe`, `connections`, `export`, `limits`
//! - `report`, `error`: the results of a run, or why it failed
//! - `system`: limits and measurements of the operating system

mod benches;
mod consumer;
mod error;
mod load;
mod measure;
mod port;
mod publisher;
mod report;
mod system;
mod target;

pub use benches::connections::{ConnectionsPlan, ConnectionsReport, bench_connections};
pub use benches::export::{ExportReport, bench_export};
pub use benches::limits::{BucketReport, LimitsPlan, LimitsReport, bench_limits};
pub use benches::publish::bench_publish;
pub use benches::subscribe::{bench_backlog, bench_subscribe};
pub use error::BenchError;
pub use load::Load;
pub use load::schedule::Schedule;
pub use measure::latencies::{Latencies, Summary};
pub use measure::tally::{Progress, Tally};
pub use report::{Figures, PublishReport, SubscribeReport};
pub use target::Target;
pub use target::in_process::InProcess;
pub use target::wire::{Wire, set_durability};

use prombus_proto::{RandomSource, SystemRandom};

/// Returns a random name that identifies a run.
fn run_name() -> String {
    format!("{:012x}", SystemRandom.next_u64() >> 16)
}
