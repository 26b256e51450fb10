//! Consuming: subscriptions, their handlers, and exactly-once processing.
//!
//! - `subscription`: building a subscription, and the handle to a running one
//! - `handler`: what a handler returns, and how its result is interpreted
//! - `received`: an event as a handler gets it
//! - `lease_status`: whether the lease of a running event is lost
//! - `exactly_once`: subscriptions that mark handled events
//! - `dedupe`: mark stores outside the bus

pub(crate) mod dedupe;
pub(crate) mod exactly_once;
pub(crate) mod handler;
pub(crate) mod lease_status;
pub(crate) mod received;
pub(crate) mod subscription;
