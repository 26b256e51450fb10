//! Prints the settings in effect as TOML, with secrets redacted.

use std::fmt;

use toml::Value;

use super::known_keys::{TOPICS, is_secret};
use super::{KeyPath, Origin, RawConfig};
use crate::auth::secret::REDACTED;
use crate::mongo_address::MongoAddress;

/// Prints a file that `--config` accepts, with a comment on each value that is not a default.
impl fmt::Display for RawConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = KeyPath::root();
        let topic_keys = self.values.keys().filter(|key| key.segments()[0] == TOPICS);
        for key in self.known.iter().chain(topic_keys) {
            let Some(setting) = self.values.get(key) else { continue };
            // All keys of a topic go into one section.
            let depth = if key.segments()[0] == TOPICS { 2 } else { key.segments().len() - 1 };
            if key.prefix(depth) != section {
                let gap = if section == KeyPath::root() { "" } else { "\n" };
                section = key.prefix(depth);
                writeln!(f, "{gap}[{section}]")?;
            }
            let value = match &setting.value {
                value if is_secret(key) => redacted(value),
                Value::String(text) => Value::String(without_password(text)),
                value => value.clone(),
            };
            writeln!(f, "{} = {value}{}", key.suffix(depth), comment(&setting.origin))?;
        }
        Ok(())
    }
}

/// Same as `Display`, so that `Debug` leaks no secret either.
impl fmt::Debug for RawConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Redacts the credentials of a MongoDB address; returns any other text unchanged.
pub(super) fn without_password(text: &str) -> String {
    text.parse::<MongoAddress>().map_or_else(|_| text.to_owned(), |address| address.to_string())
}

fn redacted(value: &Value) -> Value {
    let hidden = || Value::String(REDACTED.to_owned());
    match value {
        Value::String(text) if text.is_empty() => value.clone(),
        Value::Array(tokens) => Value::Array(tokens.iter().map(redacted).collect()),
        Value::Table(token) => {
            let is_public = |name: &str| matches!(name, "name" | "scopes");
            let without_token = |(name, inner): (&String, &Value)| {
                (name.clone(), if is_public(name) { inner.clone() } else { hidden() })
            };
            Value::Table(token.iter().map(without_token).collect())
        }
        _ => hidden(),
    }
}

fn comment(origin: &Origin) -> String {
    match origin {
        Origin::Default { .. } => String::new(),
        // A file name may contain a newline, which would end the comment.
        origin => format!(" # {}", origin.to_string().replace(char::is_control, " ")),
    }
}
