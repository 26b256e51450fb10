//! The client against a real server.
//!
//! - `harness`, `proxy`: a server to test with, and a bad network
//! - `gated_handler`, `unacknowledged`: handlers under control, and what they left unacknowledged
//! - `connecting`, `authenticating`: connections and tokens
//! - `publishing`, `rates`, `lost_answers`: publishing, rate limits, lost answers
//! - `subscribing`, `exactly_once`, `transforming`: handlers
//! - `reading`, `damaged`: replay and export, also of damaged events
//! - `deep_events`: events that nest too deep to be decoded
//! - `errors`: refusals
//! - `examples`: the example programs

#![expect(clippy::unwrap_used, reason = "helpers fail like the tests")]

mod authenticating;
mod connecting;
mod damaged;
mod deep_events;
mod errors;
mod exactly_once;
mod examples;
mod gated_handler;
mod harness;
mod lost_answers;
mod proxy;
mod publishing;
mod rates;
mod reading;
mod subscribing;
mod transforming;
mod unacknowledged;
