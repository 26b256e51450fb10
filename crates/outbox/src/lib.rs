//! The transactional outbox: services write events beside their data, in one transaction of their
//! own database, and workers publish them.
//!
//! Any number of workers share one collection. What they promise, and why it holds, is in
//! `docs/outbox.md`.
//!
//! | idea | file |
//! |---|---|
//! | a document, and the event that it is | `letter`, `payload_json` |
//! | which documents may go without overtaking others | `order`, `choosing` |
//! | the frames of one topic, and what comes of each document | `chain`, `mark` |
//! | the collection and its indexes | `collection`, `indexes` |
//! | being woken | `waking` |
//! | what a worker is told and what it tells | `options`, `notice`, `error` |
//! | the worker itself | `worker`, `publishing`, `settling` |

mod chain;
mod choosing;
mod collection;
mod error;
mod indexes;
mod letter;
mod mark;
mod notice;
mod options;
mod order;
mod payload_json;
mod publishing;
mod settling;
mod waking;
mod worker;

pub use collection::Outbox;
pub use error::OutboxError;
pub use notice::{Notice, Summary};
pub use options::{Place, Until, Wake, WorkerOptions};
pub use worker::Worker;
