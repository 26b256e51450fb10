//! Settings of a topic as JSON: those in effect, and its own, which are checked as those in the
//! configuration file are.

use std::fmt::Display;
use std::ops::RangeInclusive;

use prombus_bus::{Durability, Rate, TopicRules, TopicSettings};
use prombus_proto::ErrorCode;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{
    BUCKET_RANGE, DURABILITY_WORDS, RETENTION_RANGE, describe_range, parse_durability,
};
use crate::http::error::HttpError;

/// What holds for a topic, whoever said it.
#[derive(Serialize)]
pub(super) struct Rules {
    durability: &'static str,
    retention_ms: Option<u64>,
    retention_bytes: Option<u64>,
    limit: Option<Bucket>,
}

/// What was set for a topic alone. What is not there is as configured.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Bucket {
    capacity: u64,
    refill_per_sec: u64,
}

impl Own {
    /// Reads and checks what a request says.
    pub(super) fn parse(body: &[u8]) -> Result<Self, HttpError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            HttpError::new(ErrorCode::BadJson, format!("the body: not JSON: {error}"))
        })?;
        let Value::Object(fields) = value else {
            return Err(bad("the body", "must be a JSON object with settings"));
        };
        refuse_unknown(&fields, "", &["durability", "retention_ms", "retention_bytes", "limit"])?;
        let durability = present(&fields, "durability").map(|value| {
            let known = value.as_str().and_then(parse_durability);
            known
                .map(word)
                .ok_or_else(|| bad("durability", format_args!("must be {DURABILITY_WORDS}")))
        });
        let retention = |name| {
            present(&fields, name).map(|value| number(name, value, RETENTION_RANGE)).transpose()
        };
        Ok(Self {
            durability: durability.transpose()?,
            retention_ms: retention("retention_ms")?,
            retention_bytes: retention("retention_bytes")?,
            limit: present(&fields, "limit").map(Bucket::parse).transpose()?,
        })
    }
}

impl Bucket {
    fn parse(value: &Value) -> Result<Self, HttpError> {
        let Some(fields) = value.as_object() else {
            return Err(bad("limit", "must be an object with capacity and refill_per_sec"));
        };
        refuse_unknown(fields, "limit.", &["capacity", "refill_per_sec"])?;
        let part = |name: &str| {
            let path = format!("limit.{name}");
            let value = present(fields, name).ok_or_else(|| bad(&path, "is missing"))?;
            number(&path, value, BUCKET_RANGE)
        };
        Ok(Self { capacity: part("capacity")?, refill_per_sec: part("refill_per_sec")? })
    }
}

/// `null` stands for an absent field.
fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn number(path: &str, value: &Value, range: RangeInclusive<u64>) -> Result<u64, HttpError> {
    let wrong = || bad(path, format_args!("must be a whole number, {}", describe_range(&range)));
    value.as_u64().filter(|number| range.contains(number)).ok_or_else(wrong)
}

fn refuse_unknown(
    fields: &Map<String, Value>,
    path: &str,
    known: &[&str],
) -> Result<(), HttpError> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let shown = format!("{path}{}", &name[..name.floor_char_boundary(40)]);
            let reason = format_args!("is no setting; there are {}", known.join(", "));
            Err(bad(&shown, reason))
        }
        None => Ok(()),
    }
}

fn bad(path: &str, reason: impl Display) -> HttpError {
    HttpError::new(ErrorCode::BadFrame, format!("{path} {reason}"))
}

const fn word(durability: Durability) -> &'static str {
    match durability {
        Durability::Fsync => "fsync",
        Durability::Buffered => "buffered",
        // Nobody can ask for it.
        Durability::Memory => "memory",
    }
}

impl From<Rate> for Bucket {
    fn from(rate: Rate) -> Self {
        Self { capacity: rate.capacity, refill_per_sec: rate.refill_per_sec }
    }
}

impl From<TopicRules> for Rules {
    fn from(rules: TopicRules) -> Self {
        Self {
            durability: word(rules.durability),
            retention_ms: rules.retention_ms,
            retention_bytes: rules.retention_bytes,
            limit: rules.rate.map(Bucket::from),
        }
    }
}

impl From<TopicSettings> for Own {
    fn from(own: TopicSettings) -> Self {
        Self {
            durability: own.durability.map(word),
            retention_ms: own.retention_ms,
            retention_bytes: own.retention_bytes,
            limit: own.rate.map(Bucket::from),
        }
    }
}

impl From<Own> for TopicSettings {
    fn from(own: Own) -> Self {
        let rate = |Bucket { capacity, refill_per_sec }| Rate { capacity, refill_per_sec };
        Self {
            durability: own.durability.and_then(parse_durability),
            retention_ms: own.retention_ms,
            retention_bytes: own.retention_bytes,
            rate: own.limit.map(rate),
        }
    }
}
