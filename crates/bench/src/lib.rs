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

/// A name that no other run has.
fn run_name() -> String {
    format!("{:012x}", SystemRandom.next_u64() >> 16)
}
