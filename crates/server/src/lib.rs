//! The server behind the binary `prombus`.
//!
//! | idea | file |
//! |---|---|
//! | what the server is told | [`config`] |
//! | what it says about itself | [`logging`] |
//! | who may do what | [`auth`] |
//! | where a database is, without its password | [`mongo_address`] |
//! | how long topics of a database keep their events | [`migrating`] |
//! | connections, of both ports | `listening` |
//! | the threads that serve them | [`threads`] |
//! | what WebSockets say | [`gateway`] |
//! | what HTTP requests say | [`http`] |
//! | all of it, started and stopped | [`server`] |

pub mod auth;
pub mod config;
pub mod gateway;
pub mod http;
mod listening;
pub mod logging;
pub mod migrating;
pub mod mongo_address;
pub mod server;
pub mod threads;
