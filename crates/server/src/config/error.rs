//! Why a configuration is rejected.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{KeyPath, Origin};

/// Why a configuration is rejected. No message contains a secret.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{origin}: invalid TOML: {reason}")]
    InvalidToml {
        /// Where parsing stopped.
        origin: Origin,
        reason: String,
    },
    /// A `--set` without a key or without a value.
    #[error("--set {prefix}…: expected key=value, such as limits.connection.capacity=500")]
    InvalidAssignment {
        /// The leading characters that can belong to a key; the rest may be a secret.
        prefix: String,
    },
    #[error("environment variable {0} is not valid UTF-8")]
    NotUtf8(String),
    #[error("unknown setting {key} ({origin}){}", did_you_mean(suggestion.as_ref()))]
    UnknownKey { key: KeyPath, origin: Origin, suggestion: Option<KeyPath> },
    /// A variable with the prefix of a section that matches no setting.
    #[error("unknown environment variable {name}{}", did_you_mean(suggestion.as_ref()))]
    UnknownVariable { name: String, suggestion: Option<String> },
    #[error("{key} ({origin}) is {found}, but must be {allowed}")]
    InvalidValue {
        key: KeyPath,
        origin: Origin,
        /// The value, without secrets.
        found: String,
        allowed: String,
    },
    /// Settings that contradict or need each other.
    #[error("{key} ({origin}) {reason}")]
    Conflict {
        key: KeyPath,
        origin: Origin,
        /// What is wrong, and how to fix it.
        reason: String,
    },
    /// The default file lacks a key that the code reads.
    #[error("the default configuration has no {0}")]
    NoDefault(KeyPath),
}

fn did_you_mean(suggestion: Option<&impl Display>) -> String {
    suggestion.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
}
