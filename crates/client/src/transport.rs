//! The client's connections without its session, for programs that speak the protocol on their own,
//! such as the command line.
//!
//! - `server_address`: the address of a server, and streams to it
//! - `plain_stream`: a stream without TLS, which notices a server with TLS
//! - `trust`: trusted certificates
//! - `websocket`: a WebSocket to the gateway
//! - `close_code`: which connections are opened again
//! - `http_client`: HTTP requests
//! - `back_off`: waits between attempts

mod back_off;
mod close_code;
mod http_client;
mod plain_stream;
mod server_address;
mod trust;
mod websocket;

pub use back_off::{BackOff, full_jitter, wait_after};
pub use close_code::may_reconnect;
pub use http_client::{HttpClient, HttpFailure, HttpResponse, Query};
pub use server_address::{AddressError, CONNECT_TIMEOUT, Protocol, ServerAddress, Stream};
pub use trust::Trust;
pub use websocket::{WebSocket, WebSocketError, open_websocket};
