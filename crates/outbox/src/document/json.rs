//! Converts a BSON value to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime};
use serde_json::value::RawValue;
use thiserror::Error;

/// A value that JSON cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {what}")]
pub(crate) struct NotJson {
    path: String,
    what: String,
}

/// Above this, doubles are no longer exact integers, and JSON readers may differ.
const LARGEST_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns the JSON of `value`, with members in their order. Errors refer to the value as `name`.
pub(crate) fn json_of(value: &Bson, name: &str) -> Result<Box<RawValue>, NotJson> {
    let mut writer = Writer { json: String::new(), path: name.to_owned() };
    writer.write(value)?;
    let Writer { json, path } = writer;
    RawValue::from_string(json).map_err(|error| NotJson { path, what: error.to_string() })
}

struct Writer {
    json: String,
    path: String,
}

impl Writer {
    fn write(&mut self, value: &Bson) -> Result<(), NotJson> {
        match value {
            Bson::Null => self.json.push_str("null"),
            Bson::Boolean(value) => self.json.push_str(if *value { "true" } else { "false" }),
            Bson::Int32(number) => self.json.push_str(&number.to_string()),
            Bson::Int64(number) => self.json.push_str(&number.to_string()),
            Bson::Double(number) => self.write_double(*number)?,
            Bson::String(text) => self.write_text(text),
            Bson::Array(values) => self.write_array(values)?,
            Bson::Document(members) => self.write_object(members)?,
            Bson::DateTime(date) => {
                let text = date_text(*date).ok_or_else(|| self.error("a date out of range"))?;
                self.write_text(&text);
            }
            Bson::ObjectId(id) => self.write_text(&id.to_hex()),
            Bson::Decimal128(number) => {
                let text = number.to_string();
                if text.contains(['N', 'I']) {
                    return Err(self.error(&format!("{text} has no JSON representation")));
                }
                self.write_text(&text);
            }
            Bson::Binary(binary) => self.write_text(&binary_text(binary)),
            other => {
                let what = format!("{:?} has no JSON representation", other.element_type());
                return Err(self.error(&what));
            }
        }
        Ok(())
    }

    /// JavaScript programs have doubles only, so a whole double is written as an integer.
    fn write_double(&mut self, number: f64) -> Result<(), NotJson> {
        if !number.is_finite() {
            return Err(self.error(&format!("{number} has no JSON representation")));
        }
        let is_whole = number.fract() == 0.0 && number.abs() <= LARGEST_SAFE_INTEGER;
        let is_minus_zero = number == 0.0 && number.is_sign_negative();
        let text = match is_whole && !is_minus_zero {
            true => format!("{number:.0}"),
            false => serde_json::Value::from(number).to_string(),
        };
        self.json.push_str(&text);
        Ok(())
    }

    fn write_text(&mut self, text: &str) {
        self.json.push_str(&serde_json::Value::from(text).to_string());
    }

    fn write_array(&mut self, values: &[Bson]) -> Result<(), NotJson> {
        self.json.push('[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.json.push(',');
            }
            self.write_member(&format!("[{index}]"), value)?;
        }
        self.json.push(']');
        Ok(())
    }

    fn write_object(&mut self, members: &mongodb::bson::Document) -> Result<(), NotJson> {
        self.json.push('{');
        for (index, (name, value)) in members.iter().enumerate() {
            if index > 0 {
                self.json.push(',');
            }
            self.write_text(name);
            self.json.push(':');
            self.write_member(&format!(".{name}"), value)?;
        }
        self.json.push('}');
        Ok(())
    }

    fn write_member(&mut self, step: &str, value: &Bson) -> Result<(), NotJson> {
        let before = self.path.len();
        self.path.push_str(step);
        self.write(value)?;
        self.path.truncate(before);
        Ok(())
    }

    fn error(&self, what: &str) -> NotJson {
        NotJson { path: self.path.clone(), what: what.to_owned() }
    }
}

