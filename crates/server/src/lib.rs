//! The server behind the binary `prombus`: gateway, auth, configuration.
