//! Checks single values: type, form and range.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::known_keys::is_secret;
use super::settings::Setting;
use super::{ConfigError, KeyPath, Settings};

/// The largest number that TOML has, for settings without an upper end.
pub(super) const NO_END: u64 = i64::MAX.unsigned_abs();

/// As much of a wrong text as an error shows.
const SHOWN_CHARACTERS: usize = 60;

impl Settings {
    /// A setting that the default file has.
    pub(super) fn get(&self, key: &KeyPath) -> Result<&Setting, ConfigError> {
        self.values.get(key).ok_or_else(|| ConfigError::NoDefault(key.clone()))
    }

    /// True or false.
    pub(super) fn truth(&self, key: &KeyPath) -> Result<bool, ConfigError> {
        let setting = self.get(key)?;
        setting.value.as_bool().ok_or_else(|| setting.refused(key, "true or false"))
    }

    /// A whole number within a range.
    pub(super) fn number<T>(
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
        within.ok_or_else(|| setting.refused(key, format!("a whole number, {}", in_words(&range))))
    }

    /// A time in milliseconds within a range.
    pub(super) fn milliseconds(
        &self,
        key: &KeyPath,
        range: RangeInclusive<u64>,
    ) -> Result<Duration, ConfigError> {
        self.number(key, range).map(Duration::from_millis)
    }

    /// Any text.
    pub(super) fn text(&self, key: &KeyPath) -> Result<&str, ConfigError> {
        let setting = self.get(key)?;
        setting.text().ok_or_else(|| setting.refused(key, "a text"))
    }

    /// A text, unless it is empty.
    pub(super) fn text_or_none(&self, key: &KeyPath) -> Result<Option<&str>, ConfigError> {
        Ok(Some(self.text(key)?).filter(|text| !text.is_empty()))
    }

    /// A path, unless it is empty.
    pub(super) fn path_or_none(&self, key: &KeyPath) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text_or_none(key)?.map(PathBuf::from))
    }

    /// A text that has to have a form.
    pub(super) fn parsed<T>(
        &self,
        key: &KeyPath,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let setting = self.get(key)?;
        setting.text().and_then(parse).ok_or_else(|| setting.refused(key, allowed))
    }

    /// A list, one element after the other.
    pub(super) fn list<T>(
        &self,
        key: &KeyPath,
        allowed: &str,
        element: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ConfigError> {
        let setting = self.get(key)?;
        let elements = setting.value.as_array();
        let parsed = elements.and_then(|list| list.iter().map(element).collect());
        parsed.ok_or_else(|| setting.refused(key, allowed))
    }

    /// The refusal of a setting that does not go with another one.
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
    fn text(&self) -> Option<&str> {
        self.value.as_str()
    }

    pub(super) fn refused(&self, key: &KeyPath, allowed: impl Into<String>) -> ConfigError {
        ConfigError::BadValue {
            key: key.clone(),
            origin: self.origin.clone(),
            found: if is_secret(key) { kind(&self.value).to_owned() } else { shown(&self.value) },
            allowed: allowed.into(),
        }
    }
}

pub(crate) fn in_words(range: &RangeInclusive<u64>) -> String {
    match *range.end() {
        NO_END => format!("{} or more", range.start()),
        end => format!("{} to {end}", range.start()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date or time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Table(_) => kind(value).to_owned(),
        Value::String(text) => {
            // A URL may hold a password.
            let end = text.find("://").map_or(text.len(), |scheme| scheme + 3);
            let begin: String = text[..end].chars().take(SHOWN_CHARACTERS).collect();
            if begin.len() < text.len() {
                format!("{:?}", begin + "…")
            } else {
                format!("{text:?}")
            }
        }
        value => value.to_string(),
    }
}
