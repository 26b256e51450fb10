//! How fast a bus is, in this process or over the wire.
//!
//! | idea | file |
//! |---|---|
//! | what work is done, and on what | `load`, [`Target`] |
//! | when which event is sent, and what its answer means, without I/O | `schedule`, `sending` |
//! | what keeps to that time | `pacer` |
//! | what an event says | `event_text` |
//! | how long things took | `latencies`, `tally` |
//! | a connection, whatever it leads to | `port`; `in_process`, `wire` |
//! | what it does | `publisher`, `consumer` |
//! | the benches | `publish`, `subscribe`, `connections`, `export`, `limits` |
//! | what the system says and allows | `resident`, `open_files` |
//! | what they come to | `report` |

mod connections;
mod consumer;
mod error;
mod event_text;
mod export;
mod in_process;
mod latencies;
mod limits;
mod load;
mod open_files;
mod pacer;
mod port;
mod publish;
mod publisher;
mod report;
mod resident;
mod schedule;
mod sending;
mod subscribe;
mod tally;
mod target;
mod wire;

pub use connections::{ConnectionsPlan, ConnectionsReport, bench_connections};
pub use error::BenchError;
pub use export::{ExportReport, bench_export};
pub use in_process::InProcess;
pub use latencies::{Latencies, Summary};
pub use limits::{BucketReport, LimitsPlan, LimitsReport, bench_limits};
pub use load::Load;
pub use publish::bench_publish;
pub use report::{Figures, PublishReport, SubscribeReport};
pub use schedule::Schedule;
pub use subscribe::{bench_backlog, bench_subscribe};
pub use tally::{Glance, Tally};
pub use target::Target;
pub use wire::{Wire, set_durability};

use prombus_proto::{RandomSource, SystemRandom};

/// A name that no other run has.
fn run_name() -> String {
    format!("{:012x}", SystemRandom.next_u64() >> 16)
}
