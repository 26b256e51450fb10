//! The whole server, started in this process, as a WebSocket client meets it.
//!
//! | idea | file |
//! |---|---|
//! | a server to test, and a client to test it with | `running`, `client` |
//! | each operation and its answers | `publishing`, `subscribing`, `acknowledging`, `pausing`, `marking` |
//! | answers in the order of the frames | `pipelining` |
//! | every error code | `error_codes` |
//! | what is no proper frame | `bad_frames` |
//! | signs of life | `liveness` |
//! | who may do what | `authorising` |
//! | who may connect, and how | `admission`, `encryption` |
//! | members of a group | `sharing` |
//! | limits of rate | `rates` |
//! | peers that do not read, and what is kept for them | `slow_consumer`, `bounds` |
//! | connections and bytes are counted | `counting` |
//! | the end of the server | `stopping` |

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "what stands beside the tests fails as they do, and takes frames where they are written"
)]

mod acknowledging;
mod admission;
pub(crate) mod authorising;
mod bad_frames;
mod bounds;
pub(crate) mod client;
mod counting;
pub(crate) mod encryption;
mod error_codes;
mod liveness;
mod marking;
mod pausing;
mod pipelining;
mod publishing;
mod rates;
pub(crate) mod running;
mod sharing;
mod slow_consumer;
mod stopping;
mod subscribing;
