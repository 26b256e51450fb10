//! Limits and measurements of the operating system.

pub(crate) mod open_files;
pub(crate) mod resident;
