//! Settings of a topic: how a change is written, and how they are shown.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::cli::table::Table;

/// One setting, and what it becomes; nothing makes it as the server is configured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    name: &'static str,
    value: Option<Value>,
}

const NAMES: [&str; 4] = ["retention_ms", "retention_bytes", "durability", "limit"];

impl Change {
    pub(super) fn apply(&self, own: &mut Map<String, Value>) {
        match &self.value {
            Some(value) => own.insert(self.name.to_owned(), value.clone()),
            None => own.remove(self.name),
        };
    }
}

impl FromStr for Change {
    type Err = String;

    /// The server checks what values mean; here it is only what form they have.
    fn from_str(text: &str) -> Result<Self, String> {
        let (given, value) = text.split_once('=').ok_or("a change is KEY=VALUE")?;
        let name = NAMES.into_iter().find(|name| *name == given);
        let name = name.ok_or_else(|| {
            format!("a topic has no setting {given}; there are {}", NAMES.join(", "))
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
                .ok_or("limit is CAPACITY/REFILL_PER_SEC, such as limit=5000/1000"),
            _ => number(value).map(Value::from).ok_or("it takes a whole number"),
        };
        Ok(Self { name, value: Some(value?) })
    }
}

/// What holds, and who said so.
pub(super) fn text(settings: &Map<String, Value>, own: &Map<String, Value>) -> String {
    let mut table = Table::new(&["SETTING", "SET", "VALUE"]);
    for name in NAMES {
        let value = shown(settings.get(name).unwrap_or(&Value::Null));
        let by = if own.contains_key(name) { "here" } else { "by the server" };
        table.push(vec![name.to_owned(), by.to_owned(), value]);
    }
    table.text(3)
}

fn shown(value: &Value) -> String {
    match value {
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
    fn changes_are_written_as_key_and_value() {
        let mut own = Map::from_iter([("durability".to_owned(), json!("buffered"))]);
        for change in ["retention_ms=5", "retention_bytes=7", "limit=10/2", "durability="] {
            change.parse::<Change>().unwrap().apply(&mut own);
        }
        let limit = json!({"capacity": 10, "refill_per_sec": 2});
        let expected = json!({"retention_ms": 5, "retention_bytes": 7, "limit": limit});
        assert_eq!(Value::Object(own), expected);
    }

    #[test]
    fn what_is_no_change_says_what_would_be_one() {
        for (text, reason) in [
            ("limit", "KEY=VALUE"),
            ("retention=1", "there are retention_ms, retention_bytes, durability, limit"),
            ("retention_ms=1d", "a whole number"),
            ("retention_bytes=-1", "a whole number"),
            ("limit=5", "CAPACITY/REFILL_PER_SEC"),
            ("limit=5/", "CAPACITY/REFILL_PER_SEC"),
        ] {
            let error = text.parse::<Change>().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn what_holds_is_shown_with_who_said_so() {
        let limit = json!({"capacity": 10, "refill_per_sec": 2});
        let settings = json!({"durability": "fsync", "retention_ms": 5, "limit": limit});
        let own = json!({"retention_ms": 5});
        let text = text(settings.as_object().unwrap(), own.as_object().unwrap());
        for line in [
            "retention_ms     here           5",
            "retention_bytes  by the server  none",
            "durability       by the server  fsync",
            "limit            by the server  10/2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
