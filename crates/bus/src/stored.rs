//! Everything the bus keeps in the engine's keyed state: one file for each kind of key, which knows
//! the key and the versioned encoding of its value.

pub mod cursor;
pub(crate) mod group_lease;
pub(crate) mod mark;
mod pages;
pub mod topic_settings;

pub(crate) use pages::StatePages;
