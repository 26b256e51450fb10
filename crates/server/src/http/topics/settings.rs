//! Topic settings as JSON. They are checked like those of the configuration file.

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

/// The settings in effect, wherever they come from.
#[derive(Serialize)]
pub(super) struct EffectiveSettings {
    durability: &'static str,
    retention_ms: Option<u64>,
    retention_bytes: Option<u64>,
    limit: Option<RateLimit>,
}

/// The settings of one topic. Those that are absent come from the configuration.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct OwnSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<RateLimit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct RateLimit {
    capacity: u64,
    refill_per_sec: u64,
}

impl OwnSettings {
    pub(super) fn parse(body: &[u8]) -> Result<Self, HttpError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            HttpError::new(ErrorCode::BadJson, format!("the body: not JSON: {error}"))
        })?;
        let Value::Object(fields) = value else {
            return Err(invalid("the body", "must be a JSON object with settings"));
        };
        reject_unknown(&fields, "", &["durability", "retention_ms", "retention_bytes", "limit"])?;
        let durability = present(&fields, "durability").map(|value| {
            let parsed = value.as_str().and_then(parse_durability);
            parsed
                .map(durability_name)
                .ok_or_else(|| invalid("durability", format_args!("must be {DURABILITY_WORDS}")))
        });
        let retention = |name| {
            present(&fields, name).map(|value| number(name, value, RETENTION_RANGE)).transpose()
        };
        Ok(Self {
            durability: durability.transpose()?,
            retention_ms: retention("retention_ms")?,
            retention_bytes: retention("retention_bytes")?,
            limit: present(&fields, "limit").map(RateLimit::parse).transpose()?,
        })
    }
}

impl OwnSettings {
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("words and numbers are JSON")
    }
}

impl RateLimit {
    fn parse(value: &Value) -> Result<Self, HttpError> {
        let Some(fields) = value.as_object() else {
            return Err(invalid("limit", "must be an object with capacity and refill_per_sec"));
        };
        reject_unknown(fields, "limit.", &["capacity", "refill_per_sec"])?;
        let part = |name: &str| {
            let path = format!("limit.{name}");
            let value = present(fields, name).ok_or_else(|| invalid(&path, "is missing"))?;
            number(&path, value, BUCKET_RANGE)
        };
        Ok(Self { capacity: part("capacity")?, refill_per_sec: part("refill_per_sec")? })
    }
}

/// Treats `null` like an absent field.
fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn number(path: &str, value: &Value, range: RangeInclusive<u64>) -> Result<u64, HttpError> {
    value.as_u64().filter(|number| range.contains(number)).ok_or_else(|| {
        invalid(path, format_args!("must be a whole number, {}", describe_range(&range)))
    })
}

fn reject_unknown(
    fields: &Map<String, Value>,
    path: &str,
    known: &[&str],
) -> Result<(), HttpError> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let shown = format!("{path}{}", &name[..name.floor_char_boundary(40)]);
            let reason = format_args!("is not a setting; expected {}", known.join(", "));
            Err(invalid(&shown, reason))
        }
        None => Ok(()),
    }
}

fn invalid(path: &str, reason: impl Display) -> HttpError {
    HttpError::new(ErrorCode::BadFrame, format!("{path} {reason}"))
}

const fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Fsync => "fsync",
        Durability::Buffered => "buffered",
        // Not configurable: the memory engine reports it.
        Durability::Memory => "memory",
    }
}

impl From<Rate> for RateLimit {
    fn from(rate: Rate) -> Self {
        Self { capacity: rate.capacity, refill_per_sec: rate.refill_per_sec }
    }
}

impl From<TopicRules> for EffectiveSettings {
    fn from(rules: TopicRules) -> Self {
        Self {
            durability: durability_name(rules.durability),
            retention_ms: rules.retention_ms,
            retention_bytes: rules.retention_bytes,
            limit: rules.rate.map(RateLimit::from),
        }
    }
}

impl From<TopicSettings> for OwnSettings {
    fn from(own: TopicSettings) -> Self {
        Self {
            durability: own.durability.map(durability_name),
            retention_ms: own.retention_ms,
            retention_bytes: own.retention_bytes,
            limit: own.rate.map(RateLimit::from),
        }
    }
}

impl From<OwnSettings> for TopicSettings {
    fn from(own: OwnSettings) -> Self {
        let rate = |RateLimit { capacity, refill_per_sec }| Rate { capacity, refill_per_sec };
        Self {
            durability: own.durability.and_then(parse_durability),
            retention_ms: own.retention_ms,
            retention_bytes: own.retention_bytes,
            rate: own.limit.map(rate),
        }
    }
}
