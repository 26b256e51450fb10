//! Checks every checksum of a store, or of a backup of one.
//!
//! - [`contents`]: which files a catalog names, and what each of them has to contain
//! - [`content`]: checks the content of a file as it passes by
//! - [`report`]: what was found
//! - [`archive`]: checks a backup
//! - [`store`]: checks a data folder

pub(crate) mod archive;
pub(crate) mod content;
pub(crate) mod contents;
pub(crate) mod report;
pub(crate) mod store;
