//! What all files of a store share: their layout, header and checksum, and how they are accessed.

pub(crate) mod checksum;
pub(crate) mod faults;
pub(crate) mod file_cache;
pub(crate) mod file_header;
pub(crate) mod file_system;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod private;
pub(crate) mod quarantine;
pub(crate) mod reserve;
pub(crate) mod store_file;
