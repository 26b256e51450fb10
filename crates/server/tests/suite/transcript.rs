//! Checks `docs/protocol.md` and `docs/asyncapi.yaml` against the server.

mod asyncapi;
mod placeholder;
mod replay;
mod session;
mod tables;

const PROTOCOL: &str = include_str!("../../../../docs/protocol.md");
const ASYNCAPI: &str = include_str!("../../../../docs/asyncapi.yaml");