/// Formats a date as JavaScript does: always with milliseconds. Returns `None` if it is out of
/// range.
fn date_text(date: DateTime) -> Option<String> {
    let text = date.try_to_rfc3339_string().ok()?;
    // The conversion clamps dates that are out of range.
    if DateTime::parse_rfc3339_str(&text).ok()? != date {
        return None;
    }
    let text = text.strip_suffix('Z')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    Some(format!("{seconds}.{fraction:0<3}Z"))
}

fn binary_text(binary: &Binary) -> String {
    match (binary.subtype, binary.to_uuid()) {
        (BinarySubtype::Uuid, Ok(uuid)) => uuid.to_string(),
        _ => STANDARD.encode(&binary.bytes),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::{Regex, Uuid, bson, doc};

    use super::*;

    fn json(value: impl Into<Bson>) -> String {
        json_of(&value.into(), "payload").unwrap().get().to_owned()
    }

    fn error(value: impl Into<Bson>) -> String {
        json_of(&value.into(), "payload").unwrap_err().to_string()
    }

    #[test]
    fn json_types_are_kept_in_order() {
        let value = doc! { "b": [1, 2_i64, true, Bson::Null], "a": { "text": "é\n\"" } };
        assert_eq!(json(value), r#"{"b":[1,2,true,null],"a":{"text":"é\n\""}}"#);
        assert_eq!(json(bson!([])), "[]");
        assert_eq!(json(i64::MIN), i64::MIN.to_string());
    }

    #[test]
    fn whole_doubles_become_integers() {
        assert_eq!(json(1_700_000_000_000.0), "1700000000000");
        assert_eq!(json(0.1), "0.1");
        assert_eq!(json(-3.0), "-3");
        assert_eq!(json(-0.0), "-0.0");
        assert_eq!(json(1e300), "1e+300");
        assert_eq!(error(f64::NAN), "payload: NaN has no JSON representation");
        let deep = doc! { "items": [1, { "price": f64::INFINITY }] };
        assert_eq!(error(deep), "payload.items[1].price: inf has no JSON representation");
    }

    #[test]
    fn other_types_become_strings() {
        for (ms, text) in [
            (0, "\"1970-01-01T00:00:00.000Z\""),
            (1_700_000_000_120, "\"2023-11-14T22:13:20.120Z\""),
            (-1, "\"1969-12-31T23:59:59.999Z\""),
        ] {
            assert_eq!(json(DateTime::from_millis(ms)), text);
        }
        let id = ObjectId::parse_str("65f0c0ffee65f0c0ffee65f0").unwrap();
        assert_eq!(json(id), "\"65f0c0ffee65f0c0ffee65f0\"");
        assert_eq!(json(Bson::Decimal128("12.50".parse().unwrap())), "\"12.50\"");
        let uuid = Uuid::parse_str("0190f5e4-8d4b-7c3a-9f2e-0123456789ab").unwrap();
        assert_eq!(json(uuid), "\"0190f5e4-8d4b-7c3a-9f2e-0123456789ab\"");
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255, 1] };
        assert_eq!(json(bytes), "\"AP8B\"");
    }

    #[test]
    fn errors_name_the_path_of_the_value() {
        assert!(
            error(Bson::Decimal128("NaN".parse().unwrap()))
                .contains("NaN has no JSON representation")
        );
        assert!(
            error(Bson::Decimal128("-Infinity".parse().unwrap()))
                .contains("no JSON representation")
        );
        assert!(error(DateTime::MAX).contains("a date out of range"));
        let regex = Regex { pattern: "a".try_into().unwrap(), options: "".try_into().unwrap() };
        let regex = doc! { "match": Bson::RegularExpression(regex) };
        assert_eq!(error(regex), "payload.match: RegularExpression has no JSON representation");
        assert!(error(Bson::MinKey).contains("MinKey"));
        assert!(error(Bson::Undefined).contains("Undefined"));
    }
}
