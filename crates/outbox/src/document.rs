//! Documents of the outbox.

pub(crate) mod event;
mod json;
pub(crate) mod outcome;
