//! What is measured: a bus in this process, or a server over WebSockets.

pub(crate) mod in_process;
pub(crate) mod wire;

use std::time::Duration;

use crate::{BenchError, InProcess, Wire};

/// Long enough that no lease ends before its acknowledgement, unless the bus stalls.
pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// What is measured.
pub enum Target {
    /// A bus in this process.
    InProcess(InProcess),
    /// A server, over WebSockets.
    Wire(Wire),
}

/// The error for an acknowledgement that was too late.
pub(crate) fn lease_lost() -> BenchError {
    BenchError::Invalid(format!(
        "a lease ended after {} s before its acknowledgement, so events were delivered twice",
        LEASE.as_secs()
    ))
}
