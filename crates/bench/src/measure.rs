//! Counting events and recording latencies.

pub(crate) mod latencies;
pub(crate) mod tally;
