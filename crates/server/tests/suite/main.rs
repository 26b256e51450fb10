//! The server, as its users meet it: one binary, one module an idea.

mod binary;
mod cli;
mod config;
mod exactly_once;
mod gateway;
mod http;
mod killed;
mod mongo;
mod mongo_start;
mod outbox;
mod store;
mod transcript;
