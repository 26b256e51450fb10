//! The bus, as gateways use it. Tests with the memory engine run on tokio's paused clock; tests with the
//! disk engine run in real time and wait for effects.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod acking;
mod attempts;
mod closing;
mod configuring;
mod counts;
mod dead_letters;
mod deleting;
mod delivery_queue_limit;
mod exposition;
mod following;
mod group_model;
mod group_properties;
mod group_world;
mod harness;
mod idling;
mod lease_times;
mod looking;
mod marking;
mod memory;
mod metrics;
mod operating;
mod operating_remotely;
mod pausing;
mod principals;
mod publishing;
mod rate_limits;
mod redriving;
mod restarting;
mod retention;
mod several_gateways;
mod several_gateways_model;
mod sharing;
mod storage_faults;
mod stuck_reads;
mod trimmed_and_damaged;
mod watched_engine;
