//! The client's connections without its session, for programs that speak the protocol on their own,
//! such as the command line.
//!
//! - `server_address`: the address of a server, and streams to it
//! - `trust`: trusted certificates
//! - `websocket`: a WebSocket to the gateway
//! - `http_client`: HTTP requests
//! - `back_off`: waits between attempts

mod back_off;
mod http_client;
mod server_address;
mod trust;
mod websocket;

pub use back_off::{BackOff, full_jitter, wait_after};
pub use http_client::{HttpClient, HttpFailure, HttpResponse, Query};
pub use server_address::{AddressError, CONNECT_TIMEOUT, Protocol, ServerAddress, Stream};
pub use trust::Trust;
pub use websocket::{WebSocket, WebSocketError, open_websocket};
