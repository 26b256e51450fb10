//! A BSON value as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime};
use serde_json::value::RawValue;
use thiserror::Error;

/// A value that JSON has no form for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {what}")]
pub(crate) struct NoJson {
    path: String,
    what: String,
}

/// From here on a double has no place behind the point, and JSON readers may differ.
const LARGEST_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The JSON of `value`, with members in their order. `name` is what errors call it.
pub(crate) fn json_of(value: &Bson, name: &str) -> Result<Box<RawValue>, NoJson> {
    let mut writer = Writer { json: String::new(), path: name.to_owned() };
    writer.write(value)?;
    let Writer { json, path } = writer;
    RawValue::from_string(json).map_err(|error| NoJson { path, what: error.to_string() })
}

struct Writer {
    json: String,
    path: String,
}

impl Writer {
    fn write(&mut self, value: &Bson) -> Result<(), NoJson> {
        match value {
            Bson::Null => self.json.push_str("null"),
            Bson::Boolean(value) => self.json.push_str(if *value { "true" } else { "false" }),
            Bson::Int32(number) => self.json.push_str(&number.to_string()),
            Bson::Int64(number) => self.json.push_str(&number.to_string()),
            Bson::Double(number) => self.write_double(*number)?,
            Bson::String(text) => self.write_text(text),
            Bson::Array(values) => self.write_array(values)?,
            Bson::Document(members) => self.write_object(members)?,
            Bson::DateTime(moment) => {
                let text =
                    text_of_date(*moment).ok_or_else(|| self.refuse("a date too far off"))?;
                self.write_text(&text);
            }
            Bson::ObjectId(id) => self.write_text(&id.to_hex()),
            Bson::Decimal128(number) => {
                let text = number.to_string();
                if text.contains(['N', 'I']) {
                    return Err(self.refuse(&format!("{text} has no JSON form")));
                }
                self.write_text(&text);
            }
            Bson::Binary(binary) => self.write_text(&text_of_binary(binary)),
            other => {
                let what = format!("{:?} has no JSON form", other.element_type());
                return Err(self.refuse(&what));
            }
        }
        Ok(())
    }

    /// Programs in JavaScript have doubles only, so a whole number is written as one.
    fn write_double(&mut self, number: f64) -> Result<(), NoJson> {
        if !number.is_finite() {
            return Err(self.refuse(&format!("{number} has no JSON form")));
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

    fn write_array(&mut self, values: &[Bson]) -> Result<(), NoJson> {
        self.json.push('[');
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                self.json.push(',');
            }
            self.within(&format!("[{place}]"), value)?;
        }
        self.json.push(']');
        Ok(())
    }

    fn write_object(&mut self, members: &mongodb::bson::Document) -> Result<(), NoJson> {
        self.json.push('{');
        for (place, (name, value)) in members.iter().enumerate() {
            if place > 0 {
                self.json.push(',');
            }
            self.write_text(name);
            self.json.push(':');
            self.within(&format!(".{name}"), value)?;
        }
        self.json.push('}');
        Ok(())
    }

    fn within(&mut self, step: &str, value: &Bson) -> Result<(), NoJson> {
        let before = self.path.len();
        self.path.push_str(step);
        self.write(value)?;
        self.path.truncate(before);
        Ok(())
    }

    fn refuse(&self, what: &str) -> NoJson {
        NoJson { path: self.path.clone(), what: what.to_owned() }
    }
}

/// As JavaScript writes a date: always with milliseconds.
fn text_of_date(moment: DateTime) -> Option<String> {
    let text = moment.try_to_rfc3339_string().ok()?;
    // One that is too far off becomes the last there is.
    if DateTime::parse_rfc3339_str(&text).ok()? != moment {
        return None;
    }
    let text = text.strip_suffix('Z')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    Some(format!("{seconds}.{fraction:0<3}Z"))
}

fn text_of_binary(binary: &Binary) -> String {
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

    fn wrong(value: impl Into<Bson>) -> String {
        json_of(&value.into(), "payload").unwrap_err().to_string()
    }

    #[test]
    fn what_json_has_is_itself_in_its_order() {
        let value = doc! { "b": [1, 2_i64, true, Bson::Null], "a": { "text": "é\n\"" } };
        assert_eq!(json(value), r#"{"b":[1,2,true,null],"a":{"text":"é\n\""}}"#);
        assert_eq!(json(bson!([])), "[]");
        assert_eq!(json(i64::MIN), i64::MIN.to_string());
    }

    #[test]
    fn doubles_are_numbers_and_whole_ones_look_like_it() {
        assert_eq!(json(1_700_000_000_000.0), "1700000000000");
        assert_eq!(json(0.1), "0.1");
        assert_eq!(json(-3.0), "-3");
        assert_eq!(json(-0.0), "-0.0");
        assert_eq!(json(1e300), "1e+300");
        assert_eq!(wrong(f64::NAN), "payload: NaN has no JSON form");
        let deep = doc! { "items": [1, { "price": f64::INFINITY }] };
        assert_eq!(wrong(deep), "payload.items[1].price: inf has no JSON form");
    }

    #[test]
    fn other_types_become_text() {
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
    fn what_has_no_form_is_refused_with_its_place() {
        assert!(wrong(Bson::Decimal128("NaN".parse().unwrap())).contains("NaN has no JSON form"));
        assert!(wrong(Bson::Decimal128("-Infinity".parse().unwrap())).contains("no JSON form"));
        assert!(wrong(DateTime::MAX).contains("a date too far off"));
        let regex = Regex { pattern: "a".try_into().unwrap(), options: "".try_into().unwrap() };
        let regex = doc! { "match": Bson::RegularExpression(regex) };
        assert_eq!(wrong(regex), "payload.match: RegularExpression has no JSON form");
        assert!(wrong(Bson::MinKey).contains("MinKey"));
        assert!(wrong(Bson::Undefined).contains("Undefined"));
    }
}
