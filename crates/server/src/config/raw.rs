//! Settings by key, merged from all sources.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::display::without_password;
use super::known_keys::{KnownKeys, TOPICS, closest_match, is_secret};
use super::{ConfigError, KeyPath, Origin};

/// The default file: every setting with its default value.
pub const DEFAULT_FILE: &str = include_str!("../../prombus.toml");

/// Where settings come from, besides the default file. Later fields override earlier ones.
#[derive(Default)]
pub struct Sources {
    /// The file given by `--config`.
    pub file: Option<PathBuf>,
    /// All environment variables, as from `std::env::vars_os()`.
    pub environment: Vec<(OsString, OsString)>,
    /// The values of `--set`, each `key=value`.
    pub set: Vec<String>,
    /// Dedicated flags, such as `--ws`.
    pub flags: Vec<Flag>,
}

/// A command-line flag for a single setting.
pub struct Flag {
    /// The flag, such as `--ws`.
    pub name: &'static str,
    /// The setting, such as `server.ws`.
    pub key: &'static str,
    pub value: Value,
}

/// All settings by key, merged from all sources. The keys exist; the values are not validated yet.
pub struct RawConfig {
    pub(super) known: KnownKeys,
    pub(super) values: BTreeMap<KeyPath, Setting>,
}

/// A value and its source.
pub(super) struct Setting {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl RawConfig {
    /// Merges all sources.
    ///
    /// # Errors
    ///
    /// A source cannot be read or parsed, or sets an unknown key.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut settings = Self::defaults()?;
        if let Some(path) = &sources.file {
            settings.add_file(path)?;
        }
        settings.add_environment(&sources.environment)?;
        for assignment in &sources.set {
            settings.add_assignment(assignment)?;
        }
        for flag in &sources.flags {
            let origin = Origin::Flag(flag.name);
            settings.add(KeyPath::of(flag.key), flag.value.clone(), &|_| origin.clone())?;
        }
        Ok(settings)
    }

    /// Returns the names of settings outside of a section that differ from those of `earlier`.
    #[must_use]
    pub fn changed_outside_of(&self, section: &str, earlier: &Self) -> Vec<String> {
        let value = |of: &Self, key: &KeyPath| of.values.get(key).map(|it| it.value.clone());
        let mut keys: Vec<_> = self.values.keys().chain(earlier.values.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| key.segments()[0] != section && value(self, key) != value(earlier, key));
        keys.iter().map(ToString::to_string).collect()
    }

    /// Returns the files that contain secrets.
    #[must_use]
    pub fn files_with_secrets(&self) -> Vec<&Path> {
        let files = self.values.iter().filter_map(|(key, setting)| match &setting.origin {
            Origin::File { path, .. } if holds_secret(key, &setting.value) => Some(path.as_path()),
            _ => None,
        });
        let mut files: Vec<_> = files.collect();
        files.dedup();
        files
    }

    fn defaults() -> Result<Self, ConfigError> {
        let file = LocatedToml::parse(DEFAULT_FILE, &|line| Origin::Default { line })?;
        let mut values = BTreeMap::new();
        flatten(KeyPath::root(), Value::Table(file.table.clone()), &mut |key, value| {
            let origin = Origin::Default { line: file.line_of(&key) };
            values.insert(key, Setting { value, origin });
        });
        let mut keys: Vec<_> =
            values.iter().map(|(key, s): (_, &Setting)| (key.clone(), s.value.is_str())).collect();
        // Those of topics are known by their last segments, whatever the topic.
        keys.retain(|(key, _)| key.segments()[0] != TOPICS);
        keys.sort_by_cached_key(|(key, _)| file.line_of(key));
        Ok(Self { known: KnownKeys::new(keys), values })
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let origin = |line| Origin::File { path: path.to_owned(), line };
        let file = LocatedToml::parse(&text, &origin)?;
        let table = Value::Table(file.table.clone());
        self.add(KeyPath::root(), table, &|key| origin(file.line_of(key)))
    }

    fn add_environment(&mut self, variables: &[(OsString, OsString)]) -> Result<(), ConfigError> {
        let known: BTreeMap<String, KeyPath> = self.known.variables().collect();
        let sections: Vec<String> =
            known.values().map(|key| key.segments()[0].to_uppercase()).collect();
        for (name, value) in variables {
            // Other programs and our tests may use PROMBUS_ variables of their own. Only those that
            // start with the name of a section are settings.
            let Some(name) = name.to_str() else { continue };
            let Some(rest) = name.strip_prefix("PROMBUS_") else { continue };
            let first_word = rest.split('_').next().unwrap_or(rest);
            if !sections.iter().any(|section| section == first_word) {
                continue;
            }
            let Some(key) = known.get(name) else {
                let suggestion = closest_match(name, known.keys().map(String::as_str));
                return Err(ConfigError::UnknownVariable {
                    name: name.to_owned(),
                    suggestion: suggestion.map(str::to_owned),
                });
            };
            let text = value.to_str().ok_or_else(|| ConfigError::NotUtf8(name.to_owned()))?;
            let origin = Origin::Variable(name.to_owned());
            self.add(key.clone(), self.parse_value(key, text), &|_| origin.clone())?;
        }
        Ok(())
    }

