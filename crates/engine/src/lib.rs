//! Where events and state live.
//!
//! Two ideas, a log per topic and a small keyed state with expiry, and one door in:
//! [`Engine::commit`]. The contract is [`contract`], and it is executable: `conformance` holds it
//! as tests that every engine and every wrapper runs in full.
//!
//! | engine | for |
//! |---|---|
//! | [`memory`] | tests, and buses that may forget |
//! | [`disk`] | the default: a write-ahead log, topic segments, sorted files for state |
//! | [`faulty`] | a wrapper that fails on demand |

#![warn(missing_docs)]

pub mod batch;
pub mod capabilities;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod delegating;
pub mod disk;
pub mod error;
pub mod faulty;
pub mod health;
pub mod memory;
pub mod page;
pub mod retention;
pub mod state;

pub use batch::{Batch, Committed, Durability, Position, StateOp, WriteStats};
pub use capabilities::Capabilities;
pub use contract::Engine;
pub use disk::{DiskEngine, DiskOptions};
pub use error::{CommitError, Conflict, Damaged, OpenError, ReadError, Unavailable};
pub use faulty::{FaultReport, Faults, FaultyEngine};
pub use health::{Condition, Health, Incident};
pub use memory::MemoryEngine;
pub use page::{Bounds, Page, ReadBudget, StoredEvent};
pub use retention::Retention;
pub use state::{Expect, InvalidStateKey, StateEntry, StateKey, Version};
