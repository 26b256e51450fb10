//! End-to-end tests of the server and the command line, in one test binary.

mod abuse;
mod binary;
mod cli;
mod config;
mod damaged_state;
mod damaged_store;
mod documents;
mod exactly_once;
mod gateway;
mod http;
mod killed;
mod mongo;
mod mongo_start;
mod operations;
mod operators;
mod outbox;
mod process_limits;
mod ready;
mod seeing;
mod store;
mod transcript;
