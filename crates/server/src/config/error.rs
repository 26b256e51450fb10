//! Why a configuration is refused.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{KeyPath, Origin};

/// Why a configuration is refused. No text of it holds a secret.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file of `--config` cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file that is no TOML.
    #[error("{origin}: not TOML: {reason}")]
    NotToml {
        /// Where reading stopped.
        origin: Origin,
        /// What the parser says.
        reason: String,
    },
    /// A `--set` without a name or without a value.
    #[error("--set {begins}… is not of the form key=value, such as limits.connection.capacity=500")]
    NotAnAssignment {
        /// Its first characters, as far as they may belong to a key.
        begins: String,
    },
    /// A variable of ours that is no text.
    #[error("environment variable {0} is not UTF-8")]
    NotUtf8(String),
    /// A setting that does not exist.
    #[error("unknown setting {key} ({origin}){}", did_you_mean(suggestion.as_ref()))]
    UnknownKey {
        /// What was set.
        key: KeyPath,
        /// Where.
        origin: Origin,
        /// What was probably meant.
        suggestion: Option<KeyPath>,
    },
    /// A variable named like ours that sets nothing.
    #[error("unknown environment variable {name}{}", did_you_mean(suggestion.as_ref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What was probably meant.
        suggestion: Option<String>,
    },
    /// A value that is not allowed.
    #[error("{key} ({origin}) is {found}, but has to be {allowed}")]
    BadValue {
        /// The setting.
        key: KeyPath,
        /// Where it was made.
        origin: Origin,
        /// What was found, without secrets.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// Settings that do not go together.
    #[error("{key} ({origin}) {reason}")]
    Conflict {
        /// The setting that is refused.
        key: KeyPath,
        /// Where it was made.
        origin: Origin,
        /// Why, and what would be right.
        reason: String,
    },
    /// The default file lacks a key that the program reads.
    #[error("the default file has no {0}")]
    NoDefault(KeyPath),
}

fn did_you_mean(suggestion: Option<&impl Display>) -> String {
    suggestion.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
}
