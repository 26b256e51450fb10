//! The operations of the protocol, one file each.

mod ack;
mod auth;
mod mark;
mod modack;
mod nack;
mod pause;
mod publish;
mod resume;
mod seen;
mod subscribe;
mod unsubscribe;
