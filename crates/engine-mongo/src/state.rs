//! The keyed state.
//!
//! - `location`: which collection holds a key, and under which `_id`.
//! - `document`: an entry as a document.
//! - `lookup`: reads and scans.
//! - `sweep`: removes expired entries.

pub(crate) mod document;
pub(crate) mod location;
pub(crate) mod lookup;
pub(crate) mod sweep;
