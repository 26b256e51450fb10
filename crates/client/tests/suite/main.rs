//! The client against the real server: one binary, one module an idea.
//!
//! | idea | file |
//! |---|---|
//! | a server to test with, and something bad in between | `running`, `proxy` |
//! | connections, tokens | `connecting`, `authenticating` |
//! | publishing, limits of rate, answers that are lost | `publishing`, `rates`, `lost_answers` |
//! | handlers, those that wait, and what they leave undone | `subscribing`, `held_up`, `left_over` |
//! | handlers whose effect is to happen once | `exactly_once`, `transforming` |
//! | replay and export | `reading` |
//! | what the server refuses | `errors` |
//! | the examples | `examples` |

#![expect(clippy::unwrap_used, reason = "what stands beside the tests fails as they do")]

mod authenticating;
mod connecting;
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
