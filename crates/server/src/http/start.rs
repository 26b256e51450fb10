//! Where reading starts, given by the parameters `from`, `ts` and `afterId`.

use prombus_bus::StartAt;
use prombus_proto::{EventId, Timestamp};

use super::error::HttpError;
use super::query::{QueryParams, invalid, required};

pub(super) const PARAMETERS: [&str; 3] = ["from", "ts", "afterId"];

/// Reads the start from `query`, or returns `default` if it has none. `ts` or `afterId` alone
/// imply their `from`.
pub(super) fn parse(
    query: &QueryParams,
    default: StartAt,
    allowed: &[&str],
) -> Result<StartAt, HttpError> {
    let ts = query.number("ts", 0..=u64::MAX)?.map(Timestamp);
    let after = query.parsed("afterId", EventId::new)?;
    let from = match (query.text("from"), ts, &after) {
        (Some(from), ..) if allowed.contains(&from) => Some(from),
        (Some(_), ..) => {
            return Err(invalid("from", format_args!("must be one of {}", allowed.join(", "))));
        }
        (None, Some(_), None) => Some("ts"),
        (None, None, Some(_)) => Some("afterId"),
        (None, ..) => None,
    };
    if ts.is_some() && from != Some("ts") {
        return Err(invalid("ts", "requires from=ts"));
    }
    if after.is_some() && from != Some("afterId") {
        return Err(invalid("afterId", "requires from=afterId"));
    }
    Ok(match from {
        Some("ts") => StartAt::Time(required("ts", ts)?),
        Some("afterId") => StartAt::AfterId(required("afterId", after)?),
        Some("earliest") => StartAt::Earliest,
        Some("latest") => StartAt::Latest,
        _ => default,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    fn start(query: &str) -> Result<StartAt, HttpError> {
        let uri: Uri = format!("/replay?{query}").parse().unwrap();
        let query = QueryParams::parse(&uri, &PARAMETERS)?;
        parse(&query, StartAt::Earliest, &["earliest", "ts", "afterId"])
    }

    #[test]
    fn reads_the_start() {
        let after = StartAt::AfterId(EventId::new("a b").unwrap());
        for (query, expected) in [
            ("", StartAt::Earliest),
            ("from=earliest", StartAt::Earliest),
            ("from=ts&ts=7", StartAt::Time(Timestamp(7))),
            ("ts=7", StartAt::Time(Timestamp(7))),
            ("from=afterId&afterId=a+b", after.clone()),
            ("afterId=a%20b", after),
        ] {
            assert_eq!(start(query).unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn rejects_contradictory_parameters() {
        for query in [
            "from=latest",
            "from=",
            "from=ts",
            "from=afterId",
            "from=earliest&ts=7",
            "from=ts&ts=7&afterId=a",
            "ts=7&afterId=a",
            "ts=-1",
            "ts=",
            "afterId=",
        ] {
            assert!(start(query).is_err(), "{query}");
        }
    }
}
