//! The topics and groups that a rule names.

pub use prombus_proto::{InvalidPattern, NamePattern};
