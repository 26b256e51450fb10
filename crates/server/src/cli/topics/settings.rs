//! Topic settings on the command line: parsing changes, printing what is in effect.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::cli::human_bytes::human_bytes;
use crate::cli::sizes::bytes;
use crate::cli::table::Table;
use crate::cli::times::{human_duration, milliseconds};

/// A change of one setting; `None` resets it to the server's configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SettingChange {
    name: &'static str,
    value: Option<Value>,
}

const NAMES: [&str; 4] = ["retention_ms", "retention_bytes", "durability", "limit"];

impl SettingChange {
    /// Changes the retention by time.
    pub(super) fn retention_ms(ms: u64) -> Self {
        Self { name: "retention_ms", value: Some(ms.into()) }
    }

    /// Changes the retention by size.
    pub(super) fn retention_bytes(bytes: u64) -> Self {
        Self { name: "retention_bytes", value: Some(bytes.into()) }
    }

    pub(super) fn apply(&self, own: &mut Map<String, Value>) {
        match &self.value {
            Some(value) => own.insert(self.name.to_owned(), value.clone()),
            None => own.remove(self.name),
        };
    }
}

impl FromStr for SettingChange {
    type Err = String;

    /// Checks the format only; the server validates the values.
    fn from_str(text: &str) -> Result<Self, String> {
        let (given, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
        let name = NAMES.into_iter().find(|name| *name == given);
        let name = name.ok_or_else(|| {
            format!("unknown setting {given}; the settings are {}", NAMES.join(", "))
        })?;
        if value.is_empty() {
            return Ok(Self { name, value: None });
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let value = match name {
            "durability" => Ok(json!(value)),
            "limit" => value
                .split_once('/')
                .and_then(|(capacity, refill)| Some((number(capacity)?, number(refill)?)))
                .map(|(capacity, refill)| json!({"capacity": capacity, "refill_per_sec": refill}))
                .ok_or("expected limit=CAPACITY/REFILL_PER_SEC, such as limit=5000/1000"),
            "retention_bytes" => return Ok(Self { name, value: Some(bytes(value)?.into()) }),
            _ => return Ok(Self { name, value: Some(milliseconds(value)?.into()) }),
        };
        Ok(Self { name, value: Some(value?) })
    }
}

/// Renders the settings in effect and where each is set.
pub(super) fn table(settings: &Map<String, Value>, own: &Map<String, Value>) -> String {
    let mut table = Table::new(&["SETTING", "SOURCE", "VALUE"]);
    for name in NAMES {
        let value = format_value(name, settings.get(name).unwrap_or(&Value::Null));
        let source = if own.contains_key(name) { "topic" } else { "configuration" };
        table.push(vec![name.to_owned(), source.to_owned(), value]);
    }
    table.render(3)
}

fn format_value(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) => match (name, number.as_u64()) {
            ("retention_ms", Some(ms)) => human_duration(ms),
            ("retention_bytes", Some(bytes)) => human_bytes(bytes as f64),
            _ => number.to_string(),
        },
        Value::Null => "none".to_owned(),
        Value::String(word) => word.clone(),
        Value::Object(limit) => {
            let part = |name: &str| limit.get(name).map_or(String::new(), Value::to_string);
            format!("{}/{}", part("capacity"), part("refill_per_sec"))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_applies_changes() {
        let mut own = Map::from_iter([("durability".to_owned(), json!("buffered"))]);
        for change in ["retention_ms=7d", "retention_bytes=10MiB", "limit=10/2", "durability="] {
            change.parse::<SettingChange>().unwrap().apply(&mut own);
        }
        let limit = json!({"capacity": 10, "refill_per_sec": 2});
        let expected =
            json!({"retention_ms": 604_800_000, "retention_bytes": 10 << 20, "limit": limit});
        assert_eq!(Value::Object(own), expected);
    }

    #[test]
    fn an_invalid_change_says_what_is_expected() {
        for (text, reason) in [
            ("limit", "KEY=VALUE"),
            ("retention=1", "the settings are retention_ms, retention_bytes, durability, limit"),
            ("retention_ms=soon", "a duration such as 7d"),
            ("retention_bytes=-1", "a size such as 10MiB"),
            ("limit=5", "CAPACITY/REFILL_PER_SEC"),
            ("limit=5/", "CAPACITY/REFILL_PER_SEC"),
        ] {
            let error = text.parse::<SettingChange>().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn shows_the_source_of_each_setting() {
        let limit = json!({"capacity": 10, "refill_per_sec": 2});
        let settings = json!({"durability": "fsync", "retention_ms": 5, "limit": limit});
        let own = json!({"retention_ms": 5});
        let text = table(settings.as_object().unwrap(), own.as_object().unwrap());
        for line in [
            "retention_ms     topic          5 ms",
            "retention_bytes  configuration  none",
            "durability       configuration  fsync",
            "limit            configuration  10/2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
