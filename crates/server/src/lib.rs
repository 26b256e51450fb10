//! The server behind the binary `prombus`.
//!
//! | idea | file |
//! |---|---|
//! | what the server is told | [`config`] |
//! | what it says about itself | [`logging`] |
//! | who may do what | [`auth`] |

pub mod auth;
pub mod config;
pub mod logging;
