//! What is measured.

pub(crate) mod in_process;
pub(crate) mod wire;

use std::time::Duration;

use crate::{BenchError, InProcess, Wire};

/// Leases last so long that none ends before its acknowledgement, unless the bus stands still.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// What is measured.
pub enum Target {
    /// A bus in this process.
    InProcess(InProcess),
    /// A server, over WebSockets.
    Wire(Wire),
}

/// That an acknowledgement came too late.
pub(crate) fn lease_lost() -> BenchError {
    BenchError::Meaningless(format!(
        "a lease ended before its acknowledgement, after {} s: some events were delivered twice",
        LEASE.as_secs()
    ))
}
