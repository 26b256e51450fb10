//! The file descriptors of the process, divided between the store and the connections.
//!
//! A store that cannot open a file fails commits and reads of everybody, a connection that is refused
//! only its client. So the store gets its share first.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

use crate::accept::{MAX_SURPLUS, PlaceLimits};
use crate::config::EngineConfig;

/// Standard streams, listeners, the lock of the store, certificates while they are read.
const PROCESS: u64 = 16;
/// Per serving thread: epoll, its wake-up, signals.
const PER_THREAD: u64 = 4;
/// The write-ahead log, sorted runs of ids and state, and what a checkpoint writes.
const DISK_ENGINE: u64 = 96;
/// The connection pool of the MongoDB driver and its monitors.
const MONGO_ENGINE: u64 = 128;
/// Segments and indexes that the disk engine keeps open for reading.
const MIN_OPEN_SEGMENTS: u64 = 16;
const MAX_OPEN_SEGMENTS: u64 = 256;
/// At least this many connections have to fit.
const MIN_CONNECTIONS: u64 = 16;

/// How the descriptors are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Segments and indexes that the disk engine may keep open.
    pub(crate) open_segments: usize,
    pub(crate) connections: usize,
    limit: u64,
}

/// The limit of open files leaves no room for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the limit of open files is {limit}, but the server needs at least {needed}: raise it with `ulimit -n` \
     or LimitNOFILE"
)]
pub struct TooFewDescriptors {
    pub limit: u64,
    pub needed: u64,
}

impl DescriptorBudget {
    /// Raises the limit of open files as far as possible and divides it.
    ///
    /// # Errors
    ///
    /// If too few connections fit.
    pub(crate) fn of_process(
        engine: &EngineConfig,
        threads: usize,
    ) -> Result<Self, TooFewDescriptors> {
        Self::divide(raised_limit(), engine, threads as u64)
    }

    fn divide(limit: u64, engine: &EngineConfig, threads: u64) -> Result<Self, TooFewDescriptors> {
        let (store, min_segments) = match engine {
            EngineConfig::Disk => (DISK_ENGINE, MIN_OPEN_SEGMENTS),
            EngineConfig::Memory => (0, 0),
            EngineConfig::Mongo(_) => (MONGO_ENGINE, 0),
        };
        let fixed = PROCESS + PER_THREAD * threads + MAX_SURPLUS as u64 + store;
        let needed = fixed + min_segments + MIN_CONNECTIONS;
        if limit < needed {
            return Err(TooFewDescriptors { limit, needed });
        }
        let open_segments = match min_segments {
            0 => 0,
            min => ((limit - fixed) / 4).clamp(min, MAX_OPEN_SEGMENTS),
        };
        let connections = limit - fixed - open_segments;
        let as_count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            open_segments: as_count(open_segments),
            connections: as_count(connections),
            limit,
        })
    }

    /// Returns how many connections to allow if `configured` are asked for, and logs if these are fewer. One
    /// address gets at most half of those that remain.
    pub(crate) fn allowed_connections(&self, configured: PlaceLimits) -> PlaceLimits {
        let Self { connections, limit, .. } = *self;
        if connections >= configured.total {
            return configured;
        }
        let per_address = configured.per_address.min(connections / 2);
        tracing::warn!(
            "at most {connections} connections are allowed instead of {} (gateway.max_connections), \
             {per_address} of them from one address, because the limit of open files is {limit}: raise it \
             with `ulimit -n` or LimitNOFILE",
            configured.total
        );
        PlaceLimits { total: connections, per_address }
    }
}

/// Returns how many connections fit into a limit of open files, beside the store.
///
/// # Errors
///
/// If too few connections fit.
pub fn connections_within(
    limit: u64,
    engine: &EngineConfig,
    threads: usize,
) -> Result<usize, TooFewDescriptors> {
    DescriptorBudget::divide(limit, engine, threads as u64).map(|budget| budget.connections)
}

/// Raises the soft limit of open files to the hard limit, and returns it.
fn raised_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised.map_err(io::Error::from) {
        tracing::debug!("cannot raise the limit of open files above {:?}: {error}", limit.current);
    }
    // `None` means unlimited.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_descriptors_for_the_store() {
        let divide = |limit| DescriptorBudget::divide(limit, &EngineConfig::Disk, 4);
        let budget = divide(1024).unwrap();
        assert_eq!((budget.open_segments, budget.connections), (220, 660));
        let limits = |total, per_address| PlaceLimits { total, per_address };
        assert_eq!(budget.allowed_connections(limits(10_000, 1000)), limits(660, 330));
        assert_eq!(budget.allowed_connections(limits(10_000, 10)), limits(660, 10));
        assert_eq!(budget.allowed_connections(limits(100, 100)), limits(100, 100));
        let budget = divide(1 << 20).unwrap();
        assert_eq!(budget.open_segments, 256);
        assert_eq!(budget.allowed_connections(limits(10_000, 1000)), limits(10_000, 1000));
        let small = DescriptorBudget::divide(64, &EngineConfig::Memory, 1).unwrap();
        assert_eq!(small.connections, 64 - 16 - 4 - 16);
        divide(u64::MAX).unwrap();
    }

    #[test]
    fn refuses_a_limit_that_leaves_no_room() {
        let error = DescriptorBudget::divide(128, &EngineConfig::Disk, 1).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("is 128, but the server needs at least 164"), "{text}");
        // Enough, by the number that the error names.
        let budget = DescriptorBudget::divide(164, &EngineConfig::Disk, 1).unwrap();
        assert_eq!((budget.open_segments, budget.connections), (16, 16));
    }
}
