//! The settings in effect, as TOML, without secrets.

use std::fmt;

use toml::Value;

use super::known_keys::{TOPICS, is_secret};
use super::{KeyPath, Origin, Settings};
use crate::auth::secret::REDACTED;
use crate::mongo_address::MongoAddress;

/// A file that `--config` takes, with a remark on what does not come from the default file.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = KeyPath::root();
        let of_topics = self.values.keys().filter(|key| key.segments()[0] == TOPICS);
        for key in self.known.iter().chain(of_topics) {
            let Some(setting) = self.values.get(key) else { continue };
            // All of a topic's keys stand in one section.
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
            writeln!(f, "{} = {value}{}", key.suffix(depth), remark(&setting.origin))?;
        }
        Ok(())
    }
}

/// As they print: `Debug` shows no secret either.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address of a database may hold one.
fn without_password(text: &str) -> String {
    text.parse::<MongoAddress>().map_or_else(|_| text.to_owned(), |address| address.to_string())
}

fn redacted(value: &Value) -> Value {
    let hidden = || Value::String(REDACTED.to_owned());
    match value {
        Value::String(text) if text.is_empty() => value.clone(),
        Value::Array(tokens) => Value::Array(tokens.iter().map(redacted).collect()),
        Value::Table(token) => {
            let scopes_only = |(name, inner): (&String, &Value)| {
                (name.clone(), if name == "scopes" { inner.clone() } else { hidden() })
            };
            Value::Table(token.iter().map(scopes_only).collect())
        }
        _ => hidden(),
    }
}

fn remark(origin: &Origin) -> String {
    match origin {
        Origin::Default { .. } => String::new(),
        // The name of a file may hold anything, but a remark ends with its line.
        origin => format!(" # {}", origin.to_string().replace(char::is_control, " ")),
    }
}
