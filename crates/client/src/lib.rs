//! The Rust client for Prombus, a durable event bus. It runs on Tokio.
//!
//! ```
//! # use prombus_server::{config::{Config, Sources}, server::Server};
//! use prombus_client::{Client, Outgoing, Received, Start};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     article: String,
//!     count: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let set = ["server.ws=127.0.0.1:0", "server.http=127.0.0.1:0", "server.engine=memory", "limits.enabled=false"];
//! # let set = set.map(String::from).to_vec();
//! # let server = Server::start(&Config::load(&Sources { set, ..Sources::default() })?).await?;
//! # let url = server.ws_url();
//! let client = Client::connect(&url).await?; // for example ws://127.0.0.1:8090
//!
//! let order = Order { article: "tea".to_owned(), count: 2 };
//! let published = client.publish("orders.created", &order).await?;
//! assert_eq!(published.seq.0, 1);
//! let more = Outgoing::new(&order)?.key("customer-7").header("source", "shop");
//! client.publish("orders.created", more).await?;
//!
//! let (done, mut all) = tokio::sync::mpsc::channel(10);
//! let subscription = client
//!     .subscribe("orders.created", "billing")
//!     .from(Start::Earliest)
//!     .handle(move |order: Received<Order>| {
//!         let done = done.clone();
//!         async move {
//!             // If the handler returns an error or panics, the event is redelivered.
//!             done.send(order.payload.count).await?;
//!             Ok(())
//!         }
//!     })
//!     .await?;
//! assert_eq!((all.recv().await, all.recv().await), (Some(2), Some(2)));
//! subscription.stop().await?;
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! In reading order:
//!
//! - `builder`, `client`, `connection_state`: creating a [`Client`], and its handle
//! - `publishing`: publishing events, and [`Outgoing`], an event to publish
//! - `consuming`: subscriptions, handlers, exactly-once processing
//! - `reading`: replay and export over HTTP
//! - `session`: the protocol as a state machine without I/O, including what is sent again after a
//!   lost connection
//! - `driver`: the task that connects, reads and writes for a session
//! - [`transport`]: addresses, TLS, WebSockets and HTTP
//! - `event`, `names`, `error`: a stored event, names in arguments, errors

#![warn(missing_docs)]

mod builder;
mod client;
mod connection_state;
mod consuming;
mod damaged_range;
mod driver;
mod error;
mod event;
mod names;
mod publishing;
mod reading;
mod session;
pub mod transport;

pub use prombus_proto::frame::{EndReason, Published};
pub use prombus_proto::{ErrorCode, EventId, Group, Headers, Key, Seq, Timestamp, Topic};

pub use builder::Builder;
pub use client::Client;
pub use connection_state::ConnectionState;
pub use consuming::dedupe::{Dedupe, DedupeFuture, MemoryDedupe};
pub use consuming::exactly_once::{ExactlyOnceBuilder, TransformBuilder};
pub use consuming::handler::HandlerError;
pub use consuming::received::Received;
pub use consuming::subscription::{Start, Subscription, SubscriptionBuilder};
pub use damaged_range::DamagedRange;
pub use error::{Error, Refusal, Result};
pub use event::Event;
pub use names::IntoTopic;
pub use publishing::Receipt;
pub use publishing::outgoing::{IntoOutgoing, Outgoing};
pub use reading::{EventStream, ExportBuilder, ReplayBuilder};

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
