//! Storage engines: one log per topic and a small keyed state with expiry, written through
//! [`Engine::commit`] alone.
//!
//! In reading order:
//!
//! - [`contract`]: the [`Engine`] trait, with the guarantees that every engine makes
//! - [`batch`]: what a commit takes and returns
//! - [`page`], [`arrival`], [`state`], [`retention`]: what reads return, when events were stored, the
//!   keyed state, retention rules
//! - [`capabilities`], [`health`], [`error`]: what an engine supports, its condition, its errors
//! - [`figures`]: what an engine measures about itself
//! - `conformance` (feature `conformance`): the contract as tests, which every engine and every
//!   wrapper passes in full
//! - [`memory`]: keeps everything in memory, for tests and for buses that may forget
//! - [`disk`]: the default engine, with a write-ahead log, topic segments and sorted runs of state
//! - [`delegating`]: forwards to another engine; the base of all wrappers
//! - [`faulty`]: a wrapper that fails on demand, for tests

#![warn(missing_docs)]

pub mod arrival;
pub mod batch;
pub mod capabilities;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod delegating;
pub mod disk;
pub mod error;
pub mod faulty;
pub mod figures;
pub mod health;
pub mod memory;
pub mod page;
pub mod retention;
pub mod state;
pub mod state_kind;

pub use arrival::Arrival;
pub use batch::{Batch, Committed, Durability, Position, StateOp, WriteStats};
pub use capabilities::Capabilities;
pub use contract::Engine;
pub use disk::{DiskEngine, DiskOptions};
pub use error::{CommitError, Conflict, Damaged, OpenError, ReadError, Unavailable};
pub use faulty::{FaultReport, Faults, FaultyEngine};
pub use figures::{Durations, Figures, WalBacklog};
pub use health::{Condition, Health, Incident};
pub use memory::MemoryEngine;
pub use page::{Bounds, Page, ReadBudget, StoredEvent};
pub use retention::Retention;
pub use state::{Expect, InvalidStateKey, StateEntry, StateKey, Version};
pub use state_kind::StateKind;
