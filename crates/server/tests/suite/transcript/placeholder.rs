//! Placeholders such as `"<id1>"` for values that vary from run to run.

use std::collections::HashMap;

use prombus_proto::EventId;
use serde_json::Value;

/// The values of the placeholders of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placeholders(HashMap<String, Value>);

impl Placeholders {
    /// Returns whether `actual` matches `expected`. A new placeholder takes the actual value.
    pub(crate) fn matches(&mut self, expected: &Value, actual: &Value) -> bool {
        match (expected, actual) {
            (Value::String(text), _) if is_placeholder(text) => match self.0.get(text) {
                Some(known) => known == actual,
                None => {
                    self.0.insert(text.clone(), actual.clone());
                    is_of_kind(text, actual)
                }
            },
            (Value::Object(expected), Value::Object(actual)) => {
                expected.len() == actual.len()
                    && expected.iter().all(|(name, expected)| {
                        actual.get(name).is_some_and(|actual| self.matches(expected, actual))
                    })
            }
            (Value::Array(expected), Value::Array(actual)) => {
                expected.len() == actual.len()
                    && expected
                        .iter()
                        .zip(actual)
                        .all(|(expected, actual)| self.matches(expected, actual))
            }
            _ => expected == actual,
        }
    }

    /// Replaces the placeholders in `frame` with their values.
    pub(crate) fn fill(&self, frame: &str) -> String {
        self.0.iter().fold(frame.to_owned(), |frame, (name, value)| {
            frame.replace(&format!("\"{name}\""), &value.to_string())
        })
    }
}

fn is_placeholder(text: &str) -> bool {
    text.starts_with('<') && text.ends_with('>')
}

fn is_of_kind(name: &str, value: &Value) -> bool {
    if name.starts_with("<id") {
        let id = value.as_str().and_then(|text| EventId::new(text).ok());
        return id.and_then(|id| id.as_uuid()).is_some_and(|id| id.get_version_num() == 7);
    }
    if name.starts_with("<ts") {
        // A plausible time.
        return value
            .as_u64()
            .is_some_and(|ms| (1_500_000_000_000..4_100_000_000_000).contains(&ms));
    }
    if name.ends_with("_ms>") {
        return value.as_u64().is_some_and(|ms| (1..=120_000).contains(&ms));
    }
    panic!("{name} is neither <id…>, <ts…> nor <…_ms>");
}

#[test]
fn a_placeholder_has_one_value_and_everything_else_must_match() {
    let json = |text| serde_json::from_str::<Value>(text).unwrap();
    let mut placeholders = Placeholders::default();
    assert!(placeholders.matches(&json(r#"{"a":["<wait_ms>"]}"#), &json(r#"{"a":[7]}"#)));
    assert!(placeholders.matches(&json(r#""<wait_ms>""#), &json("7")));
    assert_eq!(placeholders.fill(r#"{"b":"<wait_ms>"}"#), r#"{"b":7}"#);
    for (expected, actual) in [
        (r#""<wait_ms>""#, "8"),
        (r#""<other_ms>""#, "-1"),
        (r#""<id1>""#, r#""no uuid""#),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":1,"b":2}"#, r#"{"a":1}"#),
        ("[1]", "[1,2]"),
        ("1", "2"),
    ] {
        assert!(!placeholders.matches(&json(expected), &json(actual)), "{expected} {actual}");
    }
}
