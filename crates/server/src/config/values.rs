//! Typed access to single settings: checks type, format and range.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::known_keys::is_secret;
use super::raw::Setting;
use super::{ConfigError, KeyPath, RawConfig};

/// The largest TOML integer, for settings without an upper bound.
pub(super) const UNBOUNDED: u64 = i64::MAX.unsigned_abs();

/// How many characters of an invalid string an error quotes.
const QUOTED_CHARACTERS: usize = 60;

impl RawConfig {
    pub(super) fn get(&self, key: &KeyPath) -> Result<&Setting, ConfigError> {
        self.values.get(key).ok_or_else(|| ConfigError::NoDefault(key.clone()))
    }

    pub(super) fn bool(&self, key: &KeyPath) -> Result<bool, ConfigError> {
        let setting = self.get(key)?;
        setting.value.as_bool().ok_or_else(|| setting.invalid(key, "true or false"))
    }

    pub(super) fn integer<T>(
        &self,
        key: &KeyPath,
        range: RangeInclusive<u64>,
    ) -> Result<T, ConfigError>
    where
        T: TryFrom<u64>,
    {
        let setting = self.get(key)?;
        let number = setting.value.as_integer().and_then(|n| u64::try_from(n).ok());
        let within = number.filter(|n| range.contains(n)).and_then(|n| T::try_from(n).ok());
        within.ok_or_else(|| {
            setting.invalid(key, format!("a whole number, {}", describe_range(&range)))
        })
    }

    /// Returns a number from 0 to 1, which may be written as a whole number.
    pub(super) fn ratio(&self, key: &KeyPath) -> Result<f64, ConfigError> {
        let setting = self.get(key)?;
        let number = match setting.value {
            Value::Float(number) => Some(number),
            Value::Integer(0) => Some(0.0),
            Value::Integer(1) => Some(1.0),
            _ => None,
        };
        let within = number.filter(|number| (0.0..=1.0).contains(number));
        within.ok_or_else(|| setting.invalid(key, "a number, 0 to 1"))
    }

    pub(super) fn milliseconds(
        &self,
        key: &KeyPath,
        range: RangeInclusive<u64>,
    ) -> Result<Duration, ConfigError> {
        self.integer(key, range).map(Duration::from_millis)
    }

    pub(super) fn string(&self, key: &KeyPath) -> Result<&str, ConfigError> {
        let setting = self.get(key)?;
        setting.value.as_str().ok_or_else(|| setting.invalid(key, "a string"))
    }

    /// Returns `None` for an empty string.
    pub(super) fn optional_string(&self, key: &KeyPath) -> Result<Option<&str>, ConfigError> {
        Ok(Some(self.string(key)?).filter(|text| !text.is_empty()))
    }

    /// Returns `None` for an empty string.
    pub(super) fn optional_path(&self, key: &KeyPath) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.optional_string(key)?.map(PathBuf::from))
    }

    /// Parses a string; `allowed` describes the format in the error.
    pub(super) fn parsed<T>(
        &self,
        key: &KeyPath,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let setting = self.get(key)?;
        setting.value.as_str().and_then(parse).ok_or_else(|| setting.invalid(key, allowed))
    }

    /// Parses each element of a list; `allowed` describes the whole list in the error.
    pub(super) fn list<T>(
        &self,
        key: &KeyPath,
        allowed: &str,
        element: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ConfigError> {
        let setting = self.get(key)?;
        let elements = setting.value.as_array();
        let parsed = elements.and_then(|list| list.iter().map(element).collect());
        parsed.ok_or_else(|| setting.invalid(key, allowed))
    }

    /// The error for a setting that contradicts or needs another one.
    pub(super) fn conflict(&self, key: &KeyPath, reason: impl Into<String>) -> ConfigError {
        match self.get(key) {
            Ok(setting) => ConfigError::Conflict {
                key: key.clone(),
                origin: setting.origin.clone(),
                reason: reason.into(),
            },
            Err(error) => error,
        }
    }
}

impl Setting {
    pub(super) fn invalid(&self, key: &KeyPath, allowed: impl Into<String>) -> ConfigError {
        ConfigError::InvalidValue {
            key: key.clone(),
            origin: self.origin.clone(),
            found: if is_secret(key) { kind(&self.value).to_owned() } else { quote(&self.value) },
            allowed: allowed.into(),
        }
    }
}

pub(crate) fn describe_range(range: &RangeInclusive<u64>) -> String {
    match *range.end() {
        UNBOUNDED => format!("{} or more", range.start()),
        end => format!("{} to {end}", range.start()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a floating-point number",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

fn quote(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Table(_) => kind(value).to_owned(),
        Value::String(text) => {
            // A URL may contain a password.
            let end = text.find("://").map_or(text.len(), |scheme| scheme + 3);
            let start: String = text[..end].chars().take(QUOTED_CHARACTERS).collect();
            if start.len() < text.len() {
                format!("{:?}", start + "…")
            } else {
                format!("{text:?}")
            }
        }
        value => value.to_string(),
    }
}
