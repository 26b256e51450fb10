//! The client for programs in Rust.
//!
//! | idea | file |
//! |---|---|
//! | how a client is made, and its handle | [`builder`](Client::builder), `client` |
//! | publishing | `publishing`, `outgoing` |
//! | subscribing, and what a handler gets | `subscribing`, `handler`, `received`, `event`, `lease` |
//! | handlers whose effect is to happen once | `exactly_once`, `dedupe` |
//! | replay and export | `reading` |
//! | what goes over the connection, and again after it is lost | `session` |
//! | what can go wrong | `error` |
//! | how to speak to a server | [`transport`] |

mod builder;
mod client;
mod connection_state;
mod dedupe;
mod error;
mod event;
mod exactly_once;
mod handler;
mod lease;
mod names;
mod outgoing;
mod publishing;
mod reading;
mod received;
mod session;
mod subscribing;
pub mod transport;

pub use prombus_proto::frame::Published;
pub use prombus_proto::{ErrorCode, EventId, Group, Headers, Key, Seq, Timestamp, Topic};

pub use builder::Builder;
pub use client::Client;
pub use connection_state::ConnectionState;
pub use dedupe::{Dedupe, DedupeFuture, MemoryDedupe};
pub use error::{Error, Refusal, Result};
pub use event::Event;
pub use exactly_once::{SubscribingExactlyOnce, Transforming};
pub use handler::HandlerError;
pub use names::IntoTopic;
pub use outgoing::{IntoOutgoing, Outgoing};
pub use publishing::Receipt;
pub use reading::{EventStream, Exporting, Replaying};
pub use received::Received;
pub use subscribing::{Start, Subscribing, Subscription};
