//! The client against the real server: one binary, one module an idea.

mod authenticating;
mod connecting;
mod errors;
mod exactly_once;
mod examples;
mod lost_answers;
mod proxy;
mod publishing;
mod rates;
mod reading;
mod running;
mod subscribing;
mod transforming;
