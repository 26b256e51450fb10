//! The server, started in this process, as a WebSocket client sees it.
//!
//! | topic | module |
//! |---|---|
//! | the test server and the test client | `running`, `client` |
//! | each operation and its answers | `publishing`, `subscribing`, `acknowledging`, `pausing`, `marking` |
//! | answers in frame order | `pipelining` |
//! | every error code | `error_codes` |
//! | malformed frames | `bad_frames` |
//! | pings, pongs, the time to authenticate | `liveness` |
//! | tokens and scopes, client certificates and who issues them | `authorising`, `certificates`, `authority` |
//! | tokens, keys and certificates that change | `reloading` |
//! | guessed tokens, the audit log | `guessing`, `auditing` |
//! | paths, origins, the connection limit; TLS | `admission`, `encryption` |
//! | several members of a group | `sharing` |
//! | rate limits | `rates` |
//! | peers that do not read, and the bounds of their buffers | `slow_consumer`, `bounds` |
//! | the memory of all connections together | `memory` |
//! | metrics of connections and bytes | `counting` |
//! | shutdown | `stopping` |

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "test helpers panic like the tests, and take frames by value where they are written"
)]

mod acknowledging;
mod admission;
pub(crate) mod auditing;
pub(crate) mod authorising;
pub(crate) mod authority;
mod bad_frames;
mod bounds;
mod certificates;
pub(crate) mod client;
mod counting;
pub(crate) mod encryption;
mod error_codes;
mod guessing;
mod joining;
mod limits;
mod liveness;
mod marking;
pub(crate) mod memory;
mod pausing;
mod pipelining;
mod publishing;
mod rates;
mod reloading;
pub(crate) mod running;
mod sharing;
mod slow_consumer;
mod stopping;
mod subscribing;
