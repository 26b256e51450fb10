//! The source of a setting.

use std::fmt;
use std::path::PathBuf;

/// The source of a setting. Line numbers start at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in `prombus.toml`.
    Default { line: usize },
    /// The file given by `--config`.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Variable(String),
    /// `--set`, with the key as the user wrote it. The value is left out: it may be a secret.
    Set(String),
    /// A dedicated flag, such as `--ws`.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default { line } => write!(f, "default configuration, line {line}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Set(key) => write!(f, "--set {key}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}
