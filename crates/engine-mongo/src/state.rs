//! The keyed state: which collection holds a key, as which document, and how it is looked up and removed.

pub(crate) mod collection;
pub(crate) mod document;
pub(crate) mod lookup;
pub(crate) mod sweep;
