//! One file per bench.

pub(crate) mod connections;
pub(crate) mod export;
pub(crate) mod limits;
pub(crate) mod publish;
pub(crate) mod subscribe;
