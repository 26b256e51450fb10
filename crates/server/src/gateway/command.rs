//! The operations of the protocol, one file each.

mod ack;
mod auth;
mod modack;
mod nack;
mod pause;
mod publish;
mod resume;
mod subscribe;
mod unsubscribe;
