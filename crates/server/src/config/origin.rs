//! Where a setting was made.

use std::fmt;
use std::path::PathBuf;

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the default file.
    Default {
        /// The line, from 1.
        line: usize,
    },
    /// In the file of `--config`.
    File {
        /// The file, as it was given.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// In a variable of the environment.
    Variable(String),
    /// By `--set`, for this key as the user wrote it. The value is left out: it may be a secret.
    Set(String),
    /// By a flag of its own, such as `--ws`.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default { line } => write!(f, "the default file, line {line}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Set(key) => write!(f, "--set {key}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}
