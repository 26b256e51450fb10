//! What the client speaks with, for programs that speak to a server in their own way, such as the
//! command line.
//!
//! | idea | file |
//! |---|---|
//! | where a server is, and the stream to it | `server_address` |
//! | whose certificates are trusted | `trust` |
//! | a WebSocket over that | `websocket` |
//! | HTTP over that | `http_client` |
//! | how long to wait before trying again | `back_off` |

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