    fn add_assignment(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let split = assignment
            .split_once('=')
            .and_then(|(key, value)| Some((key, KeyPath::parse(key)?, value.trim())));
        let Some((written, key, text)) = split else {
            // Repeat only what can belong to a key: the rest may be a secret.
            let in_key = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let prefix = assignment.chars().take_while(in_key).collect();
            return Err(ConfigError::InvalidAssignment { prefix });
        };
        let origin = Origin::Set(written.trim().to_owned());
        let value = self.parse_value(&key, text);
        self.add(key, value, &|_| origin.clone())
    }

    /// Parses a value whose quotes are optional: TOML, else JSON, else a plain string.
    fn parse_value(&self, key: &KeyPath, text: &str) -> Value {
        let toml = toml::from_str::<toml::Table>(&format!("value = {text}")).ok();
        let toml = toml.filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
        let json =
            || text.starts_with(['[', '{']).then(|| serde_json::from_str(text).ok()).flatten();
        // A secret made of digits is still a string.
        let has_right_type = |value: &Value| value.is_str() || !self.known.is_string(key);
        let value = toml.or_else(json).filter(has_right_type);
        value.unwrap_or_else(|| Value::String(text.to_owned()))
    }

    fn add(
        &mut self,
        key: KeyPath,
        value: Value,
        origin: &dyn Fn(&KeyPath) -> Origin,
    ) -> Result<(), ConfigError> {
        if self.known.contains(&key) {
            let origin = origin(&key);
            self.values.insert(key, Setting { value, origin });
            return Ok(());
        }
        let is_section = self.known.has_section(&key);
        match value {
            Value::Table(inner) if is_section || !inner.is_empty() => {
                for (segment, value) in inner {
                    self.add(key.join(&segment), value, origin)?;
                }
                Ok(())
            }
            _ if is_section => Err(ConfigError::InvalidValue {
                found: "a single value".to_owned(),
                allowed: format!("a section of settings, such as {key}.NAME"),
                origin: origin(&key),
                key,
            }),
            _ => Err(ConfigError::UnknownKey {
                suggestion: self.known.suggest(&key),
                origin: origin(&key),
                key,
            }),
        }
    }
}

fn holds_secret(key: &KeyPath, value: &Value) -> bool {
    match value {
        Value::String(text) if is_secret(key) => !text.is_empty(),
        Value::Array(list) if is_secret(key) => !list.iter().all(holds_digest_only),
        Value::String(text) => without_password(text) != *text,
        _ => false,
    }
}

/// A digest of a random token reveals nothing of it.
fn holds_digest_only(token: &Value) -> bool {
    let is_harmless = |name: &String| matches!(&**name, "token_sha256" | "name" | "scopes");
    token.as_table().is_some_and(|token| token.keys().all(is_harmless))
}

fn flatten(key: KeyPath, value: Value, found: &mut impl FnMut(KeyPath, Value)) {
    match value {
        Value::Table(table) => {
            for (segment, value) in table {
                flatten(key.join(&segment), value, found);
            }
        }
        value => found(key, value),
    }
}

/// A TOML file that knows the line of each key.
struct LocatedToml<'a> {
    text: &'a str,
    table: toml::Table,
    spans: DeTable<'a>,
}

impl<'a> LocatedToml<'a> {
    fn parse(text: &'a str, origin: &dyn Fn(usize) -> Origin) -> Result<Self, ConfigError> {
        // The parser's own rendering quotes the line, which may contain a secret.
        let invalid = |error: toml::de::Error| ConfigError::InvalidToml {
            origin: origin(line_at(text, error.span().map_or(0, |span| span.start))),
            reason: error.message().to_owned(),
        };
        let spans = DeTable::parse(text).map_err(invalid)?.into_inner();
        Ok(Self { text, table: toml::from_str(text).map_err(invalid)?, spans })
    }

    /// Returns the line of a key, or of the innermost enclosing section that is in the file.
    fn line_of(&self, key: &KeyPath) -> usize {
        let mut offset = 0;
        let mut inner = Some(&self.spans);
        for segment in key.segments() {
            let Some((name, value)) =
                inner.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == segment))
            else {
                break;
            };
            offset = name.span().start;
            inner = match value.get_ref() {
                DeValue::Table(table) => Some(table),
                _ => None,
            };
        }
        line_at(self.text, offset)
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}
