//! The server behind the binary `prombus`: gateway, auth, configuration.
//!
//! | idea | file |
//! |---|---|
//! | what the server is told | [`config`] |
//! | what it says about itself | [`logging`] |

pub mod config;
pub mod logging;
